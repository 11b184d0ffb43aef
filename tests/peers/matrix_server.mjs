// What matrix_server.py is, on `@modelcontextprotocol/server` 2, which speaks 2026-07-28: `node matrix_server.mjs` takes
// a free port and tells its URL, `node matrix_server.mjs stdio` takes none. It knows nothing of tasks.

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { McpServer, ProtocolError, acceptedContent, createMcpHandler, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const CLOSED = 4242;
const cancelled = new Set();
const answer = z.object({ word: z.string() });

const text = (words) => ({ content: [{ type: "text", text: words }] });
const pause = (milliseconds, signal) =>
  new Promise((resolve) => {
    const late = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(late);
      resolve();
    });
  });

async function steps(ctx) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  for (const progress of [1, 2, 3]) {
    if (progressToken !== undefined) {
      await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 3 } });
    }
    await pause(50);
  }
  return text("3 steps");
}

async function hold(key, { signal }) {
  await pause(60_000, signal);
  if (signal.aborted) cancelled.add(key);
  return text("nobody cancelled");
}

function ask(ctx) {
  const said = acceptedContent(ctx.mcpReq.inputResponses, "word", answer);
  if (said !== undefined) return text(`asked ${said.word}`);
  const question = inputRequired.elicit({ message: "Word?", requestedSchema: answer });
  return inputRequired({ inputRequests: { word: question } });
}

function server() {
  const made = new McpServer({ name: "matrix", version: "1" });
  const word = { inputSchema: z.object({ word: z.string() }) };
  const key = { inputSchema: z.object({ key: z.string() }) };
  made.registerTool("echo", word, (given) => text(`echo ${given.word}`));
  made.registerTool("slow", word, async (given) => {
    await pause(1500);
    return text(`slow ${given.word}`);
  });
  made.registerTool("steps", {}, steps);
  made.registerTool("broken", {}, () => ({ ...text("the books are missing"), isError: true }));
  made.registerTool("hold", key, (given, ctx) => hold(given.key, ctx.mcpReq));
  made.registerTool("was_cancelled", key, (given) => text(cancelled.has(given.key) ? "yes" : "no"));
  made.registerTool("ask", {}, ask);
  made.registerTool("closed", {}, () => text("never called"));
  made.registerResource("book", "matrix://book", {}, (uri) => ({
    contents: [{ uri: uri.href, mimeType: "text/plain", text: "Once upon a time" }],
  }));
  made.registerPrompt("summary", {}, () => ({
    messages: [{ role: "user", content: { type: "text", text: "Summarise the book." } }],
  }));
  // Whatever a tool throws becomes a result, so the error is made where they are called from.
  const callTool = made.server._requestHandlers.get("tools/call");
  made.server._requestHandlers.set("tools/call", (request, ctx) => {
    if (request.params.name === "closed") throw new ProtocolError(CLOSED, "the books are closed");
    return callTool(request, ctx);
  });
  return made;
}

const served = createMcpHandler(server);

async function serve(incoming, outgoing) {
  const gone = new AbortController();
  outgoing.on("close", () => gone.abort());
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
    method: incoming.method,
    headers: incoming.headers,
    body: chunks.length ? Buffer.concat(chunks) : undefined,
    signal: gone.signal,
  });
  const response = await served.fetch(request);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.flushHeaders();
  if (response.body === null) outgoing.end();
  else await pipeline(Readable.fromWeb(response.body), outgoing).catch(() => {});
}

function listen() {
  const listener = createServer((incoming, outgoing) => {
    serve(incoming, outgoing).catch(() => outgoing.destroy());
  });
  const tell = () => process.stdout.write(`serving at http://127.0.0.1:${listener.address().port}/mcp\n`);
  listener.listen(0, "127.0.0.1", tell);
}

if (process.argv[2] === "stdio") serveStdio(server);
else listen();
