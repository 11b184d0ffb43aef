// Rows of what is told during a call: log lines, progress, cancellations and timeouts.

import { LOG_LEVEL_META_KEY, ProtocolErrorCode, SdkErrorCode } from "@modelcontextprotocol/client";
import { Server } from "@modelcontextprotocol/server";
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
  inTime,
  made,
  promised,
  refused,
  row,
  text,
  textOf,
} from "./rows.mjs";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const logs = { capabilities: { logging: {} } };

/** A host that notes log lines, connected to a server whose tools `set` registers. */
async function listener(use, set, options = logs) {
  const lines = new Noted();
  const host = use.host();
  host.setNotificationHandler("notifications/message", ({ params }) => lines.push(params));
  await use.connect(host, () => made(set, options));
  const meta = use.modern ? { _meta: { [LOG_LEVEL_META_KEY]: "debug" } } : {};
  return { host, lines, call: (name) => host.callTool({ name, arguments: {}, ...meta }) };
}

row("logging:message:fields", ALL, async (use) => {
  const wanted = [
    { level: "warning", logger: "books", data: { deep: [1, null, "two"] } },
    { level: "info", data: "words" },
  ];
  const set = (server) =>
    server.registerTool("tell", {}, async (ctx) => {
      for (const params of wanted) await ctx.mcpReq.notify({ method: "notifications/message", params });
      return text("told");
    });
  const { lines, call } = await listener(use, set);
  await call("tell");
  assert.deepEqual(lines.items, wanted);
});

row(["tools:call:logging-mid-execution", "mcpserver:context:log-from-handler"], ALL, async (use) => {
  const open = promised();
  const set = (server) =>
    server.registerTool("tell", {}, async (ctx) => {
      await ctx.mcpReq.log("info", "at work", "books");
      await inTime(open, "the end of the work");
      return text("told");
    });
  const { lines, call } = await listener(use, set);
  const told = call("tell");
  await lines.atLeast(1, "line");
  open.resolve();
  assert.equal(textOf(await told), "told");
  assert.deepEqual(lines.items, [{ level: "info", logger: "books", data: "at work" }]);
});

row("logging:message:all-levels", ALL, async (use) => {
  const set = (server) =>
    server.registerTool("tell", {}, async (ctx) => {
      for (const level of LEVELS)
        await ctx.mcpReq.notify({ method: "notifications/message", params: { level, data: level } });
      return text("told");
    });
  const { lines, call } = await listener(use, set);
  await call("tell");
  assert.deepEqual(
    lines.items.map(({ level }) => level),
    LEVELS,
  );
});

row(["logging:message:filtered", "logging:set-level"], CHANNEL, async (use) => {
  const set = (server) =>
    server.registerTool("tell", {}, async (ctx) => {
      for (const level of LEVELS) await server.sendLoggingMessage({ level, data: level }, ctx.sessionId);
      return text("told");
    });
  const { host, lines, call } = await listener(use, set);
  await host.setLoggingLevel("error");
  await call("tell");
  await lines.first(({ level }) => level === "emergency", "the last line");
  assert.deepEqual(
    lines.items.map(({ level }) => level),
    ["error", "critical", "alert", "emergency"],
  );
});

row("logging:set-level:invalid-level", LEGACY, async (use) => {
  const factory = () => {
    const server = new Server({ name: "server", version: "1" }, logs);
    server.setRequestHandler("logging/setLevel", { params: z.object({ level: z.string() }) }, ({ level }) => {
      if (LEVELS.includes(level)) return {};
      throw Object.assign(new Error(`no level: ${level}`), { code: ProtocolErrorCode.InvalidParams });
    });
    return server;
  };
  const host = await use.connected(factory);
  const request = host.request({ method: "logging/setLevel", params: { level: "loud" } }, z.object({}));
  await refused(request, { code: ProtocolErrorCode.InvalidParams });
});

row("logging:out-of-band:basic", CHANNEL, async (use) => {
  const set = (server) =>
    server.registerTool("later", {}, () => {
      setImmediate(() => server.sendLoggingMessage({ level: "info", data: "later" }));
      return text("soon");
    });
  const { lines, call } = await listener(use, set);
  await call("later");
  await lines.atLeast(1, "line");
  assert.deepEqual(lines.items, [{ level: "info", data: "later" }]);
});

/** A tool that tells its progress in these steps, and then waits for what it is given. */
function stepsTool(steps, until = Promise.resolve()) {
  return (server) =>
    server.registerTool("steps", {}, async (ctx) => {
      const { progressToken } = ctx.mcpReq._meta ?? {};
      if (progressToken !== undefined) {
        for (const each of steps)
          await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, ...each } });
      }
      await inTime(until, "the end of the steps");
      return text(progressToken === undefined ? "no token" : "done");
    });
}

const STEPS = [
  { progress: 1, total: 3, message: "first" },
  { progress: 2.5, total: 3 },
  { progress: 3, total: 3, message: "last" },
];
const progressOf = ({ progress, total, message }) => JSON.parse(JSON.stringify({ progress, total, message }));

