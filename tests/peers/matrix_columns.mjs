// The columns of the table of hosts and servers, for hosts on a TypeScript SDK: what matrix_columns.py says. `run` is
// given a function that connects to a URL and returns a host with the methods of its `Host`, in camel case.

const ENDS_WITHIN = 15_000; // milliseconds for one column; to connect has what the process has
const CLOSED = 4242;

export class NotHad extends Error {}

const same = (told, wanted) => JSON.stringify(told) === JSON.stringify(wanted) || told;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const COLUMNS = {
  plain_call: async (host) => same(await host.call("echo", { word: "back" }), ["echo back", false]),
  task: async (host) => same(await host.asTask("slow", { word: "train" }), ["slow train", false]),
  elicitation: async (host) => {
    if (!(await host.tools()).includes("ask")) throw new NotHad("the server's SDK has no elicitation");
    // As a task the call fails without the words of the server.
    const told = await host.asked("ask").catch((error) => [error.message, true]);
    if (told[1] && /Cannot request input|Task \S+ failed/.test(told[0])) {
      throw new NotHad("the server's SDK has no session with a legacy host");
    }
    return same(told, ["asked yes", false]);
  },
  progress: async (host) => same(await host.progress("steps"), [1, 2, 3]),
  error: async (host) => same(await host.error("closed"), CLOSED),
  is_error: async (host) => {
    const [text, isError] = await host.call("broken", {});
    return (isError && text.includes("the books are missing")) || [text, isError];
  },
  cancel: async (host, key) => {
    if (!(await host.tools()).includes("hold")) {
      throw new NotHad("a session of the server's SDK dies of a cancelled call");
    }
    await host.cancel("hold", { key });
    for (let again = 0; again < 50; again++) {
      if (same(await host.call("was_cancelled", { key }), ["yes", false]) === true) return true;
      await pause(100);
    }
    return "the server was not told";
  },
  list: async (host) => {
    const names = await host.tools();
    return ["echo", "slow", "steps", "closed"].every((name) => names.includes(name)) || names;
  },
  resources: async (host) => same(await host.read("matrix://book"), "Once upon a time"),
  prompts: async (host) => same(await host.prompt("summary"), "Summarise the book."),
};

async function inTime(told) {
  let late;
  const limit = new Promise((_, reject) => {
    late = setTimeout(() => reject(new Error("no end")), ENDS_WITHIN);
  });
  try {
    return await Promise.race([told, limit]);
  } finally {
    clearTimeout(late);
  }
}

const reason = (error) => (error instanceof NotHad ? `no: ${error.message}` : `no: ${error.name}: ${error.message}`);

async function verdict(column, host, key) {
  try {
    const told = await inTime(column(host, key));
    return told === true ? "yes" : `no: ${JSON.stringify(told)}`;
  } catch (error) {
    return reason(error);
  }
}

async function row(connect, url, key) {
  const told = {};
  try {
    const host = await connect(url);
    for (const [name, column] of Object.entries(COLUMNS)) told[name] = await verdict(column, host, key);
  } catch (error) {
    for (const name of Object.keys(COLUMNS)) told[name] = reason(error);
  }
  return told;
}

async function called(connect, { url, tool, given }) {
  try {
    const host = await connect(url);
    return { tools: await inTime(host.tools()), told: await inTime(host.asTask(tool, given)) };
  } catch (error) {
    return { failed: `${error.name}: ${error.message}` };
  }
}

/** Does what the command line says: everywhere at once. Then the process ends: a stream would keep it. */
export async function run(name, connect) {
  const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  const done = (word) =>
    word.startsWith("{") ? called(connect, JSON.parse(word)) : row(connect, word, `${name} ${word}`);
  const rows = await Promise.all(words.map(done));
  process.stdout.write(rows.map((told) => `${JSON.stringify(told)}\n`).join(""), () => process.exit(0));
}

export const outcome = (result) => [
  result.content.map((block) => block.text ?? block.type).join(" "),
  result.isError === true,
];

export const afterAMoment = () => pause(500);

export const YES = { action: "accept", content: { word: "yes" } };
