// A host on `@modelcontextprotocol/sdk`: calls tools by its streaming task client, or plainly, and answers whatever it is
// asked meanwhile. `node host_sdk.mjs URL [--plainly] [--together] TOOL ARGUMENTS …` does what host_python.py does.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { CAPABILITIES, ROOTS, answerOf, commandLine, errorOf, noted, play, resultOf, thoughtOf } from "./answers.mjs";

const calls = commandLine();
let seen = noted();
const client = new Client({ name: "host", version: "1" }, { capabilities: CAPABILITIES });

function answering(schema, method, answer) {
  client.setRequestHandler(schema, async (request) => {
    seen.questions.push(method);
    return answer(request.params);
  });
}
answering(ElicitRequestSchema, "elicitation/create", answerOf);
answering(CreateMessageRequestSchema, "sampling/createMessage", thoughtOf);
answering(ListRootsRequestSchema, "roots/list", () => ROOTS);
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
  seen.logs.push(params.data);
  seen.notifications.push("notifications/message");
});
client.fallbackNotificationHandler = async ({ method }) => {
  seen.notifications.push(method);
};

async function call(tool, given) {
  const onprogress = ({ progress }) => seen.progress.push(progress);
  if (calls.plainly) return resultOf(await client.callTool({ name: tool, arguments: given }, undefined, { onprogress }));
  let told = {};
  const stream = client.experimental.tasks.callToolStream({ name: tool, arguments: given }, CallToolResultSchema, {
    onprogress,
  });
  for await (const message of stream) {
    if (message.type === "result") told = resultOf(message.result);
    else if (message.type === "error") told = errorOf(message.error);
    else seen.statuses.push(message.task.status);
  }
  return told;
}

await client.connect(new StreamableHTTPClientTransport(new URL(calls.url)));
await client.listTools(); // only then does it know which tools may be tasks
await play(
  calls,
  () => (seen = noted()),
  call,
  () => client.ping(),
);
