// Rows of errors, of `_meta`, and of methods and notifications that the protocol does not have.

import {
  CLIENT_CAPABILITIES_META_KEY,
  PROTOCOL_VERSION_META_KEY,
  ProtocolError,
  ProtocolErrorCode,
  SERVER_INFO_META_KEY,
  SdkError,
  SdkErrorCode,
} from "@modelcontextprotocol/client";
import { Server, ProtocolError as Thrown } from "@modelcontextprotocol/server";
import { z } from "zod";

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
  made,
  refused,
  row,
  text,
  textOf,
} from "./rows.mjs";
import { REVISION } from "./use.mjs";

/** A server on the raw class whose every tool is answered by `answer`. */
function raw(answer) {
  return () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: { tools: {} } });
    server.setRequestHandler("tools/list", () => ({ tools: [{ name: "any", inputSchema: { type: "object" } }] }));
    server.setRequestHandler("tools/call", answer);
    return server;
  };
}

const any = { name: "any", arguments: {} };

function serverThatThrows(error) {
  return raw(() => {
    throw error;
  });
}

row("protocol:error:internal-error", ALL, async (use) => {
  const host = await use.connected(serverThatThrows(new Error("it burns")));
  await refused(host.callTool(any), { code: ProtocolErrorCode.InternalError, message: /it burns/ });
});

row("protocol:error:invalid-params", ALL, async (use) => {
  const host = await use.connected(raw(() => text("")));
  const request = host.request({ method: "tools/call", params: { arguments: {} } }, z.looseObject({}));
  await refused(request, { code: ProtocolErrorCode.InvalidParams });
});

row("protocol:error:method-not-found", LEGACY, async (use) => {
  const host = await use.connected(raw(() => text("")));
  const request = host.request({ method: "com.example/none", params: {} }, z.looseObject({}));
  await refused(request, { code: ProtocolErrorCode.MethodNotFound });
});

row(["protocol:error:data-roundtrip", "errors:wire:protocolerror-invalid-params"], ALL, async (use) => {
  const data = { field: "city", tried: [1, null, { deep: "ü" }] };
  const host = await use.connected(serverThatThrows(new Thrown(ProtocolErrorCode.InvalidParams, "no such city", data)));
  const error = await refused(host.callTool(any), {
    code: ProtocolErrorCode.InvalidParams,
    message: /no such city/,
    data,
  });
  assert.ok(error instanceof ProtocolError && !(error instanceof SdkError));
});

row("protocol:error:data-roundtrip (a code of its own)", ALL, async (use) => {
  const host = await use.connected(serverThatThrows(new Thrown(4242, "closed", { until: "Monday" })));
  await refused(host.callTool(any), { code: 4242, message: /closed/, data: { until: "Monday" } });
});

row("protocol:meta:request-to-handler", ALL, async (use) => {
  const host = await use.connected(raw(({ params }) => text(JSON.stringify(params._meta ?? {}))));
  const _meta = { "com.example/a": { deep: [1, "two"] }, b: null };
  const seen = JSON.parse(textOf(await host.callTool({ ...any, _meta })));
  for (const [key, value] of Object.entries(_meta)) assert.deepEqual(seen[key], value);
});

row("protocol:meta:result-to-client", ALL, async (use) => {
  const _meta = { "com.example/a": { deep: [1, "two"] }, b: null };
  const host = await use.connected(raw(() => ({ ...text(""), _meta })));
  const { [SERVER_INFO_META_KEY]: info, ...seen } = (await host.callTool(any))._meta;
  assert.deepEqual(seen, _meta);
  assert.equal(info?.name, use.modern ? "server" : undefined);
});

row("protocol:meta:server-identity", [MODERN], async (use) => {
  const { host } = await use.connect(
    use.host(),
    raw(() => text("")),
  );
  assert.equal((await host.callTool(any))._meta[SERVER_INFO_META_KEY].name, "server");
  assert.equal(host.getServerVersion().name, "server");
});

row("protocol:envelope:client-info-optional", [MODERN], async (use) => {
  const { url } = use.place(raw(() => text("served")));
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": REVISION,
      "Mcp-Method": "tools/call",
      "Mcp-Name": "any",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { ...any, _meta: { [PROTOCOL_VERSION_META_KEY]: REVISION, [CLIENT_CAPABILITIES_META_KEY]: {} } },
    }),
  });
  assert.equal(response.status, 200);
  assert.match(await response.text(), /served/);
});

row("protocol:request-id:unique", [SESSIONS, STATELESS, BOTH], async (use) => {
  const { host, transport } = await use.connect(
    use.host(),
    raw(() => text("")),
  );
  await Promise.all([host.callTool(any), host.callTool(any), host.listTools()]);
  const ids = transport.noted.items.filter(({ body }) => body && "id" in body).map(({ body }) => body.id);
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(ids.every((each) => ["string", "number"].includes(typeof each)));
});

row("protocol:request-id:unique (at the server)", CHANNEL, async (use) => {
  const ids = [];
  const host = await use.connected(
    raw((request, ctx) => {
      ids.push(ctx.mcpReq.id);
      return text("");
    }),
  );
  await Promise.all([host.callTool(any), host.callTool(any), host.callTool(any)]);
  assert.equal(new Set(ids).size, 3);
});

