// Rows of the beginning of a session: versions, capabilities, and who both sides say they are.

import { SdkErrorCode, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { LATEST_PROTOCOL_VERSION, Server } from "@modelcontextprotocol/server";

import {
  ALL,
  BOTH,
  CHANNEL,
  LEGACY,
  MODERN,
  Noted,
  SESSIONS,
  STATELESS,
  assert,
  inTime,
  made,
  refused,
  row,
  text,
  textOf,
} from "./rows.mjs";

const OLDER = "2025-06-18";
const echo = (server) => server.registerTool("echo", {}, () => text("echo"));
const posted = (transport) => transport.noted.items.filter(({ body }) => body).map(({ body }) => body);

/** Before its first request is handled, a server on the raw class can be asked what it knows of its host. */
function serverThatKnows(known, options = { capabilities: { tools: {} } }) {
  return () => {
    const server = new Server({ name: "server", version: "1" }, options);
    server.setRequestHandler("tools/list", () => ({ tools: [] }));
    server.setRequestHandler("tools/call", () => text(JSON.stringify(known(server))));
    return server;
  };
}

const asked = async (host) => JSON.parse(textOf(await host.callTool({ name: "known", arguments: {} })));

row("lifecycle:initialize:basic", LEGACY, async (use) => {
  const host = await use.connected(() => made(echo));
  assert.equal(host.getServerVersion().name, "server");
  assert.ok(host.getServerCapabilities().tools);
  assert.equal(host.getNegotiatedProtocolVersion(), LATEST_PROTOCOL_VERSION);
});

row("lifecycle:initialize:basic (at the server)", CHANNEL, async (use) => {
  const initialized = new Noted();
  const factory = () => {
    const server = made(echo);
    server.server.oninitialized = () => initialized.push(server.server.getClientCapabilities());
    return server;
  };
  await use.connected(factory, { capabilities: { roots: {} } });
  const capabilities = await initialized.first(({ roots }) => roots, "the capabilities of the host");
  assert.deepEqual(capabilities.roots, {});
});

row("lifecycle:initialize:instructions", ALL, async (use) => {
  const host = await use.connected(() => made(echo, { instructions: "Read the manual.\nTwice." }));
  assert.equal(host.getInstructions(), "Read the manual.\nTwice.");
});

row("lifecycle:initialize:instructions (none)", ALL, async (use) => {
  const host = await use.connected(() => made(echo));
  assert.equal(host.getInstructions(), undefined);
});

row("lifecycle:initialized-notification", [SESSIONS, STATELESS, BOTH], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo));
  await host.listTools();
  const methods = posted(transport).map(({ method }) => method);
  assert.deepEqual(methods, ["initialize", "notifications/initialized", "tools/list"]);
});

row("lifecycle:initialized-notification (at the server)", CHANNEL, async (use) => {
  const order = [];
  const factory = () => {
    const server = made(echo);
    const heard = [];
    order.push(heard);
    server.server.oninitialized = () => heard.push("initialized");
    server.registerTool("second", {}, () => {
      heard.push("called");
      return text("");
    });
    return server;
  };
  const host = await use.connected(factory);
  await host.callTool({ name: "second", arguments: {} });
  assert.deepEqual(
    order.find((each) => each.includes("called")),
    ["initialized", "called"],
  );
});

row("lifecycle:ping", LEGACY, async (use) => {
  const host = await use.connected(() => made(echo));
  assert.deepEqual(await host.ping(), {});
});

row("lifecycle:ping (by the server)", CHANNEL, async (use) => {
  const set = (server) =>
    server.registerTool("ping", {}, async () => text(JSON.stringify(await inTime(server.server.ping(), "an answer"))));
  const host = await use.connected(() => made(set));
  assert.equal(textOf(await host.callTool({ name: "ping", arguments: {} })), "{}");
});

row("lifecycle:version:match", LEGACY, async (use) => {
  const host = await use.connected(() => made(echo));
  assert.equal(host.getNegotiatedProtocolVersion(), LATEST_PROTOCOL_VERSION);
});

row("lifecycle:version:match (an older version)", LEGACY, async (use) => {
  const host = await use.connected(() => made(echo), { supportedProtocolVersions: [OLDER] });
  assert.equal(host.getNegotiatedProtocolVersion(), OLDER);
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: {} })), "echo");
});

row("lifecycle:version:downgrade", LEGACY, async (use) => {
  const host = await use.connected(() => made(echo, { supportedProtocolVersions: [OLDER] }));
  assert.equal(host.getNegotiatedProtocolVersion(), OLDER);
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: {} })), "echo");
});

