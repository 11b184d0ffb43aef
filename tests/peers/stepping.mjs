// A host that does one step after the other as it is told on its input, for hosts in TypeScript: see stepping.py.

import { createInterface } from "node:readline";

const ENDS_WITHIN = 20_000; // milliseconds for one step

export function toldOf(result) {
  return {
    text: result.content.map((block) => block.text ?? "").join(" "),
    is_error: result.isError === true,
  };
}

function errorOf(host, error) {
  if (host?.isOfProtocol(error)) {
    return { error: { code: error.code, message: error.message, data: error.data ?? null } };
  }
  return { thrown: [error.constructor.name, error.message, error.status ?? error.code ?? null] };
}

async function inTime(told, host) {
  let late;
  const limit = new Promise((resolve) => {
    late = setTimeout(resolve, ENDS_WITHIN, { thrown: ["NoEnd", "no end", null] });
  });
  try {
    return await Promise.race([told.catch((error) => errorOf(host, error)), limit]);
  } finally {
    clearTimeout(late);
  }
}

/** Does what the lines say. `connect` makes a host of a URL and headers. */
export function run(connect) {
  const hosts = new Map();
  async function told({ on, do: verb, with: given }) {
    if (verb === "connect") {
      hosts.set(on, await connect(...given));
      return { connected: true };
    }
    if (verb !== "leave") return hosts.get(on)[verb](...given);
    await hosts.get(on).leave();
    return { left: true };
  }
  const lines = createInterface({ input: process.stdin });
  lines.on("line", async (line) => {
    const step = JSON.parse(line);
    const came = await inTime(told(step), hosts.get(step.on));
    process.stdout.write(`${JSON.stringify({ id: step.id, ...came })}\n`);
  });
  lines.on("close", () => process.exit(0));
}
