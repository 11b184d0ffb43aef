// A host on `@modelcontextprotocol/client` 2 without `@modelcontextprotocol/ext-tasks`, in either era.
// `node host_handoff_client.mjs [--stateless] PLAN` does what handoff_words.py says. HOST_TOKEN is the token that it has.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { answer, run } from "./handoff_words.mjs";

const token = process.env.HOST_TOKEN;
const requestInit = token ? { headers: { Authorization: `Bearer ${token}` } } : {};
const stateless = process.argv.includes("--stateless");

async function connect(url, patience, ears) {
  const negotiation = stateless ? { versionNegotiation: { mode: "auto" } } : {};
  const options = { capabilities: { elicitation: { form: {} } }, ...negotiation };
  const client = new Client({ name: "host", version: "1" }, options);
  client.setRequestHandler("elicitation/create", async ({ params }) => ({
    action: "accept",
    content: answer(ears, params.message),
  }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return {
    close: () => client.close(),
    tools: async () =>
      Object.fromEntries((await client.listTools()).tools.map(({ name, outputSchema }) => [name, !!outputSchema])),
    call: (tool, given) => {
      const onprogress = ({ progress }) => ears.progress.push(progress);
      return client.callTool({ name: tool, arguments: given }, { timeout: 1000 * patience, onprogress });
    },
  };
}

await run(connect);
