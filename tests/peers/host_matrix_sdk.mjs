// A host on `@modelcontextprotocol/sdk` 1, which speaks the initialize era, for the table of hosts and servers.
// `node host_matrix_sdk.mjs URL …` does what matrix_columns.py says.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

import { YES, afterAMoment, outcome, run } from "./matrix_columns.mjs";

async function connect(url) {
  const client = new Client({ name: "host", version: "1" }, { capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler(ElicitRequestSchema, () => YES);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));

  const tools = async () => (await client.listTools()).tools.map(({ name }) => name);
  await tools(); // only then does it know which tools may be tasks
  const stream = (tool, given) =>
    client.experimental.tasks.callToolStream({ name: tool, arguments: given }, CallToolResultSchema);
  async function asTask(tool, given) {
    let task = false;
    for await (const message of stream(tool, given)) {
      if (message.type === "error") throw message.error;
      if (message.type === "result") return task ? outcome(message.result) : "it was no task";
      task = true;
    }
    return "it had no end";
  }
  return {
    tools,
    call: async (tool, given) => outcome(await client.callTool({ name: tool, arguments: given })),
    asTask,
    asked: (tool) => asTask(tool, {}),
    progress: async (tool) => {
      const seen = [];
      const onprogress = ({ progress }) => seen.push(progress);
      await client.callTool({ name: tool, arguments: {} }, undefined, { onprogress });
      return seen;
    },
    error: async (tool) => {
      try {
        await client.callTool({ name: tool, arguments: {} });
      } catch (error) {
        return error.code;
      }
      return 0;
    },
    cancel: async (tool, given) => {
      for await (const message of stream(tool, given)) {
        if (message.type !== "taskCreated") continue;
        await afterAMoment();
        await client.experimental.tasks.cancelTask(message.task.taskId);
        return;
      }
    },
    read: async (uri) => (await client.readResource({ uri })).contents[0].text,
    prompt: async (name) => (await client.getPrompt({ name })).messages[0].content.text,
  };
}

await run("sdk", connect);
