// What a host on a TypeScript SDK answers whatever it is asked, and what all of them note of a session.

export function noted() {
  return { statuses: [], questions: [], progress: [], logs: [], notifications: [] };
}

/** The user's answer: the question's number or last word, in capitals. */
export function answerOf(params) {
  if (params.mode === "url") return { action: "accept" };
  const word = params.message.replace(/\?$/, "").split(" ").at(-1).toUpperCase();
  return { action: "accept", content: { word: `WORD-${word}` } };
}

/** The model's answer: the tool, where it is offered one that it has not used yet, else what it was told. */
export function thoughtOf(params) {
  const last = [params.messages.at(-1).content].flat()[0];
  const told = { role: "assistant", model: "parrot" };
  if (last.type === "tool_result") {
    return { ...told, content: { type: "text", text: `thought: ${last.content[0].text}` } };
  }
  if (params.tools?.length) {
    const use = { type: "tool_use", id: "use-1", name: params.tools[0].name, input: { city: "Oslo" } };
    return { ...told, content: [use], stopReason: "toolUse" };
  }
  return { ...told, content: { type: "text", text: `thought: ${last.text}` } };
}

export const ROOTS = { roots: [{ uri: "file:///srv/books" }] };

export const CAPABILITIES = {
  sampling: { tools: {} },
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
};

/** The command line: URL [--plainly] [--together] TOOL ARGUMENTS … */
export function commandLine() {
  const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  const made = [];
  for (let at = 1; at < words.length; at += 2) made.push({ tool: words[at], given: JSON.parse(words[at + 1]) });
  const has = (option) => process.argv.includes(option);
  return { url: words[0], made, plainly: has("--plainly"), together: has("--together") };
}

export function resultOf(result) {
  return {
    result: result.content.map((block) => block.text ?? block.type).join(" "),
    isError: result.isError === true,
  };
}

export function errorOf(error) {
  return { error: { code: error.code ?? null, message: error.message } };
}

const ENDS_WITHIN = 1000 * Number(process.env.ENDS_WITHIN ?? 12); // milliseconds for one call

async function inTime(told) {
  let late;
  const limit = new Promise((resolve) => {
    late = setTimeout(resolve, ENDS_WITHIN, null);
  });
  try {
    return await Promise.race([told.catch(errorOf), limit]);
  } finally {
    clearTimeout(late);
  }
}

/**
 * Makes each call after the other, or all together, and prints one line of JSON for each; after one that does not end
 * there are no more. `begin` gives what is noted from then on, `call` promises what came of a call. Then the process
 * ends: a stream would keep it.
 */
export async function play({ made, together }, begin, call, ping) {
  for (const group of together ? [made] : made.map((each) => [each])) {
    const seen = begin();
    const told = await Promise.all(group.map(({ tool, given }) => inTime(call(tool, given))));
    await inTime(ping()); // what is still on its way on another stream has come by the time this has
    for (const each of told) await say({ ...(each ?? errorOf(new Error("no end"))), ...seen });
    if (told.includes(null)) process.exit(1);
  }
  process.exit(0);
}

function say(told) {
  return new Promise((resolve) => process.stdout.write(`${JSON.stringify(told)}\n`, resolve));
}
