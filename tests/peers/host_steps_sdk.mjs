// A host on `@modelcontextprotocol/sdk` 1, which speaks the initialize era, step by step: see stepping.py.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, CreateTaskResultSchema, McpError } from "@modelcontextprotocol/sdk/types.js";

import { run, toldOf } from "./stepping.mjs";

async function connect(url, headers) {
  const client = new Client({ name: "host", version: "1" }, { capabilities: {} });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const { tasks } = client.experimental;
  return {
    call: async (tool, given, _meta) => toldOf(await client.callTool({ name: tool, arguments: given, _meta })),
    task: async (tool, given, _meta) => {
      const params = { name: tool, arguments: given, _meta };
      const { task } = await client.request({ method: "tools/call", params }, CreateTaskResultSchema, { task: {} });
      return { task: task.taskId };
    },
    look: async (task) => {
      const { status, statusMessage } = await tasks.getTask(task);
      return { status, message: statusMessage };
    },
    cancel: async (task) => {
      await tasks.cancelTask(task);
      return { cancelled: true };
    },
    outcome: async (task) => toldOf(await tasks.getTaskResult(task, CallToolResultSchema)),
    leave: () => client.close(),
    isOfProtocol: (error) => error instanceof McpError,
  };
}

run(connect);