/** The progress of a call that ends once its host has heard of as many steps: the SDK may drop some beside an answer. */
async function stepped(use, steps) {
  const heard = new Noted();
  const open = promised();
  const host = await use.connected(() => made(stepsTool(steps, open)));
  const called = host.callTool({ name: "steps", arguments: {} }, { onprogress: heard.push });
  await heard.atLeast(steps.length, "step");
  open.resolve();
  assert.equal(textOf(await called), "done");
  return heard.items;
}

row("protocol:progress:callback", ALL, async (use) => {
  assert.deepEqual((await stepped(use, STEPS)).map(progressOf), STEPS);
});

row("tools:call:progress", ALL, async (use) => {
  assert.equal((await stepped(use, STEPS)).length, STEPS.length);
});

row("hosting:stateless:progress-in-post-stream", [STATELESS], async (use) => {
  const heard = new Noted();
  const open = promised();
  const { host, place } = await use.connect(use.host(), () => made(stepsTool(STEPS, open)));
  const called = host.callTool({ name: "steps", arguments: {} }, { onprogress: heard.push });
  await heard.atLeast(3, "step");
  open.resolve();
  await called;
  const methods = new Set(place.heard.items.map(({ method }) => method));
  assert.ok(methods.has("POST"));
});

row("typescript:protocol:progress:token-injected", ALL, async (use) => {
  const set = (server) => server.registerTool("meta", {}, (ctx) => text(JSON.stringify(ctx.mcpReq._meta)));
  const host = await use.connected(() => made(set));
  const params = { name: "meta", arguments: {}, _meta: { "com.example/trace": { on: [true] } } };
  const meta = JSON.parse(textOf(await host.callTool(params, { onprogress: () => {} })));
  assert.ok(meta.progressToken !== undefined);
  assert.deepEqual(meta["com.example/trace"], { on: [true] });
});

row("protocol:progress:token-unique", ALL, async (use) => {
  const tokens = new Noted();
  const set = (server) =>
    server.registerTool("token", {}, async (ctx) => {
      tokens.push(ctx.mcpReq._meta.progressToken);
      await tokens.atLeast(3, "call");
      return text("");
    });
  const host = await use.connected(() => made(set));
  const call = () => host.callTool({ name: "token", arguments: {} }, { onprogress: () => {} });
  await Promise.all([call(), call(), call()]);
  assert.equal(new Set(tokens.items).size, 3);
});

row("protocol:progress:monotonic", ALL, async (use) => {
  const told = await stepped(
    use,
    [1, 2, 5, 8].map((progress) => ({ progress })),
  );
  assert.deepEqual(
    told.map(({ progress }) => progress),
    [1, 2, 5, 8],
  );
});

row("protocol:progress:stops-after-completion", [...CHANNEL], async (use) => {
  const heard = new Noted();
  const ended = new Noted();
  const open = promised();
  let late;
  const set = (server) => {
    server.registerTool("steps", {}, async ({ mcpReq }) => {
      const { progressToken } = mcpReq._meta;
      const tell = (progress) =>
        server.server.notification({ method: "notifications/progress", params: { progressToken, progress } });
      await tell(1);
      await inTime(open, "the end of the steps");
      late = () => tell(2);
      return text("done");
    });
    server.registerTool("end", {}, async () => {
      // The host has the answer by now: sent sooner, the step might come before it, on the other stream.
      await late();
      setImmediate(() => server.sendLoggingMessage({ level: "info", data: "end" }));
      return text("");
    });
  };
  const host = use.host();
  host.setNotificationHandler("notifications/message", ended.push);
  await use.connect(host, () => made(set, logs));
  const called = host.callTool(
    { name: "steps", arguments: {} },
    { onprogress: ({ progress }) => heard.push(progress) },
  );
  await heard.atLeast(1, "step");
  open.resolve();
  await called;
  await host.callTool({ name: "end", arguments: {} });
  await ended.atLeast(1, "the end");
  assert.deepEqual(heard.items, [1]);
});

row("protocol:progress:client-to-server", CHANNEL, async (use) => {
  const heard = new Noted();
  const factory = () => {
    const server = made(stepsTool(STEPS));
    server.server.setNotificationHandler("notifications/progress", ({ params }) => heard.push(params));
    return server;
  };
  const host = await use.connected(factory);
  await host.notification({ method: "notifications/progress", params: { progressToken: "of the host", progress: 1 } });
  await heard.atLeast(1, "progress");
  assert.equal(heard.items[0].progressToken, "of the host");
});

/** A tool that waits for its own cancellation, and one that does not wait. */
function patient(begun, stopped) {
  return (server) => {
    server.registerTool("wait", {}, async (ctx) => {
      begun.push(ctx.mcpReq.id);
      await inTime(new Promise((resolve) => ctx.mcpReq.signal.addEventListener("abort", resolve)), "a cancellation");
      stopped.push(ctx.mcpReq.id);
      return text("too late");
    });
    server.registerTool("quick", {}, () => text("quick"));
  };
}

