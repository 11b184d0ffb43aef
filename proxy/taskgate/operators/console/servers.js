// Servers: their rows, which the overview has too, and the hold.

import { $, age, badge, button, cell, curve, emptyRow, link, measured, more, replaceRows, row, say, setText } from "./elements.js";
import { api, attempt, latest, mayAct } from "./requests.js";
import { confirm } from "./confirm.js";
import { addressOf } from "./tasks.js";

const STATE_TONES = { up: "completed", refusing: "failed", down: "failed", held: "input_required" };
const COLUMNS = 7;

// The overview has the same columns.
$("overview-servers").before($("server-rows").parentNode.tHead.cloneNode(true));

export async function loadServers() {
  const [page, history] = await Promise.all([latest("servers", "GET", "/upstreams"), latest("hour", "GET", "/history")]);
  if (page === null || history === null) return;
  fillServers($("server-rows"), page, history);
  setText($("servers-caption"), `${page.items.length} servers, as replica ${page.replica} sees them`);
}

// Fills a table with the servers of a page, each with its hour.
export function fillServers(body, page, history) {
  const hours = new Map(history.upstreams.map((each) => [each.name, each]));
  const rows = page.items.map((item) => makeServerRow(item, hours.get(item.name)));
  replaceRows(body, rows.length ? rows : [emptyRow(COLUMNS, "No server is configured: add one under upstreams.")]);
}

function makeServerRow(item, hour) {
  const name = cell(link(item.name, addressOf({ upstream: item.name })), "", true);
  name.append(more(item.server));
  const state = cell(badge(item.state ?? "unknown", STATE_TONES[item.state] ?? "cancelled"), "state");
  if (item.cause) state.append(more(item.cause));
  if (item.since) state.append(more(`for ${age(item.since)}`));
  if (item.circuit !== "closed") state.append(more(`circuit ${item.circuit}`));
  const act = cell("", "act");
  if (mayAct()) act.append(holdButton(item));
  const isTroubled = item.recent_failures > 0;
  const failed = cell(isTroubled ? `${item.recent_failures} of ${item.recent_requests}` : "0", "number wide");
  if (isTroubled) failed.dataset.tone = "failed";
  const inUse = cell(`${item.calls} of ${item.limit}`, "number");
  if (item.waiting) inUse.append(more(`${item.waiting} wait`));
  if (item.processes !== null) inUse.append(more(`${item.processes} programs`));
  const made = row(
    name, state, cell(hour && hourOf(item, hour), "wide"),
    cell(measured(hour?.recent_p95_seconds), "number wide"), failed, inUse, act,
  );
  made.dataset.key = item.name;
  return made;
}

function hourOf(item, hour) {
  const requests = hour.requests.reduce((sum, each) => sum + each, 0);
  const failures = hour.failures.reduce((sum, each) => sum + each, 0);
  const label = `${item.name}: ${requests} requests in an hour, ${failures} of them failed`;
  return curve(hour.requests, label, item.recent_failures > 0 ? "failed" : "working");
}

export function holdButton(item) {
  const [verb, label] = item.is_held ? ["release", "Release"] : ["hold", "Hold"];
  return button(label, `${label} ${item.name}`, () => holdServer(item, verb));
}

// Is called after a hold or a release.
export const onHold = { reload: () => {} };

async function holdServer(item, verb) {
  const text = `This replica refuses new calls to ${item.name}. Calls that run go on.`;
  if (verb === "hold" && !(await confirm("Hold the server?", text, "Hold the server"))) return;
  await attempt(verb === "hold" ? "Hold" : "Release", async () => {
    await api("POST", `/upstreams/${encodeURIComponent(item.name)}/${verb}`);
    say(verb === "hold" ? `Held: ${item.name}.` : `Released: ${item.name}.`);
    onHold.reload();
  });
}
