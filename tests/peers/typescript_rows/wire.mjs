// Rows of HTTP itself: statuses, headers, sessions and streams, as hosts put them on the wire, and what resumes a stream.

import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  PROTOCOL_VERSION_META_KEY,
  SdkHttpError,
} from "@modelcontextprotocol/client";
import { isLegacyRequest } from "@modelcontextprotocol/server";
import { z } from "zod";

import {
  BOTH,
  EVENTS,
  HTTP,
  MODERN,
  Noted,
  PIPES,
  SESSIONS,
  STATELESS,
  assert,
  inTime,
  made,
  promised,
  refused,
  row,
  text,
  textOf,
} from "./rows.mjs";
import { Entry, WithSessions } from "./servers.mjs";
import { REVISION } from "./use.mjs";

const LEGACY_REVISION = "2025-11-25";
const BOTH_TYPES = "application/json, text/event-stream";

/** What each request of 2026-07-28 says of itself. */
export const envelope = () => ({
  [PROTOCOL_VERSION_META_KEY]: REVISION,
  [CLIENT_INFO_META_KEY]: { name: "host", version: "1" },
  [CLIENT_CAPABILITIES_META_KEY]: {},
});

/** The messages of an answer, one after another: those of its events with their ids, or its document. */
export function events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const found = [];
  let left = "";
  let ended = false;
  const document = !response.headers.get("content-type")?.startsWith("text/event-stream");
  const take = (block) => {
    const fields = { data: "" };
    for (const line of block.split(/\r?\n/)) {
      const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
      if (name) fields[name] = value;
    }
    if ("id" in fields || fields.data || fields.retry)
      found.push({ ...fields, message: fields.data ? JSON.parse(fields.data) : undefined });
  };
  async function next() {
    while (!found.length && !ended) {
      const { value, done } = await inTime(reader.read(), "an event");
      ended = done;
      left += value ?? "";
      if (document && done && left) found.push({ message: JSON.parse(left) });
      if (document) continue;
      const blocks = left.split(/\r?\n\r?\n/);
      left = blocks.pop();
      blocks.forEach(take);
    }
    return found.shift();
  }
  return {
    next,
    async all() {
      const every = [];
      for (let each = await next(); each; each = await next()) every.push(each);
      return every;
    },
    /** The first with a message that this is true of. */
    async first(wanted) {
      for (let each = await next(); each; each = await next()) if (each.message && wanted(each.message)) return each;
      throw new Error("the stream ended before");
    },
    cancel: () => reader.cancel().catch(() => {}),
  };
}

/** A host that writes its requests itself. */
class Raw {
  constructor(use, url) {
    this.url = url;
    this.headers = { "MCP-Protocol-Version": LEGACY_REVISION };
    this.gone = new AbortController();
    use.ends(() => this.gone.abort());
  }

  send(method, { body, headers = {}, signal } = {}) {
    const type = body === undefined ? {} : { "Content-Type": "application/json" };
    return inTime(
      fetch(this.url, {
        method,
        body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
        headers: { Accept: BOTH_TYPES, ...type, ...this.headers, ...headers },
        signal: signal ?? this.gone.signal,
      }),
      `the answer to ${method}`,
    );
  }

  request(id, method, params = {}, more = {}) {
    return this.send("POST", { body: { jsonrpc: "2.0", id, method, params }, ...more });
  }

  call(id, name, { params, ...more } = {}) {
    return this.request(id, "tools/call", { name, arguments: {}, ...params }, more);
  }

  get(headers) {
    return this.send("GET", { headers: { Accept: "text/event-stream", ...headers } });
  }

  async initialize(capabilities = {}, protocolVersion = LEGACY_REVISION) {
    const params = { protocolVersion, capabilities, clientInfo: { name: "host", version: "1" } };
    const { headers } = this;
    this.headers = {};
    const response = await this.request("init", "initialize", params);
    this.headers = headers;
    const session = response.headers.get("mcp-session-id");
    const first = await events(response).next();
    if (session) this.headers["Mcp-Session-Id"] = session;
    await this.send("POST", { body: { jsonrpc: "2.0", method: "notifications/initialized" } });
    return { response, session, message: first?.message };
  }
}

const echo = (server) =>
  server.registerTool("echo", { inputSchema: z.object({ word: z.string().optional() }) }, ({ word }) =>
    text(word ?? "echo"),
  );

async function raw(use, factory = () => made(echo), options = undefined, capabilities = {}) {
  const place = use.place(factory, options);
  const host = new Raw(use, place.url);
  const begun = await host.initialize(capabilities);
  return { host, place, ...begun };
}

const status = async (promise) => {
  const response = await promise;
  await response.body?.cancel();
  return response.status;
};

row("hosting:session:create", [SESSIONS], async (use) => {
  const { response, session, message } = await raw(use);
  assert.equal(response.status, 200);
  assert.ok(session);
  assert.equal(message.result.serverInfo.name, "server");
});

row("hosting:session:id-charset", [SESSIONS], async (use) => {
  assert.match((await raw(use)).session, /^[\x21-\x7e]+$/);
});

row("hosting:session:missing-id", [SESSIONS], async (use) => {
  const { host } = await raw(use);
  delete host.headers["Mcp-Session-Id"];
  assert.equal(await status(host.request(1, "tools/list")), 400);
});

