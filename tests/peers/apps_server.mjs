// A server of MCP Apps on `@modelcontextprotocol/server` and `@modelcontextprotocol/ext-apps`, for what the released
// servers of Apps lack: a declaration, a tool for hosts with views alone, metadata of documents, and 2026-07-28.
// `node apps_server.mjs legacy|modern http|stdio`: each speaks one era only. Over HTTP it takes a free port and tells
// its URL. No answer depends on the time.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import {
  RESOURCE_MIME_TYPE,
  getUiCapability,
  registerAppResource,
  registerAppTool,
} from "@modelcontextprotocol/ext-apps/server";
import {
  CLIENT_CAPABILITIES_META_KEY,
  McpServer,
  ResourceTemplate,
  WebStandardStreamableHTTPServerTransport,
  createMcpHandler,
} from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const UI = "io.modelcontextprotocol/ui";
const VIEW = "ui://apps/view.html";
const PAINTED = "ui://apps/painted.html";
const FOR_VIEWS = "paint"; // is listed for hosts with views alone

const released = import.meta.resolve("@modelcontextprotocol/server-basic-vanillajs");
const html = readFileSync(fileURLToPath(new URL("mcp-app.html", released)), "utf-8");
const listed = { csp: { connectDomains: ["https://listed.example"] }, prefersBorder: false };
const read = { csp: { resourceDomains: ["https://cdn.example"] }, permissions: { camera: {} }, prefersBorder: true };

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function shown() {
  const rows = [1.5, 1e21, null, "é\u2028</script>"];
  return {
    content: [{ type: "text", text: "shown", annotations: { audience: ["user"] }, _meta: { "example.com/block": [] } }],
    structuredContent: { rows, html, nested: { resultType: "no", _meta: { ui: {} } } },
    _meta: { ui: { x: 1 }, "example.com/state": { token: "t", rows }, "openai/outputTemplate": VIEW },
  };
}

function registerTools(made, uiOf) {
  const tool = (name, ui, callback, more = {}) =>
    registerAppTool(made, name, { description: name, inputSchema: z.object({}), _meta: { ui, ...more } }, callback);
  const both = { resourceUri: VIEW, visibility: ["model", "app"], "x-more": [1] };
  tool("show", both, shown, { "openai/widget": { a: 1 } });
  tool(FOR_VIEWS, { resourceUri: PAINTED }, () => ({ content: [{ type: "text", text: "painted" }] }));
  // It is longer than a gateway waits for a call that is to be a task.
  tool("refresh", { resourceUri: VIEW, visibility: ["app"] }, async () => {
    await pause(300);
    return { content: [], structuredContent: { refreshed: true }, _meta: { "example.com/refreshed": true } };
  });
  made.registerTool("told", { inputSchema: z.object({}) }, (_, ctx) => ({
    content: [],
    structuredContent: { ui: uiOf(ctx) ?? null },
  }));
}

function registerDocuments(made) {
  const entry = { description: "The view", _meta: { ui: listed, "example.com/listed": 1 } };
  const item = { uri: VIEW, mimeType: RESOURCE_MIME_TYPE, text: html, _meta: { ui: read, "example.com/read": 1 } };
  registerAppResource(made, "view", VIEW, entry, () => ({ contents: [item] }));
  // A document of a view need not be in the list of resources.
  made.registerResource("others", new ResourceTemplate("ui://apps/{name}.html", { list: undefined }), {}, (uri) => ({
    contents: [{ uri: uri.href, mimeType: RESOURCE_MIME_TYPE, blob: Buffer.from(`<p>${uri}</p>`).toString("base64") }],
  }));
}

function server() {
  const capabilities = { extensions: { [UI]: { "x-views": [2] } } };
  const made = new McpServer({ name: "apps", version: "1" }, { capabilities });
  const capabilitiesOf = (ctx) =>
    ctx.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? made.server.getClientCapabilities();
  const uiOf = (ctx) => getUiCapability(capabilitiesOf(ctx));
  registerTools(made, uiOf);
  registerDocuments(made);
  // Which tools there are depends on the request, for which the SDK has no other place.
  const list = made.server._requestHandlers.get("tools/list");
  made.server._requestHandlers.set("tools/list", async (request, ctx) => {
    const page = await list(request, ctx);
    const hasViews = uiOf(ctx)?.mimeTypes?.includes(RESOURCE_MIME_TYPE);
    return hasViews ? page : { ...page, tools: page.tools.filter(({ name }) => name !== FOR_VIEWS) };
  });
  return made;
}

/** Answers requests of the initialize era, each in its session. */
function inSessions() {
  const sessions = new Map();
  return async (request) => {
    const known = sessions.get(request.headers.get("mcp-session-id"));
    if (known !== undefined) return known.handleRequest(request);
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await server().connect(transport);
    return transport.handleRequest(request);
  };
}

async function serve(answer, incoming, outgoing) {
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
  const response = await answer(request);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.flushHeaders();
  if (response.body === null) outgoing.end();
  else await pipeline(Readable.fromWeb(response.body), outgoing).catch(() => {});
}

const [era, transport] = process.argv.slice(2);
if (transport === "http") {
  const answer = era === "modern" ? createMcpHandler(server, { legacy: "reject" }).fetch : inSessions();
  const listener = createServer((incoming, outgoing) => {
    serve(answer, incoming, outgoing).catch(() => outgoing.destroy());
  });
  const tell = () => process.stdout.write(`serving at http://127.0.0.1:${listener.address().port}/mcp\n`);
  listener.listen(0, "127.0.0.1", tell);
} else if (era === "modern") serveStdio(server, { legacy: "reject" });
else await server().connect(new StdioServerTransport());