row("protocol:notifications:no-response", [SESSIONS, STATELESS, BOTH], async (use) => {
  const { host, transport } = await use.connect(
    use.host(),
    raw(() => text("")),
  );
  await host.notification({ method: "notifications/cancelled", params: { requestId: 99 } });
  await host.callTool(any);
  const told = transport.noted.items.filter(({ body }) => body && !("id" in body));
  assert.deepEqual(
    told.map(({ status }) => status),
    [202, 202],
  );
});

const word = { params: z.object({ word: z.string() }), result: z.object({ length: z.number() }) };

/** A server with a method and a notification of its own. */
function ofItsOwn(heard = new Noted()) {
  return () => {
    const server = made((each) => each.registerTool("any", {}, () => text("")));
    server.server.setRequestHandler("com.example/length", word, (params) => {
      heard.push(params);
      return { length: params.word.length };
    });
    server.server.setNotificationHandler("com.example/said", { params: word.params }, heard.push);
    return server;
  };
}

row(
  ["protocol:custom-method:request", "protocol:custom-method:roundtrip", "custom-methods:server-handler:roundtrip"],
  ALL,
  async (use) => {
    const host = await use.connected(ofItsOwn());
    const result = await host.request({ method: "com.example/length", params: { word: "four" } }, word.result);
    assert.deepEqual(result, { length: 4 });
  },
);

row("custom-methods:params-validation-error", ALL, async (use) => {
  const heard = new Noted();
  const host = await use.connected(ofItsOwn(heard));
  const request = host.request({ method: "com.example/length", params: { word: 4 } }, word.result);
  await refused(request, { code: ProtocolErrorCode.InvalidParams });
  assert.deepEqual(heard.items, []);
});

row("protocol:custom-notification:roundtrip", LEGACY, async (use) => {
  const heard = new Noted();
  const host = await use.connected(ofItsOwn(heard));
  await host.notification({ method: "com.example/said", params: { word: "hello" } });
  await heard.atLeast(1, "notification");
  assert.deepEqual(heard.items, [{ word: "hello" }]);
});

row(["protocol:custom-method:notification", "custom-methods:notification-handler"], CHANNEL, async (use) => {
  const heard = new Noted();
  const host = use.host();
  host.setNotificationHandler("com.example/said", { params: word.params }, heard.push);
  const set = (server) =>
    server.registerTool("say", {}, async (ctx) => {
      await ctx.mcpReq.notify({ method: "com.example/said", params: { word: "hello" } });
      return text("");
    });
  await use.connect(host, () => made(set));
  await host.callTool({ name: "say", arguments: {} });
  await heard.atLeast(1, "notification");
  assert.deepEqual(heard.items, [{ word: "hello" }]);
});

row("protocol:fallback-notification-handler", CHANNEL, async (use) => {
  const heard = new Noted();
  const host = use.host();
  host.fallbackNotificationHandler = async ({ method, params }) => heard.push([method, params.level]);
  const set = (server) =>
    server.registerTool("say", {}, async (ctx) => {
      await ctx.mcpReq.log("info", "words");
      return text("");
    });
  await use.connect(host, () => made(set, { capabilities: { logging: {} } }));
  await host.callTool({ name: "say", arguments: {} });
  await heard.atLeast(1, "notification");
  assert.deepEqual(heard.items, [["notifications/message", "info"]]);
});

row("protocol:handler:re-register-replaces", CHANNEL, async (use) => {
  const factory = () => {
    const server = raw(() => text("first"))();
    server.setRequestHandler("tools/call", () => text("second"));
    return server;
  };
  assert.equal(textOf(await (await use.connected(factory)).callTool(any)), "second");
});

row("protocol:request-handler:override-builtin", LEGACY, async (use) => {
  const pings = new Noted();
  const factory = () => {
    const server = raw(() => text(""))();
    server.setRequestHandler("ping", () => {
      pings.push("ping");
      return { _meta: { "com.example/own": true } };
    });
    return server;
  };
  const host = await use.connected(factory);
  const result = await host.request({ method: "ping" }, z.looseObject({}));
  assert.deepEqual(result._meta, { "com.example/own": true });
});

row("mcpserver:reach-through:set-request-handler", CHANNEL, async (use) => {
  const factory = () => {
    const server = made((each) => each.registerTool("any", {}, () => text("")), { capabilities: { resources: {} } });
    server.server.setRequestHandler("resources/list", () => ({ resources: [{ uri: "book://1", name: "one" }] }));
    return server;
  };
  const host = await use.connected(factory);
  assert.deepEqual((await host.listResources()).resources, [{ uri: "book://1", name: "one" }]);
  assert.equal((await host.listTools()).tools[0].name, "any");
});