row("lifecycle:version:reject-unsupported", LEGACY, async (use) => {
  const factory = () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: {} });
    server.setRequestHandler("initialize", () => ({
      protocolVersion: "1999-12-31",
      capabilities: {},
      serverInfo: { name: "server", version: "1" },
    }));
    return server;
  };
  const host = use.host();
  await refused(use.connect(host, factory));
  await refused(host.ping());
});

row("lifecycle:version:no-overlap-rejects", LEGACY, async (use) => {
  const host = use.host({ supportedProtocolVersions: [LATEST_PROTOCOL_VERSION] });
  await refused(use.connect(host, () => made(echo, { supportedProtocolVersions: ["2024-11-05"] })));
  assert.equal(host.getServerCapabilities(), undefined);
});

row("lifecycle:version:custom-supported-versions", LEGACY, async (use) => {
  const supportedProtocolVersions = ["2025-03-26", "2024-11-05"];
  const host = use.host({ supportedProtocolVersions });
  await use.connect(host, () => made(echo, { supportedProtocolVersions }));
  assert.equal(host.getNegotiatedProtocolVersion(), "2025-03-26");
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: {} })), "echo");
});

row("lifecycle:version:server-fallback-latest", [SESSIONS, STATELESS, BOTH], async (use) => {
  const place = use.place(() => made(echo));
  const response = await fetch(place.url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2099-01-01", capabilities: {}, clientInfo: { name: "host", version: "1" } },
    }),
  });
  const told = await response.text();
  assert.equal(response.status, 200);
  assert.ok(told.includes(`"protocolVersion":"${LATEST_PROTOCOL_VERSION}"`), told);
});

row("lifecycle:capability:experimental-passthrough", ALL, async (use) => {
  const experimental = { "com.example/words": { many: [1, "two"], deep: { yes: true } } };
  const host = await use.connected(() => made(echo, { capabilities: { experimental } }));
  assert.deepEqual(host.getServerCapabilities().experimental, experimental);
  assert.equal(host.getServerCapabilities().experimental["com.example/other"], undefined);
});

row("lifecycle:capability:experimental-passthrough (of the host)", CHANNEL, async (use) => {
  const experimental = { "com.example/words": { many: [1, "two"] } };
  const host = use.host({ capabilities: { experimental } });
  await use.connect(
    host,
    serverThatKnows((server) => server.getClientCapabilities().experimental ?? null),
  );
  assert.deepEqual(await asked(host), experimental);
});

row("lifecycle:initialize:server-info", ALL, async (use) => {
  const info = { name: "books", version: "3.2.1", title: "All books" };
  const factory = () => new Server(info, { capabilities: {} });
  const host = await use.connected(factory);
  const { name, version, title } = host.getServerVersion();
  assert.deepEqual({ name, version, title }, info);
});

row("lifecycle:initialize:client-info", CHANNEL, async (use) => {
  const info = { name: "reader", version: "7.0", title: "A reader" };
  const host = use.host({}, info);
  await use.connect(
    host,
    serverThatKnows((server) => server.getClientVersion()),
  );
  assert.deepEqual(await asked(host), info);
});

row("typescript:server:get-client-capabilities", CHANNEL, async (use) => {
  const host = use.host({ capabilities: { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } } });
  await use.connect(
    host,
    serverThatKnows((server) => server.getClientCapabilities()),
  );
  const known = await asked(host);
  assert.deepEqual(known.roots, { listChanged: true });
  assert.ok(known.sampling && known.elicitation.form);
});

row("typescript:server:get-negotiated-protocol-version", CHANNEL, async (use) => {
  const host = use.host();
  await use.connect(
    host,
    serverThatKnows((server) => server.getNegotiatedProtocolVersion()),
  );
  assert.equal(await asked(host), host.getNegotiatedProtocolVersion());
});

row("lifecycle:pre-initialization-ordering", [SESSIONS, STATELESS, BOTH], async (use) => {
  const { transport } = await use.connect(use.host(), () => made(echo));
  assert.deepEqual(
    posted(transport)
      .map(({ method }) => method)
      .slice(0, 2),
    ["initialize", "notifications/initialized"],
  );
});

row("lifecycle:initialize:capabilities:minimal", ALL, async (use) => {
  const host = await use.connected(() => new Server({ name: "server", version: "1" }, { capabilities: {} }));
  assert.deepEqual(host.getServerCapabilities(), {});
});

row("lifecycle:capability:server-not-advertised", ALL, async (use) => {
  const { host, place } = await use.connect(use.host({ enforceStrictCapabilities: true }), () => made(echo));
  const before = place.heard.items.length;
  await refused(host.readResource({ uri: "file:///none" }), { code: SdkErrorCode.CapabilityNotSupported });
  await refused(host.getPrompt({ name: "none" }), { code: SdkErrorCode.CapabilityNotSupported });
  assert.equal(place.heard.items.length, before);
});

