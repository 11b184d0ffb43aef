// A host without tasks with a model that does what it is told: what handoff_words.py says, for hosts in TypeScript.

import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

const TOLD =
  /To get its result, call the tool (?<wait>\S+) with (?<given>\{.*?\})\. To end it early, call (?<cancel>\S+) with the same argument\./;
const MOST_TURNS = 12;
const PAUSE = 500;

function nextCall(result, then) {
  const told = TOLD.exec(result.content.map((block) => block.text ?? "").join(" "));
  return told ? { tool: told.groups[then], given: JSON.parse(told.groups.given) } : undefined;
}

/** One connection with one call, and what follows of it; with `again`, as many connections as it takes. */
async function playOne(connect, plan, told) {
  let next = { tool: plan.tool, given: plan.given };
  while (next) {
    const ears = { progress: [], questions: [] };
    try {
      const host = await connect(plan.url, plan.patience, ears);
      told.tools = await host.tools();
      await pause(Math.max(0, 1000 * (plan.at ?? 0) - Date.now()));
      next = await converse(host, ears, plan, next, told.turns);
      if (plan.again) await host.close();
    } catch (error) {
      if (!plan.again) throw error;
      told.broken = `${error}`;
    }
    if (next) await pause(PAUSE);
  }
}

/** What is called on one connection; returns what is to be called on another one, if it is not over. */
async function converse(host, ears, plan, next, turns) {
  while (next && turns.length < (plan.turns ?? MOST_TURNS)) {
    ears.progress = [];
    ears.questions = [];
    const turn = { tool: next.tool, progress: ears.progress, questions: ears.questions };
    turns.push(turn);
    const begun = performance.now();
    try {
      turn.result = await host.call(next.tool, next.given);
      next = nextCall(turn.result, plan.then);
    } catch (error) {
      turn.error = { code: error.code ?? error.name, message: error.message };
      if (!plan.again || error.message.includes(plan.final)) return undefined;
      return plan.again === "first" ? { tool: plan.tool, given: plan.given } : next;
    } finally {
      turn.seconds = (performance.now() - begun) / 1000;
    }
  }
  return undefined;
}

/** The user's answer to a question: its number. */
export function answer(ears, message) {
  ears.questions.push(message);
  return { word: `WORD-${message.replace(/\?$/, "").split(" ").at(-1)}` };
}

/** Plays what the command line says, and ends: a stream would keep the process. */
export async function run(connect) {
  const said = process.argv.at(-1);
  const plans = JSON.parse(said.startsWith("@") ? readFileSync(said.slice(1), "utf8") : said);
  const told = plans.map(() => ({ tools: {}, turns: [] }));
  const until = Math.max(...plans.map((plan) => plan.until ?? 0));
  const played = Promise.all(plans.map((plan, index) => playOne(connect, plan, told[index])));
  await Promise.race(until ? [played, pause(1000 * until - Date.now())] : [played]);
  process.stdout.write(told.map((each) => `${JSON.stringify(each)}\n`).join(""), () => process.exit(0));
}