row("hosting:session:unknown-id", [SESSIONS], async (use) => {
  const { host } = await raw(use);
  host.headers["Mcp-Session-Id"] = "00000000-0000-4000-8000-000000000000";
  assert.equal(await status(host.request(1, "tools/list")), 404);
  assert.equal(await status(host.get()), 404);
  assert.equal(await status(host.send("DELETE")), 404);
});

row("hosting:session:reuse", [SESSIONS], async (use) => {
  const set = (server) => {
    let count = 0;
    server.registerTool("count", {}, () => text(`${(count += 1)}`));
  };
  const { host } = await raw(use, () => made(set));
  for (const wanted of ["1", "2", "3"]) {
    const { message } = await events(await host.call(wanted, "count")).first(({ id }) => id === wanted);
    assert.equal(textOf(message.result), wanted);
  }
});

row("hosting:session:reinitialize", [SESSIONS], async (use) => {
  const { host } = await raw(use);
  const params = { protocolVersion: LEGACY_REVISION, capabilities: {}, clientInfo: { name: "host", version: "1" } };
  assert.equal(await status(host.request(2, "initialize", params)), 400);
});

row(["hosting:session:delete", "hosting:session:post-termination-404"], [SESSIONS], async (use) => {
  const { host } = await raw(use);
  assert.ok([200, 204].includes(await status(host.send("DELETE"))));
  assert.equal(await status(host.request(1, "tools/list")), 404);
  assert.equal(await status(host.get()), 404);
});

row("hosting:session:delete-cancels-inflight", [SESSIONS], async (use) => {
  const begun = new Noted();
  const stopped = new Noted();
  const set = (server) =>
    server.registerTool("wait", {}, async ({ mcpReq }) => {
      begun.push("begun");
      await inTime(new Promise((resolve) => mcpReq.signal.addEventListener("abort", resolve)), "the end");
      stopped.push("stopped");
      return text("too late");
    });
  const { host } = await raw(use, () => made(set));
  // The answer may begin at once or at its end.
  const told = host.call(1, "wait").then((response) => events(response).all());
  told.catch(() => {});
  await begun.atLeast(1, "call");
  await status(host.send("DELETE"));
  await stopped.atLeast(1, "end of the handler");
  const answers = (await told).filter(({ message }) => message?.id === 1);
  assert.deepEqual(answers, []);
});

row("hosting:session:isolation", [SESSIONS], async (use) => {
  const set = (server) => {
    let count = 0;
    server.registerTool("count", {}, () => text(`${(count += 1)}`));
  };
  const { host, place } = await raw(use, () => made(set));
  const second = new Raw(use, place.url);
  await second.initialize();
  assert.notEqual(host.headers["Mcp-Session-Id"], second.headers["Mcp-Session-Id"]);
  await status(host.call(1, "count"));
  await status(host.send("DELETE"));
  const { message } = await events(await second.call(1, "count")).first(({ id }) => id === 1);
  assert.equal(textOf(message.result), "1");
});

row("hosting:session:lifecycle-callbacks", [SESSIONS], async (use) => {
  const heard = new Noted();
  const options = { onsessioninitialized: () => heard.push("opened"), onsessionclosed: () => heard.push("closed") };
  const { host } = await raw(use, undefined, options);
  await status(host.send("DELETE"));
  await heard.first((each) => each === "closed", "the end of the session");
});

row("flow:session:terminate-then-reconnect", [SESSIONS], async (use) => {
  const { host, place, transport } = await use.connect(use.host(), () => made(echo));
  const first = transport.sessionId;
  await transport.terminateSession();
  assert.equal(transport.sessionId, undefined);
  await host.close();
  const again = use.host();
  const { transport: second } = await use.connect(again, place);
  assert.notEqual(second.sessionId, first);
  assert.equal(textOf(await again.callTool({ name: "echo", arguments: {} })), "echo");
});

row("client-transport:http:terminate-405-ok", [SESSIONS], async (use) => {
  const place = use.place(() => made(echo));
  const { fetch: served } = place;
  place.fetch = (request) => {
    return request.method === "DELETE"
      ? Promise.resolve(new Response(null, { status: 405 }))
      : served.call(place, request);
  };
  const { transport } = await use.connect(use.host(), place);
  await transport.terminateSession();
});

row("hosting:stateless:no-session-id", [STATELESS, BOTH], async (use) => {
  const { host, session } = await raw(use);
  assert.equal(session, null);
  assert.equal(await status(host.request(1, "tools/list", {}, { headers: { "Mcp-Session-Id": "of nobody" } })), 200);
});

row("hosting:stateless:concurrent-clients", [STATELESS, BOTH], async (use) => {
  const place = use.place(() => made(echo));
  const words = await Promise.all(
    ["a", "b", "c"].map(async (word) => {
      const { host } = await use.connect(use.host(), place);
      return textOf(await host.callTool({ name: "echo", arguments: { word } }));
    }),
  );
  assert.deepEqual(words, ["a", "b", "c"]);
});

row("hosting:stateless:get-delete-405", [STATELESS, BOTH], async (use) => {
  const { host } = await raw(use);
  assert.equal(await status(host.get()), 405);
  assert.equal(await status(host.send("DELETE")), 405);
});

