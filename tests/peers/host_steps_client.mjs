// A host on `@modelcontextprotocol/client` 2 with `@modelcontextprotocol/ext-tasks`, in the initialize era, or with
// `--stateless` in the other, step by step: see stepping.py.

import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  JsonRpcResponseError,
  TaskFailedError,
  createTaskSessionFromClient,
  resultFromTaskOutcome,
} from "@modelcontextprotocol/ext-tasks/client";

import { REVISION, wordsOfTasks } from "./stateless_words.mjs";
import { run, toldOf } from "./stepping.mjs";

const stateless = process.argv.includes("--stateless");
const INFO = { name: "host", version: "1" };

async function connect(url, headers) {
  const client = new Client(INFO, stateless ? { versionNegotiation: { mode: { pin: REVISION } } } : {});
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const session = createTaskSessionFromClient(client, {
    endpointId: url,
    ...(stateless ? wordsOfTasks(url, INFO, {}, headers) : {}),
  });
  return {
    call: async (tool, given, _meta) => toldOf(await client.callTool({ name: tool, arguments: given, _meta })),
    task: async (tool, given, metadata) => {
      const task = { preference: stateless ? "allow" : "require" };
      const execution = await session.callTool(tool, given, { metadata, task });
      await execution.detach();
      return { task: execution.handle.taskId };
    },
    look: async (task) => {
      const { status, statusMessage } = await session.task(task).snapshot();
      return { status, message: statusMessage };
    },
    cancel: async (task) => {
      await session.task(task).cancel();
      return { cancelled: true };
    },
    outcome: async (task) => toldOf(resultFromTaskOutcome(await session.task(task).result())),
    leave: () => client.close(),
    isOfProtocol: (error) => [ProtocolError, JsonRpcResponseError, TaskFailedError].some((kind) => error instanceof kind),
  };
}

run(connect);
