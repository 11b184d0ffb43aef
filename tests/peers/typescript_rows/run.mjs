// Runs the rows of a part. They are written after requirements of the TypeScript SDK's end-to-end tests. Hosts and
// servers are in this process; between them are sockets, and perhaps a gateway.
//
// SUITE_PART names the part. Its servers are at `/N/…` of the socket with the descriptor SUITE_SOCKET. Its hosts connect
// to `/N/mcp` below SUITE_URL. With SUITE_THROUGH=1 a gateway is there; without it, hosts reach programs and servers of
// HTTP+SSE in their own way. SUITE_OUTCOMES names the file for the outcome of each row: null, or its problem.
// SUITE_SHARE divides the rows: 0/2 has every second row. SUITE_ONLY has the beginnings of the ids of some rows.
//
// 348 of 475 requirements have rows. Left out are 59 about tokens of hosts, 20 about tokens that servers check, 8 about
// web frameworks, and 40 about one side alone: registrations that fail, validators, types, reconnections of a transport,
// the end of a child process, and what no longer exists.

import { writeFileSync } from "node:fs";

import { inTime, rowsOf } from "./rows.mjs";
import { Mounts } from "./servers.mjs";
import { Use } from "./use.mjs";

import "./lifecycle.mjs";
import "./tools.mjs";
import "./schemas.mjs";
import "./offers.mjs";
import "./questions.mjs";
import "./calls.mjs";
import "./protocol.mjs";
import "./changes.mjs";
import "./rounds.mjs";
import "./wire.mjs";

const TOGETHER = 8; // rows
const WITHIN = 15_000; // milliseconds for a row

const { SUITE_PART: part, SUITE_URL: url, SUITE_SOCKET: socket, SUITE_OUTCOMES: file } = process.env;
const only = process.env.SUITE_ONLY?.split(" ");
const mounts = new Mounts();
await mounts.listen(Number(socket));

async function outcome({ body }) {
  const use = new Use(part, mounts, url, process.env.SUITE_THROUGH === "1");
  let late;
  const limit = new Promise((_, reject) => {
    late = setTimeout(() => reject(new Error("the row did not end")), WITHIN);
  });
  try {
    await Promise.race([body(use), limit]);
    return null;
  } catch (error) {
    return `${error?.stack ?? error}`.slice(0, 1500);
  } finally {
    clearTimeout(late);
    await inTime(use.close(), "the end of a row").catch(() => {});
  }
}

// What is left of a row that has failed must not end the others.
process.on("unhandledRejection", () => {});

const chosen = (id) => !only || only.some((each) => id.startsWith(each));
const [share, shares] = (process.env.SUITE_SHARE ?? "0/1").split("/").map(Number);
const rows = rowsOf(part).filter(({ ids }, at) => at % shares === share && ids.some(chosen));
const found = Object.fromEntries(rows.flatMap(({ ids }) => ids.map((id) => [id, "was not tried"])));
const left = [...rows];
async function work() {
  for (let each = left.shift(); each; each = left.shift()) {
    const begun = performance.now();
    const problem = await outcome(each);
    for (const id of each.ids) found[id] = problem;
    if (process.env.SUITE_TIMES) console.log(Math.round(performance.now() - begun), each.ids[0], mounts.mounts.length);
  }
}
await Promise.all(Array.from({ length: TOGETHER }, work));
writeFileSync(file, JSON.stringify(found));
process.exit(0);