row("typescript:hosting:entry:method-405", [BOTH, MODERN], async (use) => {
  const host = new Raw(use, use.place(() => made(echo)).url);
  if (use.modern) host.headers["MCP-Protocol-Version"] = REVISION;
  for (const method of ["GET", "DELETE", "PUT", "PATCH"]) assert.equal(await status(host.send(method)), 405, method);
});

row("hosting:http:method-405", [SESSIONS, STATELESS], async (use) => {
  const { host } = await raw(use);
  for (const method of ["PUT", "PATCH"]) assert.equal(await status(host.send(method, { body: "{}" })), 405, method);
});

for (const [id, parts] of [
  ["hosting:http:accept-406", [SESSIONS, STATELESS]],
  ["typescript:hosting:entry:legacy-accept-406", [BOTH]],
]) {
  row(id, parts, async (use) => {
    const { host } = await raw(use);
    for (const Accept of ["application/json", "text/event-stream", "text/html"]) {
      assert.equal(await status(host.request(1, "tools/list", {}, { headers: { Accept } })), 406, Accept);
    }
  });
}

for (const [id, parts] of [
  ["hosting:http:content-type-415", [SESSIONS, STATELESS]],
  ["typescript:hosting:entry:legacy-content-type-415", [BOTH]],
]) {
  row(id, parts, async (use) => {
    const { host } = await raw(use);
    assert.equal(await status(host.request(1, "tools/list", {}, { headers: { "Content-Type": "text/plain" } })), 415);
  });
}

for (const [id, parts] of [
  ["hosting:http:parse-error-400", [SESSIONS, STATELESS]],
  ["typescript:hosting:entry:parse-error-400", [BOTH, MODERN]],
]) {
  row(id, parts, async (use) => {
    const host = new Raw(use, use.place(() => made(echo)).url);
    if (use.modern) Object.assign(host.headers, { "MCP-Protocol-Version": REVISION, "Mcp-Method": "tools/list" });
    else await host.initialize();
    const response = await host.send("POST", { body: "{ not JSON" });
    assert.equal(response.status, 400);
    assert.equal((await response.json()).error.code, -32700);
  });
}

row("hosting:http:parse-error-400 (no JSON-RPC)", [SESSIONS, STATELESS], async (use) => {
  const { host } = await raw(use);
  assert.equal(await status(host.send("POST", { body: { hello: "world" } })), 400);
});

for (const [id, parts] of [
  ["hosting:http:protocol-version-400", [SESSIONS, STATELESS]],
  ["typescript:hosting:entry:legacy-protocol-version-header-400", [BOTH]],
]) {
  row(id, parts, async (use) => {
    const { host } = await raw(use);
    const headers = { "MCP-Protocol-Version": "1999-12-31" };
    const response = await host.request(1, "tools/list", {}, { headers });
    assert.equal(response.status, 400);
    const told = await response.text();
    if (use.part === BOTH) assert.match(told, /2025-11-25/);
  });
}

for (const [id, parts] of [
  ["hosting:http:protocol-version-default", [SESSIONS, STATELESS]],
  ["typescript:hosting:entry:legacy-protocol-version-default", [BOTH]],
]) {
  row(id, parts, async (use) => {
    const { host } = await raw(use);
    delete host.headers["MCP-Protocol-Version"];
    const { message } = await events(await host.request(1, "tools/list")).first((each) => each.id === 1);
    assert.equal(message.result.tools[0].name, "echo");
  });
}

for (const [id, parts] of [
  ["hosting:http:notifications-202", [SESSIONS, STATELESS]],
  ["typescript:hosting:entry:notification-202", [BOTH, MODERN]],
]) {
  row(id, parts, async (use) => {
    const host = new Raw(use, use.place(() => made(echo)).url);
    let params = {};
    if (use.modern) {
      host.headers = { "MCP-Protocol-Version": REVISION };
      params = { requestId: 9, _meta: envelope() };
    } else await host.initialize();
    const body = {
      jsonrpc: "2.0",
      method: use.modern ? "notifications/cancelled" : "notifications/roots/list_changed",
      params,
    };
    const response = await host.send("POST", { body });
    assert.deepEqual([response.status, await response.text()], [202, ""]);
  });
}

row("hosting:http:notifications-202 (a response)", [SESSIONS], async (use) => {
  const { host } = await raw(use);
  const response = await host.send("POST", { body: { jsonrpc: "2.0", id: 99, result: {} } });
  assert.deepEqual([response.status, await response.text()], [202, ""]);
});

row("hosting:http:batch", [SESSIONS, STATELESS], async (use) => {
  const host = new Raw(use, use.place(() => made(echo)).url);
  host.headers = {};
  await host.initialize({}, "2025-03-26");
  const body = [1, 2].map((id) => ({ jsonrpc: "2.0", id, method: "tools/list", params: {} }));
  const response = await host.send("POST", { body });
  assert.equal(response.status, 200);
  const told = (await events(response).all()).flatMap(({ message }) => message ?? []);
  assert.deepEqual(told.map(({ id }) => id).sort(), [1, 2]);
});

