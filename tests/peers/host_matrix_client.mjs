// A host on `@modelcontextprotocol/client` 2 with `@modelcontextprotocol/ext-tasks`, in either era, for the table of hosts
// and servers. `node host_matrix_client.mjs [--stateless] URL …` does what matrix_columns.py says.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

import { YES, afterAMoment, outcome, run } from "./matrix_columns.mjs";
import { REVISION, wordsOfTasks } from "./stateless_words.mjs";

const stateless = process.argv.includes("--stateless");
const INFO = { name: "host", version: "1" };
const CAPABILITIES = { elicitation: { form: {} } };

function sessionOf(client, url) {
  return createTaskSessionFromClient(client, {
    endpointId: url,
    onInputRequest: async () => YES,
    ...(stateless ? wordsOfTasks(url, INFO, CAPABILITIES) : {}),
  });
}

async function connect(url) {
  const negotiation = stateless ? { versionNegotiation: { mode: { pin: REVISION } } } : {};
  const client = new Client(INFO, { capabilities: CAPABILITIES, ...negotiation });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const session = sessionOf(client, url);
  const begin = (tool, given, preference = "require") => session.callTool(tool, given, { task: { preference } });
  return {
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async (tool, given) => outcome(await client.callTool({ name: tool, arguments: given })),
    asTask: async (tool, given) => {
      const execution = await begin(tool, given);
      const { outcome: ended } = await execution.settle();
      return execution.kind === "task" ? outcome(resultFromTaskOutcome(ended)) : "it was no task";
    },
    // What a server of that era asks before it answers needs no task.
    asked: async (tool) => {
      const { outcome: ended } = await (await begin(tool, {}, stateless ? "allow" : "require")).settle();
      return outcome(resultFromTaskOutcome(ended));
    },
    progress: async (tool) => {
      const seen = [];
      const onprogress = ({ progress }) => seen.push(progress);
      await client.callTool({ name: tool, arguments: {} }, { onprogress });
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
      const execution = await begin(tool, given);
      const settled = execution.settle().catch(() => undefined);
      await afterAMoment();
      await execution.cancel();
      await settled;
    },
    read: async (uri) => (await client.readResource({ uri })).contents[0].text,
    prompt: async (name) => (await client.getPrompt({ name })).messages[0].content.text,
  };
}

await run(`client ${stateless}`, connect);
