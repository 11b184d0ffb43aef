// A host on `@modelcontextprotocol/client` with `@modelcontextprotocol/ext-tasks`, speaking 2025-11-25, or 2026-07-28:
// calls tools as tasks, or plainly, and answers whatever it is asked meanwhile. `node host_ext_tasks.mjs URL
// [--stateless] [--plainly] [--together] TOOL ARGUMENTS …` does what host_python.py does.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

import { CAPABILITIES, ROOTS, answerOf, commandLine, noted, play, resultOf, thoughtOf } from "./answers.mjs";
import { REVISION, wordsOfTasks } from "./stateless_words.mjs";

const METHODS = { elicitation: "elicitation/create", sampling: "sampling/createMessage", roots: "roots/list" };
const ANSWERS = { elicitation: answerOf, sampling: thoughtOf, roots: () => ROOTS };

const calls = commandLine();
let seen = noted();
let number = 0;
const stateless = process.argv.includes("--stateless");
const info = { name: "host", version: "1" };
const negotiation = stateless ? { versionNegotiation: { mode: { pin: REVISION } } } : {};
const client = new Client(info, { capabilities: CAPABILITIES, ...negotiation });
client.setNotificationHandler("notifications/message", ({ params }) => {
  seen.logs.push(params.data);
  seen.notifications.push("notifications/message");
});
client.setNotificationHandler("notifications/progress", ({ params }) => {
  seen.progress.push(params.progress);
});
client.fallbackNotificationHandler = async ({ method }) => {
  seen.notifications.push(method);
};
await client.connect(new StreamableHTTPClientTransport(new URL(calls.url)));

const session = createTaskSessionFromClient(client, {
  endpointId: "the one",
  onInputRequest: async (request) => {
    seen.questions.push(METHODS[request.kind]);
    return ANSWERS[request.kind](request.params);
  },
  onError: (error) => seen.problems?.push(`${error.name}: ${error.message}`),
  ...(stateless ? wordsOfTasks(calls.url, info, CAPABILITIES) : {}),
});

async function call(tool, given) {
  const execution = await session.callTool(tool, given, {
    metadata: { progressToken: `call ${++number}` },
    task: { preference: calls.plainly ? "forbid" : stateless ? "allow" : "require" },
  });
  const { outcome } = await execution.settle({
    onEvent: (event) => {
      if (event.type === "task") seen.statuses.push(event.task.status);
    },
  });
  return resultOf(resultFromTaskOutcome(outcome));
}

await play(
  calls,
  () => (seen = { ...noted(), problems: [] }),
  call,
  () => (stateless ? client.discover() : client.ping()),
);