row("protocol:result-validation:invalid-result-sdkerror", ALL, async (use) => {
  const factory = () => {
    const server = raw(() => text(""))();
    server.setRequestHandler("com.example/length", { params: word.params }, () => ({ length: "four" }));
    return server;
  };
  const host = await use.connected(factory);
  const request = host.request({ method: "com.example/length", params: { word: "four" } }, word.result);
  await refused(request, { code: SdkErrorCode.InvalidResult });
});

row("typescript:protocol:error:not-connected", ALL, async (use) => {
  const { host } = await use.connect(
    use.host(),
    raw(() => text("")),
  );
  await host.callTool(any);
  await host.close();
  await refused(host.callTool(any), { message: /not connected/i });
  assert.equal(host.transport, undefined);
});

row("protocol:transport-callbacks:wrappable-after-connect", LEGACY, async (use) => {
  const heard = [];
  const { host, transport } = await use.connect(
    use.host(),
    raw(() => text("yes")),
  );
  const { onmessage } = transport;
  transport.onmessage = (message, extra) => {
    heard.push(message);
    onmessage.call(transport, message, extra);
  };
  assert.equal(textOf(await host.callTool(any)), "yes");
  assert.equal(heard.at(-1).result.content[0].text, "yes");
});

row("transport:standalone:raw-relay", LEGACY, async (use) => {
  const heard = new Noted();
  const place = use.place(raw(() => text("relayed")));
  const transport = use.transport(place);
  transport.onmessage = heard.push;
  use.ends(() => transport.close());
  await transport.start();
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "relay", version: "1" } };
  await transport.send({ jsonrpc: "2.0", id: "first", method: "initialize", params });
  await heard.first(({ id }) => id === "first", "an answer");
  await transport.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  await transport.send({ jsonrpc: "2.0", id: "second", method: "tools/call", params: any });
  const { result } = await heard.first(({ id }) => id === "second", "an answer");
  assert.equal(textOf(result), "relayed");
});

row("protocol:error:reconnect-no-stale-timers", CHANNEL, async (use) => {
  const { host, place } = await use.connect(
    use.host(),
    raw(() => text("again")),
  );
  await host.callTool(any, { timeout: 500 });
  await host.close();
  const errors = [];
  host.onerror = (error) => errors.push(error);
  await use.connect(host, place, { streams: false });
  assert.equal(textOf(await host.callTool(any)), "again");
  assert.deepEqual(errors, []);
});

row("flow:proxy:forward-tools-resources", [SESSIONS], async (use) => {
  const set = (server) => {
    server.registerTool("weather", { description: "Tells it", _meta: { "com.example/a": 1 } }, () => text("sun"));
    server.registerResource("one", "book://1", { _meta: { "com.example/b": 2 } }, () => ({ contents: [] }));
  };
  const far = await use.connected(() => made(set));
  const near = () => {
    const server = new Server({ name: "near", version: "1" }, { capabilities: { tools: {}, resources: {} } });
    server.setRequestHandler("tools/list", ({ params }) => far.listTools(params));
    server.setRequestHandler("resources/list", ({ params }) => far.listResources(params));
    server.setRequestHandler("tools/call", ({ params }) => far.callTool(params));
    return server;
  };
  const host = await use.connected(near);
  const [tool] = (await host.listTools()).tools;
  const [resource] = (await host.listResources()).resources;
  assert.deepEqual([tool.name, tool.description, tool._meta], ["weather", "Tells it", { "com.example/a": 1 }]);
  assert.deepEqual([resource.uri, resource._meta], ["book://1", { "com.example/b": 2 }]);
  assert.equal(textOf(await host.callTool({ name: "weather", arguments: {} })), "sun");
});

row("flow:multi-client:stateful-isolation", [SESSIONS], async (use) => {
  const set = (server) =>
    server.registerTool("say", { inputSchema: z.object({ word: z.string() }) }, async (given, ctx) => {
      await ctx.mcpReq.log("info", given.word);
      return text(given.word);
    });
  const place = use.place(() => made(set, { capabilities: { logging: {} } }));
  const hosts = await Promise.all(
    ["a", "b", "c"].map(async (name) => {
      const lines = [];
      const host = use.host({}, { name, version: "1" });
      host.setNotificationHandler("notifications/message", ({ params }) => lines.push(params.data));
      const { transport } = await use.connect(host, place);
      return { name, lines, host, id: transport.sessionId };
    }),
  );
  await Promise.all(hosts.map(({ host, name }) => host.callTool({ name: "say", arguments: { word: name } })));
  assert.equal(new Set(hosts.map(({ id }) => id)).size, 3);
  assert.deepEqual(
    hosts.map(({ lines }) => lines),
    [["a"], ["b"], ["c"]],
  );
});

row("mcpserver:onerror:reach-through", CHANNEL, async (use) => {
  const errors = new Noted();
  const factory = () => {
    const server = ofItsOwn()();
    server.server.onerror = errors.push;
    server.server.setNotificationHandler("notifications/roots/list_changed", () => {
      throw new Error("it burns");
    });
    return server;
  };
  const host = await use.connected(factory, { capabilities: { roots: { listChanged: true } } });
  await host.sendRootsListChanged();
  await errors.first((error) => /it burns/.test(`${error} ${error.cause}`), "an error");
});