row("hosting:http:json-response-mode", [SESSIONS, STATELESS], async (use) => {
  const { host } = await raw(use, undefined, { enableJsonResponse: true });
  const response = await host.call(1, "echo");
  assert.match(response.headers.get("content-type"), /^application\/json/);
  assert.equal(textOf((await response.json()).result), "echo");
});

row("client-transport:http:json-response-parsed", [SESSIONS, STATELESS], async (use) => {
  const { host } = await use.connect(use.host(), () => made(echo), { options: { enableJsonResponse: true } });
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: { word: "plain" } })), "plain");
});

/** A tool that logs a line in its own stream, one in the stream of the session, and then waits. */
function talkTool(open = Promise.resolve()) {
  return (server) =>
    server.registerTool("talk", {}, async (ctx) => {
      await ctx.mcpReq.log("info", "in the call");
      await server.sendLoggingMessage({ level: "info", data: "beside the call" });
      await inTime(open, "the end of the talk");
      return text("said");
    });
}

const logs = { capabilities: { logging: {} } };
const QUESTION = { mode: "form", message: "Sure?", requestedSchema: { type: "object", properties: {} } };
const dataOf = ({ message }) => message?.params?.data;

row(
  ["hosting:http:no-broadcast", "hosting:http:response-same-connection", "hosting:http:standalone-sse-no-response"],
  [SESSIONS],
  async (use) => {
    const { host, place } = await raw(use, () => made(talkTool(), logs));
    const stream = events(await host.get());
    await place.heard.first(({ method }) => method === "GET", "a GET stream");
    const own = await events(await host.call("one", "talk")).all();
    const beside = [];
    do beside.push(await stream.next());
    while (dataOf(beside.at(-1)) !== "beside the call");
    assert.deepEqual(own.map(dataOf).filter(Boolean), ["in the call"]);
    assert.deepEqual(
      own.filter(({ message }) => message?.result).map(({ message }) => message.id),
      ["one"],
    );
    assert.deepEqual(beside.map(dataOf).filter(Boolean), ["beside the call"]);
    assert.ok(!beside.some(({ message }) => message?.result));
    await stream.cancel();
  },
);

row("hosting:http:sse-close-after-response", [SESSIONS, STATELESS], async (use) => {
  const { host } = await raw(use, () => made(talkTool(), logs));
  const told = await events(await host.call("one", "talk")).all();
  assert.equal(told.at(-1).message.id, "one");
});

row("hosting:http:standalone-sse", [SESSIONS], async (use) => {
  const set = (server) => {
    echo(server);
    server.registerTool("grow", {}, () => {
      server.registerTool("second", {}, () => text(""));
      return text("");
    });
  };
  const { host, place } = await raw(use, () => made(set));
  const response = await host.get();
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const stream = events(response);
  await place.heard.first(({ method }) => method === "GET", "a GET stream");
  await status(host.call(1, "grow"));
  await stream.first(({ method }) => method === "notifications/tools/list_changed");
  await stream.cancel();
});

row("hosting:http:second-sse-rejected", [SESSIONS], async (use) => {
  const { host } = await raw(use);
  const first = await host.get();
  assert.equal(first.status, 200);
  assert.equal(await status(host.get()), 409);
  await first.body.cancel();
});

row("hosting:http:send-no-listener-noop", [SESSIONS], async (use) => {
  const { host } = await raw(use, () => made(talkTool(), logs));
  const { message } = await events(await host.call(1, "talk")).first(({ id }) => id === 1);
  assert.equal(textOf(message.result), "said");
});

row("hosting:http:disconnect-not-cancel", [SESSIONS], async (use) => {
  const open = promised();
  const begun = new Noted();
  const ended = new Noted();
  const set = (server) =>
    server.registerTool("slow", {}, async ({ mcpReq }) => {
      await mcpReq.log("info", "begun");
      begun.push("begun");
      await inTime(open, "the end");
      ended.push(mcpReq.signal.aborted);
      return text("");
    });
  const { host } = await raw(use, () => made(set, logs));
  const gone = new AbortController();
  await host.call(1, "slow", { signal: gone.signal });
  await begun.atLeast(1, "call");
  gone.abort();
  await status(host.request(2, "tools/list"));
  open.resolve();
  await ended.atLeast(1, "end");
  assert.deepEqual(ended.items, [false]);
});

row("hosting:http:dns-rebinding", [SESSIONS], async (use) => {
  const protection = { enableDnsRebindingProtection: true, allowedOrigins: ["http://good.example.com"] };
  const { host } = await raw(use, undefined, protection);
  const headers = { Origin: "http://evil.example.com" };
  assert.equal(await status(host.request(1, "tools/list", {}, { headers })), 403);
  assert.equal(await status(host.request(1, "tools/list")), 200);
});

// Streams that are resumed.

/** An event store: the events of each stream in their order. */
class Store {
  stored = [];

  async storeEvent(streamId, message) {
    this.stored.push({ streamId, message });
    return `${streamId}/${this.stored.length}`;
  }

  async getStreamIdForEventId(eventId) {
    return eventId.slice(0, eventId.lastIndexOf("/"));
  }