async function openCall(use, options) {
  const begun = new Noted();
  const stopped = new Noted();
  const { host, transport } = await use.connect(use.host(), () => made(patient(begun, stopped)));
  const cancel = new AbortController();
  const call = host.callTool({ name: "wait", arguments: {} }, { signal: cancel.signal, ...options });
  call.catch(() => {});
  await begun.atLeast(1, "call");
  return { host, transport, call, cancel, begun, stopped };
}

const messages = (transport, method) => transport.noted.items.filter(({ body }) => body?.method === method);

row("protocol:cancel:abort-signal", [SESSIONS, STATELESS, BOTH], async (use) => {
  const { call, cancel, transport } = await openCall(use);
  cancel.abort("changed my mind");
  await refused(call);
  await transport.noted.first(({ body }) => body?.method === "notifications/cancelled", "a cancellation");
  const [{ body: said }] = messages(transport, "notifications/cancelled");
  assert.equal(said.params.requestId, messages(transport, "tools/call")[0].body.id);
  assert.match(said.params.reason, /changed my mind/);
});

row("protocol:cancel:handler-abort-propagates", [...CHANNEL, MODERN], async (use) => {
  const { call, cancel, stopped } = await openCall(use);
  cancel.abort("changed my mind");
  await refused(call);
  await stopped.atLeast(1, "end of the handler");
});

row("protocol:cancel:in-flight", CHANNEL, async (use) => {
  const { host, call, cancel, stopped } = await openCall(use);
  const errors = [];
  host.onerror = (error) => errors.push(error);
  cancel.abort("changed my mind");
  await refused(call);
  await stopped.atLeast(1, "end of the handler");
  assert.equal(textOf(await host.callTool({ name: "quick", arguments: {} })), "quick");
  assert.deepEqual(errors, []);
});

row("protocol:cancel:late-response-ignored", CHANNEL, async (use) => {
  const { host, call, cancel } = await openCall(use);
  cancel.abort("changed my mind");
  await refused(call);
  assert.equal(textOf(await host.callTool({ name: "quick", arguments: {} })), "quick");
});

row("protocol:cancel:unknown-id-ignored", LEGACY, async (use) => {
  const host = await use.connected(() => made(patient(new Noted(), new Noted())));
  for (const requestId of [987654, "of nobody"]) {
    await host.notification({ method: "notifications/cancelled", params: { requestId, reason: "none" } });
  }
  assert.equal(textOf(await host.callTool({ name: "quick", arguments: {} })), "quick");
});

row("protocol:cancel:http-stream-close", [MODERN], async (use) => {
  const { call, cancel, stopped, transport } = await openCall(use);
  cancel.abort("changed my mind");
  await refused(call);
  await stopped.atLeast(1, "end of the handler");
  assert.deepEqual(messages(transport, "notifications/cancelled"), []);
});

row(["protocol:timeout:basic", "errors:timeout:sdkerror-request-timeout"], ALL, async (use) => {
  const host = await use.connected(() => made(patient(new Noted(), new Noted())));
  const call = host.callTool({ name: "wait", arguments: {} }, { timeout: 300 });
  const error = await refused(call, { code: SdkErrorCode.RequestTimeout });
  assert.equal(error.data.timeout, 300);
});

row("protocol:timeout:sends-cancellation", CHANNEL, async (use) => {
  const { call, stopped } = await openCall(use, { timeout: 1_500 });
  await refused(call, { code: SdkErrorCode.RequestTimeout });
  await stopped.atLeast(1, "end of the handler");
});

/** A tool that tells of progress every 100 ms until it has told as often, or is cancelled. */
function ticksTool(count) {
  return (server) =>
    server.registerTool("tick", {}, async (ctx) => {
      const { progressToken } = ctx.mcpReq._meta;
      for (let progress = 1; progress <= count && !ctx.mcpReq.signal.aborted; progress += 1) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        await ctx.mcpReq
          .notify({ method: "notifications/progress", params: { progressToken, progress } })
          .catch(() => {});
      }
      return text("ticked");
    });
}

row("protocol:timeout:reset-on-progress", ALL, async (use) => {
  const host = await use.connected(() => made(ticksTool(24)));
  const options = { onprogress: () => {}, timeout: 2_000, resetTimeoutOnProgress: true };
  assert.equal(textOf(await host.callTool({ name: "tick", arguments: {} }, options)), "ticked");
});

row("protocol:timeout:max-total", ALL, async (use) => {
  const host = await use.connected(() => made(ticksTool(40)));
  const options = { onprogress: () => {}, timeout: 3_000, resetTimeoutOnProgress: true, maxTotalTimeout: 500 };
  await refused(host.callTool({ name: "tick", arguments: {} }, options), { code: SdkErrorCode.RequestTimeout });
});

row("typescript:protocol:error:connection-closed", ALL, async (use) => {
  const { host, call } = await openCall(use);
  const closed = new Noted();
  host.onclose = () => closed.push("closed");
  await host.close();
  await refused(call, { code: SdkErrorCode.ConnectionClosed });
  await closed.atLeast(1, "the end");
});
