// A host without tasks with a model that does what it is told: what handoff_words.py says, for hosts in TypeScript.

const TOLD =
  /To get its result, call the tool (?<wait>\S+) with (?<given>\{.*?\})\. To end it early, call (?<cancel>\S+) with the same argument\./;
const MOST_TURNS = 12;

function nextCall(result, then) {
  const told = TOLD.exec(result.content.map((block) => block.text ?? "").join(" "));
  return told ? { tool: told.groups[then], given: JSON.parse(told.groups.given) } : undefined;
}

/** One connection with one call, and what follows of it. `connect` gives `tools` and `call`. */
async function playOne(connect, { url, patience, tool, given, then }) {
  const ears = { progress: [], questions: [] };
  const host = await connect(url, patience, ears);
  const tools = await host.tools();
  const turns = [];
  for (let next = { tool, given }; next && turns.length < MOST_TURNS; ) {
    ears.progress = [];
    ears.questions = [];
    const turn = { tool: next.tool, progress: ears.progress, questions: ears.questions };
    turns.push(turn);
    const begun = performance.now();
    try {
      turn.result = await host.call(next.tool, next.given);
      next = nextCall(turn.result, then);
    } catch (error) {
      turn.error = { code: error.code ?? error.name, message: error.message };
      next = undefined;
    }
    turn.seconds = (performance.now() - begun) / 1000;
  }
  return { tools, turns };
}

/** The user's answer to a question: its number. */
export function answer(ears, message) {
  ears.questions.push(message);
  return { word: `WORD-${message.replace(/\?$/, "").split(" ").at(-1)}` };
}

/** Plays what the command line says, and ends: a stream would keep the process. */
export async function run(connect) {
  const plans = JSON.parse(process.argv.at(-1));
  const told = await Promise.all(plans.map((plan) => playOne(connect, plan)));
  process.stdout.write(told.map((each) => `${JSON.stringify(each)}\n`).join(""), () => process.exit(0));
}