  async replayEventsAfter(lastEventId, { send }) {
    const streamId = await this.getStreamIdForEventId(lastEventId);
    const after = Number(lastEventId.slice(lastEventId.lastIndexOf("/") + 1));
    for (const [at, each] of this.stored.entries()) {
      if (at >= after && each.streamId === streamId) await send(`${streamId}/${at + 1}`, each.message);
    }
    return streamId;
  }
}

/** A session with a server that stores its events; its tool logs `a`, waits, logs `b` and ends. */
async function resumable(use, options = {}) {
  const open = promised();
  const begun = new Noted();
  const set = (server) => {
    server.registerTool("slow", {}, async (ctx) => {
      await ctx.mcpReq.log("info", "a");
      begun.push("begun");
      await inTime(open, "the end");
      await ctx.mcpReq.log("info", "b");
      return text("slowly");
    });
    server.registerTool("tell", {}, async () => {
      for (const data of ["x", "y"]) await server.sendLoggingMessage({ level: "info", data });
      return text("");
    });
    server.registerTool("close", {}, (ctx) => {
      ctx.http?.closeSSE?.();
      return text("closed before");
    });
  };
  const session = await raw(use, () => made(set, logs), { eventStore: new Store(), ...options });
  return { ...session, open, begun };
}

row("hosting:resume:event-ids", [SESSIONS], async (use) => {
  const { host, open } = await resumable(use);
  open.resolve();
  const told = await events(await host.call(1, "slow")).all();
  const ids = told.map(({ id }) => id);
  assert.ok(ids.every(Boolean), JSON.stringify(told));
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual(told.map(dataOf).filter(Boolean), ["a", "b"]);
});

row("hosting:resume:priming", [SESSIONS], async (use) => {
  const { host, open } = await resumable(use, { retryInterval: 1234 });
  open.resolve();
  const [first] = await events(await host.call(1, "slow")).all();
  assert.ok(first.id);
  assert.equal(first.message, undefined);
  assert.equal(first.retry, "1234");
});

row("hosting:resume:priming (without the interval)", [SESSIONS], async (use) => {
  const { host, open } = await resumable(use);
  open.resolve();
  const [first] = await events(await host.call(1, "slow")).all();
  assert.ok(first.id);
  assert.equal(first.message, undefined);
});

row("hosting:resume:replay", [SESSIONS], async (use) => {
  const { host, open } = await resumable(use);
  open.resolve();
  const told = await events(await host.call(1, "slow")).all();
  const after = told.findIndex((each) => dataOf(each) === "a");
  const again = events(await host.get({ "Last-Event-ID": told[after].id }));
  const { message } = await again.first(({ result }) => result);
  assert.deepEqual([message.id, textOf(message.result)], [1, "slowly"]);
  await again.cancel();
});

row("hosting:resume:stream-scoped", [SESSIONS], async (use) => {
  const { host, open } = await resumable(use);
  open.resolve();
  const told = await events(await host.call(1, "slow")).all();
  await events(await host.call(2, "slow")).all();
  const again = events(await host.get({ "Last-Event-ID": told[0].id }));
  const seen = [];
  do seen.push(await again.next());
  while (!seen.at(-1).message?.result);
  assert.deepEqual(seen.map(dataOf).filter(Boolean), ["a", "b"]);
  assert.equal(seen.at(-1).message.id, 1);
  await again.cancel();
});

row("hosting:resume:buffered-replay", [SESSIONS], async (use) => {
  const { host, place } = await resumable(use);
  const stream = events(await host.get());
  await place.heard.first(({ method }) => method === "GET", "a GET stream");
  await status(host.call(1, "tell"));
  const x = await stream.first(({ params }) => params?.data === "x");
  await stream.first(({ params }) => params?.data === "y");
  await stream.cancel();
  await status(host.call(2, "tell"));
  const again = events(await host.get({ "Last-Event-ID": x.id }));
  const seen = [];
  for (let count = 0; count < 3; count += 1) seen.push(dataOf(await again.first(({ params }) => params?.data)));
  assert.deepEqual(seen, ["y", "x", "y"]);
  await again.cancel();
});

row("typescript:hosting:resume:bad-event-id", [SESSIONS], async (use) => {
  const store = new Store();
  store.getStreamIdForEventId = async (eventId) => (eventId.includes("/") ? eventId.split("/")[0] : undefined);
  const { host } = await resumable(use, { eventStore: store });
  assert.equal(await status(host.get({ "Last-Event-ID": "of nobody" })), 400);
});

row("hosting:resume:close-stream", [SESSIONS], async (use) => {
  const { host } = await resumable(use);
  const told = await events(await host.call(1, "close")).all();
  const id = told.at(-1)?.id;
  const result = told.find(({ message }) => message?.result)?.message;
  if (result) return assert.equal(textOf(result.result), "closed before");
  const again = events(await host.get({ "Last-Event-ID": id }));
  const { message } = await again.first((each) => each.result);
  assert.equal(textOf(message.result), "closed before");
  await again.cancel();
});

/** A fetch that loses the connection of each answer that `chosen` is true of, once `gone` is resolved. */
function cut(chosen, gone) {
  return async (url, init) => {
    const response = await fetch(url, init);
    if (!chosen(init)) return response;
    const reader = response.body.getReader();
    const body = new ReadableStream({
      async pull(controller) {
        const { value, done, lost } = await Promise.race([reader.read(), gone.then(() => ({ lost: true }))]);
        if (value) controller.enqueue(value);
        else if (done) controller.close();
        else if (lost) {
          await reader.cancel();
          controller.error(new Error("the network is gone"));
        }
      },
    });
    return new Response(body, response);
  };
}

