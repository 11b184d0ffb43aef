// A host of MCP Apps on `@modelcontextprotocol/client` and `@modelcontextprotocol/ext-apps`, which opens each view in
// memory instead of a browser: the bridge is the package's own, and so is the App that the view would hold.
//
// `node host_apps.mjs TARGET [--stateless|--sdk] [--tasks] [--without-ui] TOOL ARGUMENTS …` calls each tool and prints
// one JSON document of all that it was told. TARGET is a URL, or a command as a list in JSON. With `--sdk` the host is
// on `@modelcontextprotocol/sdk` 1. With `--tasks` calls for the model become tasks, and a stateless host says with
// every request that it knows tasks. Documents are told by their digests.

import { createHash } from "node:crypto";

import { Client, InMemoryTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { App } from "@modelcontextprotocol/ext-apps";
import {
  AppBridge,
  RESOURCE_MIME_TYPE,
  getToolUiResourceUri,
  isToolVisibilityAppOnly,
} from "@modelcontextprotocol/ext-apps/app-bridge";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";
import { Client as SdkClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as SdkStdioTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as SdkHttpTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { commandLine } from "./answers.mjs";
import { REVISION, wordsOfTasks } from "./stateless_words.mjs";

const UI = "io.modelcontextprotocol/ui";
const TASKS = "io.modelcontextprotocol/tasks";
const INFO = { name: "host", version: "1" };

const { url: target, made: calls } = commandLine();
const has = (option) => process.argv.includes(option);
const stateless = has("--stateless");
const extensions = {
  ...(has("--without-ui") ? {} : { [UI]: { mimeTypes: [RESOURCE_MIME_TYPE], "x-host": { sizes: [1.5, null] } } }),
  ...(has("--tasks") && stateless ? { [TASKS]: {} } : {}),
};
const capabilities = { extensions };

const onSdk = has("--sdk");
const [Http, Stdio] = onSdk
  ? [SdkHttpTransport, SdkStdioTransport]
  : [StreamableHTTPClientTransport, StdioClientTransport];

function transport() {
  if (target.startsWith("http")) return new Http(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new Stdio({ command, args, stderr: "inherit" });
}

const negotiation = stateless ? { versionNegotiation: { mode: { pin: REVISION } } } : {};
const client = new (onSdk ? SdkClient : Client)(INFO, { capabilities, ...negotiation });
await client.connect(transport());
const session = has("--tasks")
  ? createTaskSessionFromClient(client, {
      endpointId: target,
      ...(stateless ? wordsOfTasks(target, INFO, capabilities) : {}),
    })
  : null;

/** The result of a call for the model, and whether it was a task. */
async function called(tool, given) {
  if (session === null) return { result: await client.callTool({ name: tool, arguments: given }), wasTask: false };
  const execution = await session.callTool(tool, given, { task: { preference: stateless ? "allow" : "require" } });
  const { outcome } = await execution.settle();
  return { result: resultFromTaskOutcome(outcome), wasTask: execution.kind === "task" };
}

/** A document as it was read, with a digest in place of each text. */
async function documentAt(uri, from = client) {
  const { contents } = await (from === client ? client.readResource({ uri }) : from.readServerResource({ uri }));
  return contents.map(({ text, blob, ...rest }) => {
    const bytes = text === undefined ? Buffer.from(blob, "base64") : Buffer.from(text);
    const digest = createHash("sha256").update(bytes).digest("hex");
    return { ...rest, kind: text === undefined ? "blob" : "text", length: bytes.length, digest };
  });
}

/** What a view gets that was opened for a call, and what it is answered itself. */
async function viewOf(tool, given, result, forViews) {
  const [here, there] = InMemoryTransport.createLinkedPair();
  const bridge = new AppBridge(onSdk ? null : client, INFO, { serverTools: {}, serverResources: {} });
  if (onSdk) {
    // The bridge knows the other package's client alone.
    bridge.oncalltool = (params) => client.callTool(params);
    bridge.onreadresource = (params) => client.readResource(params);
  }
  const app = new App({ name: "view", version: "1" }, {}, { autoResize: false });
  const ready = new Promise((resolve) => (bridge.oninitialized = resolve));
  const input = new Promise((resolve) => (app.ontoolinput = resolve));
  const shown = new Promise((resolve) => (app.ontoolresult = resolve));
  await bridge.connect(here);
  await app.connect(there);
  await ready;
  await bridge.sendToolInput({ arguments: given });
  await bridge.sendToolResult(result);
  const answers = {};
  for (const { name } of forViews) answers[name] = await app.callServerTool({ name, arguments: {} });
  const seen = { input: await input, result: await shown, answers };
  return { ...seen, document: await documentAt(getToolUiResourceUri(tool), app) };
}

const { tools } = await client.listTools();
const { resources } = await client.listResources();
const uris = [...new Set(tools.map(getToolUiResourceUri))].filter((uri) => uri !== undefined);
const documents = {};
for (const uri of uris) documents[uri] = await documentAt(uri);
const forViews = tools.filter((tool) => isToolVisibilityAppOnly(tool) && !tool.inputSchema.required?.length);

const told = {};
for (const { tool: name, given } of calls) {
  const tool = tools.find((each) => each.name === name);
  const call = await called(name, given);
  const isShown = tool !== undefined && getToolUiResourceUri(tool) !== undefined;
  told[name] = { ...call, view: isShown ? await viewOf(tool, given, call.result, forViews) : null };
}
const ui = client.getServerCapabilities().extensions?.[UI] ?? null;
process.stdout.write(`${JSON.stringify({ ui, tools, resources, documents, calls: told })}\n`, () => process.exit(0));
