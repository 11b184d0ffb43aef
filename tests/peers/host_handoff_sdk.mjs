// A host on `@modelcontextprotocol/sdk` 1 that makes no tasks.
// `node host_handoff_sdk.mjs PLAN` does what handoff_words.py says.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

import { answer, run } from "./handoff_words.mjs";

async function connect(url, patience, ears) {
  const client = new Client({ name: "host", version: "1" }, { capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => ({
    action: "accept",
    content: answer(ears, params.message),
  }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return {
    close: () => client.close(),
    tools: async () =>
      Object.fromEntries((await client.listTools()).tools.map(({ name, outputSchema }) => [name, !!outputSchema])),
    call: (tool, given) => {
      const onprogress = ({ progress }) => ears.progress.push(progress);
      return client.callTool({ name: tool, arguments: given }, undefined, { timeout: 1000 * patience, onprogress });
    },
  };
}

await run(connect);