row(
  ["flow:resume:tool-call-resumption-token", "client-transport:http:reconnect-post-priming"],
  [SESSIONS],
  async (use) => {
    const open = promised();
    const lines = new Noted();
    const tokens = new Noted();
    const gone = promised();
    const set = (server) =>
      server.registerTool("slow", {}, async (ctx) => {
        await ctx.mcpReq.log("info", "a");
        await inTime(open, "the end");
        await ctx.mcpReq.log("info", "b");
        return text("slowly");
      });
    const place = use.place(() => made(set, logs), { eventStore: new Store() });
    const lossy = cut((init) => init.body?.includes('"tools/call"'), gone);
    const host = use.host();
    host.setNotificationHandler("notifications/message", ({ params }) => lines.push(params.data));
    const reconnectionOptions = {
      initialReconnectionDelay: 20,
      maxReconnectionDelay: 100,
      reconnectionDelayGrowFactor: 1,
      maxRetries: 5,
    };
    await use.connect(host, place, { fetch: lossy, reconnectionOptions });
    const called = host.callTool({ name: "slow", arguments: {} }, { onresumptiontoken: tokens.push });
    await lines.atLeast(1, "line");
    await tokens.atLeast(1, "token");
    gone.resolve();
    open.resolve();
    assert.equal(textOf(await inTime(called, "the result")), "slowly");
    assert.deepEqual(lines.items, ["a", "b"]);
  },
);

row("client-transport:http:resume-stream-api", [SESSIONS], async (use) => {
  const tokens = new Noted();
  const lines = new Noted();
  const set = (server) =>
    server.registerTool("tell", {}, async (ctx) => {
      for (const data of ["a", "b"]) await ctx.mcpReq.log("info", data);
      return text("told");
    });
  const host = use.host();
  host.setNotificationHandler("notifications/message", ({ params }) => lines.push(params.data));
  const { transport } = await use.connect(host, () => made(set, logs), { options: { eventStore: new Store() } });
  await host.callTool({ name: "tell", arguments: {} }, { onresumptiontoken: tokens.push });
  await tokens.atLeast(2, "token");
  lines.items.length = 0;
  await transport.resumeStream(tokens.items[0], {});
  await lines.first((each) => each === "b", "the line that was missed");
  const resumed = transport.noted.items.filter(({ sent }) => sent.get("last-event-id") === tokens.items[0]);
  assert.equal(resumed[0].sent.get("mcp-session-id"), transport.sessionId);
});

// What the host's transport does before such a server.

row("client-transport:http:accept-header-post", HTTP, async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo));
  await host.listTools();
  for (const { sent } of transport.noted.items.filter(({ method }) => method === "POST")) {
    assert.match(sent.get("accept"), /application\/json.*text\/event-stream/);
  }
});

row("client-transport:http:accept-header-get", [SESSIONS], async (use) => {
  const { transport } = await use.connect(use.host(), () => made(echo));
  const { sent, status: answered } = transport.noted.items.find(({ method }) => method === "GET");
  assert.match(sent.get("accept"), /text\/event-stream/);
  assert.equal(answered, 200);
});

row(
  ["client-transport:http:session-stored", "typescript:client-transport:http:session-id-property"],
  [SESSIONS],
  async (use) => {
    const { host, transport } = await use.connect(use.host(), () => made(echo));
    await host.listTools();
    const [first, ...later] = transport.noted.items;
    assert.equal(transport.sessionId, first.received.get("mcp-session-id"));
    for (const { sent } of later) assert.equal(sent.get("mcp-session-id"), transport.sessionId);
  },
);

row(
  ["client-transport:http:protocol-version-header", "typescript:client-transport:http:protocol-version-stored"],
  HTTP,
  async (use) => {
    const { host, transport } = await use.connect(use.host(), () => made(echo));
    await host.listTools();
    const revision = use.modern ? REVISION : LEGACY_REVISION;
    assert.equal(transport.protocolVersion ?? transport._protocolVersion, revision);
    for (const { sent } of transport.noted.items.slice(1)) assert.equal(sent.get("mcp-protocol-version"), revision);
  },
);

row("client-transport:http:custom-headers", HTTP, async (use) => {
  const requestInit = { headers: { "X-Of-The-Host": "words" } };
  const { host, transport } = await use.connect(use.host(), () => made(echo), { requestInit });
  await host.listTools();
  for (const { sent } of transport.noted.items) assert.equal(sent.get("x-of-the-host"), "words");
});

row("client-transport:http:concurrent-streams", [SESSIONS, STATELESS], async (use) => {
  const { host } = await use.connect(use.host(), () => made(echo));
  const words = Array.from({ length: 20 }, (_, at) => `word ${at}`);
  const told = await Promise.all(words.map((word) => host.callTool({ name: "echo", arguments: { word } })));
  assert.deepEqual(told.map(textOf), words);
});

row("client-transport:http:sse-405-tolerated", [STATELESS, BOTH], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo));
  assert.equal(transport.noted.items.find(({ method }) => method === "GET").status, 405);
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: {} })), "echo");
});

