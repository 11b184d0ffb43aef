// A host on `@modelcontextprotocol/client` with `@modelcontextprotocol/ext-tasks`, speaking 2025-11-25: calls tools as
// tasks, or plainly, and answers whatever it is asked meanwhile. `node host_ext_tasks.mjs URL [--plainly] [--together]
// TOOL ARGUMENTS …` does what host_python.py does.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

import { CAPABILITIES, ROOTS, answerOf, commandLine, noted, play, resultOf, thoughtOf } from "./answers.mjs";

const METHODS = { elicitation: "elicitation/create", sampling: "sampling/createMessage", roots: "roots/list" };
const ANSWERS = { elicitation: answerOf, sampling: thoughtOf, roots: () => ROOTS };

const calls = commandLine();
let seen = noted();
let number = 0;
const client = new Client({ name: "host", version: "1" }, { capabilities: CAPABILITIES });
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
});

async function call(tool, given) {
  const execution = await session.callTool(tool, given, {
    metadata: { progressToken: `call ${++number}` },
    task: { preference: calls.plainly ? "forbid" : "require" },
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
  () => client.ping(),
);