row("lifecycle:capability:list-empty-when-not-advertised", ALL, async (use) => {
  const host = await use.connected(() => new Server({ name: "server", version: "1" }, { capabilities: {} }));
  assert.deepEqual((await host.listTools()).tools, []);
  assert.deepEqual((await host.listPrompts()).prompts, []);
  assert.deepEqual((await host.listResources()).resources, []);
  assert.deepEqual((await host.listResourceTemplates()).resourceTemplates, []);
});

row("lifecycle:capability:strict-mode-throws", ALL, async (use) => {
  const factory = () => new Server({ name: "server", version: "1" }, { capabilities: {} });
  const host = await use.connected(factory, { enforceStrictCapabilities: true });
  await refused(host.listTools(), { code: SdkErrorCode.CapabilityNotSupported });
  await refused(host.listResources(), { code: SdkErrorCode.CapabilityNotSupported });
});

row("errors:capability:sdkerror-capability-not-supported", CHANNEL, async (use) => {
  const set = (server) =>
    server.registerTool("ask", {}, async (ctx) => {
      const request = server.server.createMessage({ messages: [], maxTokens: 1 });
      return text(`${(await refused(request)).code}`);
    });
  const host = await use.connected(() => made(set, { enforceStrictCapabilities: true }));
  assert.equal(textOf(await host.callTool({ name: "ask", arguments: {} })), SdkErrorCode.CapabilityNotSupported);
});

row("tools:capability:declared", ALL, async (use) => {
  const host = await use.connected(() => made(echo));
  assert.equal(host.getServerCapabilities().tools.listChanged, true);
  assert.equal(host.getServerCapabilities().prompts, undefined);
});

row("prompts:capability:declared", ALL, async (use) => {
  const set = (server) => server.registerPrompt("hello", {}, () => ({ messages: [] }));
  const host = await use.connected(() => made(set));
  assert.ok(host.getServerCapabilities().prompts);
  assert.equal(host.getServerCapabilities().tools, undefined);
});

row("resources:capability:declared", ALL, async (use) => {
  const factory = () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: { resources: { subscribe: true } } });
    server.setRequestHandler("resources/list", () => ({ resources: [] }));
    return server;
  };
  const host = await use.connected(factory);
  assert.equal(host.getServerCapabilities().resources.subscribe, true);
});

row("logging:capability:declared", ALL, async (use) => {
  const host = await use.connected(() => made(echo, { capabilities: { logging: {} } }));
  assert.ok(host.getServerCapabilities().logging);
});

row("typescript:client:connect:prior-zero-roundtrip", [MODERN], async (use) => {
  const place = use.place(() => made(echo));
  const { host } = await use.connect(use.host(), place);
  const prior = { kind: "modern", discover: host.getDiscoverResult() };
  const second = use.host();
  const transport = use.transport(place);
  use.ends(() => second.close());
  await second.connect(transport, { prior });
  assert.deepEqual(transport.noted.items, []);
  assert.equal(textOf(await second.callTool({ name: "echo", arguments: {} })), "echo");
});

row("typescript:hosting:entry:dual-era-one-factory", [BOTH], async (use) => {
  const eras = [];
  const place = use.place(({ era }) => made((server) => server.registerTool("era", {}, () => text(era))));
  for (const options of [{}, { versionNegotiation: { mode: "auto" } }]) {
    const host = use.host(options);
    const { transport } = await use.connect(host, place, { streams: false });
    const [first] = posted(transport);
    eras.push([first.method, textOf(await host.callTool({ name: "era", arguments: {} }))]);
  }
  assert.deepEqual(eras, [
    ["initialize", "legacy"],
    ["server/discover", "modern"],
  ]);
});

row("typescript:hosting:entry:pin-negotiation", [MODERN], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo));
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: {} })), "echo");
  const methods = posted(transport).map(({ method }) => method);
  assert.equal(methods[0], "server/discover");
  assert.ok(!methods.includes("initialize"));
});

row("typescript:hosting:entry:strict-rejects-legacy", [MODERN], async (use) => {
  const { url } = use.place(() => made(echo));
  const host = use.host({ versionNegotiation: { mode: "legacy" } });
  await refused(use.join(host, new StreamableHTTPClientTransport(new URL(url))));
});

row("typescript:hosting:entry:no-session-id", [BOTH, MODERN], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo));
  await host.callTool({ name: "echo", arguments: {} });
  for (const { sent, received } of transport.noted.items) {
    assert.equal(sent.get("mcp-session-id"), null);
    assert.equal(received.get("mcp-session-id"), null);
  }
});

row("typescript:method-string-handlers:result-type-inference", LEGACY, async (use) => {
  const host = await use.connected(() => made(echo));
  const { tools } = await host.request({ method: "tools/list" });
  assert.deepEqual(
    tools.map(({ name }) => name),
    ["echo"],
  );
});