row("client-transport:http:404-surfaces", [SESSIONS], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo));
  const other = new Raw(use, use.place(() => made(echo)).url);
  other.url = transport.noted.items.length ? host.transport._url : other.url;
  other.headers["Mcp-Session-Id"] = transport.sessionId;
  await status(other.send("DELETE"));
  const error = await refused(host.listTools());
  assert.ok(error instanceof SdkHttpError, `${error}`);
  assert.equal(error.status, 404);
});

row(["client-transport:http:error-status-code", "errors:http:sdkhttperror-status"], [SESSIONS], async (use) => {
  const place = use.place(() => made(echo));
  const url = new URL(place.url);
  url.pathname = "/none/of/these";
  const error = await refused(use.join(use.host(), use.transport({ ...place, url: url.href })));
  assert.ok(error instanceof SdkHttpError, `${error}`);
  assert.equal(error.status, 404);
});

row("typescript:client-transport:http:session-id-option", [SESSIONS], async (use) => {
  const { transport, place } = await use.connect(use.host(), () => made(echo));
  const second = use.transport(place, { sessionId: transport.sessionId });
  const heard = new Noted();
  second.onmessage = heard.push;
  use.ends(() => second.close());
  await second.start();
  second.setProtocolVersion(LEGACY_REVISION);
  await second.send({ jsonrpc: "2.0", id: "again", method: "tools/list", params: {} });
  const { result } = await heard.first(({ id }) => id === "again", "an answer");
  assert.equal(result.tools[0].name, "echo");
  assert.equal(second.noted.items[0].sent.get("mcp-session-id"), transport.sessionId);
});

row("client-transport:http:no-reconnect-after-response", [SESSIONS], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(echo), { options: { eventStore: new Store() } });
  await host.callTool({ name: "echo", arguments: {} });
  await host.listTools();
  assert.equal(transport.noted.items.filter(({ method }) => method === "GET").length, 1);
});

row(
  ["client-transport:http:reconnect-get", "client-transport:http:reconnection-scheduler"],
  [SESSIONS],
  async (use) => {
    const lines = new Noted();
    const gone = promised();
    let gets = 0;
    const set = (server) =>
      server.registerTool("tell", {}, async () => {
        await server.sendLoggingMessage({ level: "info", data: "beside" });
        return text("");
      });
    const place = use.place(() => made(set, logs), { eventStore: new Store() });
    const lossy = cut(({ method }) => method === "GET" && (gets += 1) === 1, gone);
    const host = use.host();
    host.setNotificationHandler("notifications/message", ({ params }) => lines.push(params.data));
    const scheduled = [];
    const reconnectionScheduler = (reconnect, delay, attempt) => {
      scheduled.push([typeof delay, attempt]);
      reconnect();
    };
    const { transport } = await use.connect(host, place, { fetch: lossy, reconnectionScheduler });
    await host.callTool({ name: "tell", arguments: {} });
    await lines.atLeast(1, "line");
    gone.resolve();
    await transport.noted.first(({ sent }) => sent.get("last-event-id"), "the stream again");
    await host.callTool({ name: "tell", arguments: {} });
    await lines.atLeast(2, "line");
    assert.deepEqual(lines.items, ["beside", "beside"]);
    assert.deepEqual(scheduled[0], ["number", 0]);
  },
);

// The SDK's entry of 2026-07-28.

const modernHeaders = (method, name) => ({
  "MCP-Protocol-Version": REVISION,
  "Mcp-Method": method,
  ...(name && { "Mcp-Name": name }),
});

function modernCall(use, set, options, { name = "talk", headers = {}, meta = {} } = {}) {
  const host = new Raw(use, use.place(() => made(set, logs), options).url);
  host.headers = { ...modernHeaders("tools/call", name), ...headers };
  return host.call(1, name, { params: { _meta: { ...envelope(), ...meta } } });
}

const DEBUG = { meta: { "io.modelcontextprotocol/logLevel": "debug" } };
const chatTool = (server) =>
  server.registerTool("talk", {}, async (ctx) => {
    for (const data of ["a", "b"]) await ctx.mcpReq.log("info", data);
    return text("said");
  });

row("typescript:hosting:entry:modern-lazy-sse-upgrade", [MODERN], async (use) => {
  const plain = await modernCall(use, echo, {}, { name: "echo" });
  assert.match(plain.headers.get("content-type"), /^application\/json/);
  assert.equal(textOf((await plain.json()).result), "echo");
  const streamed = await modernCall(use, chatTool, {}, DEBUG);
  assert.match(streamed.headers.get("content-type"), /^text\/event-stream/);
  const told = await events(streamed).all();
  assert.deepEqual(
    told.map((each) => dataOf(each) ?? textOf(each.message.result)),
    ["a", "b", "said"],
  );
});

row("typescript:hosting:entry:modern-response-mode (sse)", [MODERN], async (use) => {
  const response = await modernCall(use, echo, { responseMode: "sse" }, { name: "echo" });
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
});

row("typescript:hosting:entry:modern-response-mode (json)", [MODERN], async (use) => {
  const response = await modernCall(use, chatTool, { responseMode: "json" }, DEBUG);
  assert.match(response.headers.get("content-type"), /^application\/json/);
  assert.equal(textOf((await response.json()).result), "said");
});

row("sep-2243:std-header:mismatch-rejected", [MODERN], async (use) => {
  const response = await modernCall(use, echo, {}, { name: "echo", headers: { "Mcp-Method": "tools/list" } });
  assert.equal(response.status, 400);
  assert.equal((await response.json()).error.code, -32020);
});

row("typescript:hosting:entry:byo-sessionful-legacy", [BOTH], async (use) => {
  const set = ({ era }) =>
    made((server) => {
      server.registerTool("era", {}, () => text(era));
      server.registerTool("ask", {}, async (ctx) => text((await ctx.mcpReq.elicitInput(QUESTION)).action));
    });
  const strict = new Entry(set, { legacy: "reject", keepAliveMs: 0 });
  const place = use.mount(new WithSessions(set));
  const { fetch: served } = place;
  place.fetch = async (request) =>
    (await isLegacyRequest(request.clone())) ? served.call(place, request) : strict.fetch(request);
  const modern = use.host({ versionNegotiation: { mode: "auto" } });
  await use.connect(modern, place, { streams: false });
  const legacy = use.host({ capabilities: { elicitation: { form: {} } } });
  legacy.setRequestHandler("elicitation/create", () => ({ action: "decline" }));
  const { transport } = await use.connect(legacy, place);
  assert.ok(transport.sessionId);
  const call = async (host, name) => textOf(await host.callTool({ name, arguments: {} }));
  assert.deepEqual([await call(modern, "era"), await call(legacy, "era")], ["modern", "legacy"]);
  assert.equal(await call(legacy, "ask"), "decline");
  const other = new Raw(use, place.url);
  other.headers["Mcp-Session-Id"] = transport.sessionId;
  await status(other.send("DELETE"));
  assert.equal(await status(other.request(1, "tools/list")), 404);
});

/** A server that says of a list and of a resource how long they may be kept. */
function cached(server) {
  echo(server);
  const cacheHint = { ttlMs: 1_000, cacheScope: "public" };
  server.registerResource("one", "book://1", { cacheHint }, () => ({ contents: [{ uri: "book://1", text: "one" }] }));
}

const cacheHints = { "tools/list": { ttlMs: 2_000, cacheScope: "public" }, "resources/read": { ttlMs: 3_000 } };

row("typescript:hosting:entry:modern-cacheable-stamping", [MODERN], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(cached, { cacheHints }), { told: true });
  await host.listTools();
  await host.readResource({ uri: "book://1" });
  await host.listResources();
  const told = {};
  for (const { body, told: answer } of transport.noted.items) {
    if (body?.method) told[body.method] = JSON.parse(await answer).result;
  }
  const said = Object.entries(told).map(([method, { resultType, ttlMs, cacheScope }]) => [
    method,
    resultType,
    ttlMs,
    cacheScope,
  ]);
  assert.deepEqual(said.slice(1), [
    ["tools/list", "complete", 2_000, "public"],
    ["resources/read", "complete", 1_000, "public"],
    ["resources/list", "complete", 0, "private"],
  ]);
});

row("typescript:hosting:entry:legacy-cacheable-suppression", [BOTH], async (use) => {
  const { host, transport } = await use.connect(use.host(), () => made(cached, { cacheHints }), { told: true });
  await host.listTools();
  await host.readResource({ uri: "book://1" });
  for (const { told } of transport.noted.items) {
    assert.doesNotMatch((await told) ?? "", /resultType|ttlMs|cacheScope|cacheHint/);
  }
});

// Servers over other transports, as hosts before a gateway see them.

row("transport:sse:server-transport", [EVENTS], async (use) => {
  const { host } = await use.connect(use.host(), () => made(echo));
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: { word: "by events" } })), "by events");
});

row("transport:stdio:no-embedded-newlines", [PIPES], async (use) => {
  const { host } = await use.connect(use.host(), () => made(echo));
  const word = "first\nsecond\r\nthird\u2028fourth";
  assert.equal(textOf(await host.callTool({ name: "echo", arguments: { word } })), word);
});

row("transport:stdio:clean-shutdown", [PIPES], async (use) => {
  const closed = new Noted();
  const factory = () => {
    const server = made(echo);
    server.server.onclose = () => closed.push("closed");
    return server;
  };
  const { host, transport, place } = await use.connect(use.host(), factory);
  await host.callTool({ name: "echo", arguments: {} });
  const before = place.open.size;
  if (transport.terminateSession) await transport.terminateSession();
  await host.close();
  assert.ok(before >= 1);
  await closed.atLeast(1, "end of the program");
});

row("typescript:transport:stdio:dual-era-serving", [PIPES], async (use) => {
  const set = ({ era }) => made((server) => server.registerTool("era", {}, () => text(era)));
  const place = use.place(set, { entry: {} });
  const eras = [];
  for (const options of [{}, { versionNegotiation: { mode: "auto" } }]) {
    const { host } = await use.connect(use.host(options), place, { streams: false });
    eras.push(textOf(await host.callTool({ name: "era", arguments: {} })));
  }
  assert.deepEqual(eras, ["legacy", "modern"]);
});
