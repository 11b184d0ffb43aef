// Rows of changed lists and resources: notifications of the legacy era, and subscriptions of 2026-07-28.

import { SUBSCRIPTION_ID_META_KEY, SdkErrorCode } from "@modelcontextprotocol/client";
import { Server } from "@modelcontextprotocol/server";

import { CHANNEL, LEGACY, MODERN, Noted, assert, inTime, made, refused, row, text, textOf } from "./rows.mjs";
import { REVISION } from "./use.mjs";
import { envelope, events } from "./wire.mjs";

const KINDS = ["tools", "resources", "prompts"];
const news = (kind) => `notifications/${kind}/list_changed`;

/** One of each kind, and tools that change the offers of their own session. */
function offersThatChange(changes = {}) {
  return (server) => {
    const handles = {
      tool: server.registerTool("first", { description: "as it was" }, () => text("first")),
      resource: server.registerResource("one", "book://1", {}, () => ({
        contents: [{ uri: "book://1", text: "one" }],
      })),
      prompt: server.registerPrompt("hello", { description: "as it was" }, () => ({ messages: [] })),
    };
    for (const [name, change] of Object.entries(changes)) {
      server.registerTool(name, {}, async () => {
        await change(server, handles);
        return text("changed");
      });
    }
  };
}

const GROW = {
  tools: (server) => void server.registerTool("second", {}, () => text("second")),
  resources: (server) => void server.registerResource("two", "book://2", {}, () => ({ contents: [] })),
  prompts: (server) => void server.registerPrompt("bye", {}, () => ({ messages: [] })),
};

/** A host that notes which lists have changed. */
function listener(use, options) {
  const changed = new Noted();
  const host = use.host(options);
  for (const kind of KINDS) host.setNotificationHandler(news(kind), () => changed.push(kind));
  return { host, changed };
}

const namesOf = async (host, kind) => {
  const lists = { tools: host.listTools, resources: host.listResources, prompts: host.listPrompts };
  return (await lists[kind].call(host))[kind].map(({ name }) => name);
};
const call = (host, name) => host.callTool({ name, arguments: {} });

for (const kind of KINDS) {
  row(`${kind}:list-changed`, CHANNEL, async (use) => {
    const { host, changed } = listener(use);
    await use.connect(host, () => made(offersThatChange({ grow: GROW[kind] })));
    await call(host, "grow");
    await changed.first((each) => each === kind, "news");
    assert.equal((await namesOf(host, kind)).at(-1), { tools: "second", resources: "two", prompts: "bye" }[kind]);
  });
}

row("mcpserver:register:post-connect", CHANNEL, async (use) => {
  const { host, changed } = listener(use);
  await use.connect(host, () => made(offersThatChange(GROW)));
  for (const kind of KINDS) {
    const before = (await namesOf(host, kind)).length;
    await call(host, kind);
    await changed.first((each) => each === kind, "news");
    assert.equal((await namesOf(host, kind)).length, before + 1);
  }
});

row("mcpserver:list-changed:debounce", CHANNEL, async (use) => {
  const { host, changed } = listener(use);
  const burst = (server) => {
    for (const name of ["a", "b", "c"]) server.registerTool(name, {}, () => text(name));
  };
  const debouncedNotificationMethods = KINDS.map(news);
  await use.connect(host, () =>
    made(offersThatChange({ burst, after: GROW.prompts }), { debouncedNotificationMethods }),
  );
  await call(host, "burst");
  await changed.first((each) => each === "tools", "news");
  await call(host, "after");
  await changed.first((each) => each === "prompts", "news");
  assert.deepEqual(changed.items, ["tools", "prompts"]);
  assert.deepEqual((await namesOf(host, "tools")).slice(-3), ["a", "b", "c"]);
});

const HANDLES = {
  "mcpserver:tool:handle-update": ["tools", (handle) => handle.update({ description: "new" }), "tool", "new"],
  "mcpserver:prompt:handle-update-remove": [
    "prompts",
    (handle) => handle.update({ description: "new" }),
    "prompt",
    "new",
  ],
  "mcpserver:resource:handle-update-remove": [
    "resources",
    (handle) => handle.update({ title: "new" }),
    "resource",
    "new",
  ],
};

for (const [id, [kind, update, of, wanted]] of Object.entries(HANDLES)) {
  row(id, CHANNEL, async (use) => {
    const { host, changed } = listener(use);
    const changes = { update: (_, handles) => update(handles[of]), remove: (_, handles) => handles[of].remove() };
    await use.connect(host, () => made(offersThatChange(changes)));
    const before = await namesOf(host, kind);
    await call(host, "update");
    await changed.first((each) => each === kind, "news");
    const lists = { tools: host.listTools, resources: host.listResources, prompts: host.listPrompts };
    const [first] = (await lists[kind].call(host))[kind];
    assert.ok([first.description, first.title].includes(wanted));
    await call(host, "remove");
    await changed.first((each, at) => each === kind && at > 0, "news");
    assert.deepEqual(await namesOf(host, kind), before.slice(1));
  });
}

row("mcpserver:handle:enable-disable", CHANNEL, async (use) => {
  const { host, changed } = listener(use);
  const changes = { disable: (_, { tool }) => tool.disable(), enable: (_, { tool }) => tool.enable() };
  await use.connect(host, () => made(offersThatChange(changes)));
  await call(host, "disable");
  await changed.atLeast(1, "news");
  assert.ok(!(await namesOf(host, "tools")).includes("first"));
  const ended = await call(host, "first").catch((error) => ({ isError: true, error }));
  assert.ok(ended.isError);
  await call(host, "enable");
  await changed.atLeast(2, "news");
  assert.equal(textOf(await call(host, "first")), "first");
});

/** The option of a host for changed lists, and what its callbacks have heard. */
function reactions(autoRefresh, kinds = KINDS) {
  const heard = new Noted();
  const handler = (kind) => ({
    autoRefresh,
    debounceMs: 0,
    onChanged: (error, items) => heard.push({ kind, error, names: items?.map(({ name }) => name) ?? null }),
  });
  return { heard, listChanged: Object.fromEntries(kinds.map((kind) => [kind, handler(kind)])) };
}

row("client:list-changed:auto-refresh", CHANNEL, async (use) => {
  const { heard, listChanged } = reactions(true);
  const { host } = await use.connect(use.host({ listChanged }), () => made(offersThatChange(GROW)));
  for (const [kind, name] of [
    ["tools", "second"],
    ["resources", "two"],
    ["prompts", "bye"],
  ]) {
    await call(host, kind);
    const { error } = await heard.first((each) => each.kind === kind && each.names?.includes(name), `the new ${kind}`);
    assert.equal(error, null);
  }
});

row("client:list-changed:signal-only", CHANNEL, async (use) => {
  const { heard, listChanged } = reactions(false);
  const { host } = await use.connect(use.host({ listChanged }), () => made(offersThatChange(GROW)));
  await call(host, "tools");
  assert.deepEqual(await heard.first(({ kind }) => kind === "tools", "news"), {
    kind: "tools",
    error: null,
    names: null,
  });
});

row("client:list-changed:capability-gated", CHANNEL, async (use) => {
  const { heard, listChanged } = reactions(false);
  const factory = () => {
    const server = new Server(
      { name: "server", version: "1" },
      { capabilities: { tools: { listChanged: true }, prompts: {} } },
    );
    server.setRequestHandler("prompts/list", () => ({ prompts: [] }));
    server.setRequestHandler("tools/list", () => ({ tools: [] }));
    server.setRequestHandler("tools/call", async () => {
      await server.sendPromptListChanged();
      await server.sendToolListChanged();
      return text("");
    });
    return server;
  };
  const { host } = await use.connect(use.host({ listChanged }), factory);
  await call(host, "any");
  await heard.first(({ kind }) => kind === "tools", "news");
  assert.deepEqual(
    heard.items.map(({ kind }) => kind),
    ["tools"],
  );
});

/** A server whose resources can be subscribed to; each call of its tool changes both of them. */
function subscribable() {
  const server = new Server(
    { name: "server", version: "1" },
    { capabilities: { tools: {}, resources: { subscribe: true }, logging: {} } },
  );
  const subscribed = new Set();
  server.setRequestHandler("resources/list", () => ({ resources: [] }));
  server.setRequestHandler("resources/subscribe", ({ params }) => void subscribed.add(params.uri) ?? {});
  server.setRequestHandler("resources/unsubscribe", ({ params }) => void subscribed.delete(params.uri) ?? {});
  server.setRequestHandler("tools/list", () => ({ tools: [] }));
  server.setRequestHandler("tools/call", async () => {
    for (const uri of ["book://1", "book://2"]) if (subscribed.has(uri)) await server.sendResourceUpdated({ uri });
    await server.sendLoggingMessage({ level: "info", data: "changed" });
    return text("");
  });
  return server;
}

async function subscriber(use) {
  const heard = new Noted();
  const host = use.host();
  host.setNotificationHandler("notifications/resources/updated", ({ params }) => heard.push(params.uri));
  host.setNotificationHandler("notifications/message", ({ params }) => heard.push(params.data));
  await use.connect(host, subscribable);
  return { host, heard };
}

row("resources:subscribe:updated", CHANNEL, async (use) => {
  const { host, heard } = await subscriber(use);
  await host.subscribeResource({ uri: "book://1" });
  await call(host, "change");
  await heard.first((each) => each === "changed", "the end");
  assert.deepEqual(heard.items, ["book://1", "changed"]);
});

row("resources:unsubscribe:stops-updates", CHANNEL, async (use) => {
  const { host, heard } = await subscriber(use);
  await host.subscribeResource({ uri: "book://1" });
  await host.subscribeResource({ uri: "book://2" });
  await host.unsubscribeResource({ uri: "book://1" });
  await call(host, "change");
  await heard.first((each) => each === "changed", "the end");
  assert.deepEqual(heard.items, ["book://2", "changed"]);
});

row("typescript:subscriptions:listen:legacy-era-steer", LEGACY, async (use) => {
  const host = await use.connected(() => made(offersThatChange()));
  await refused(host.listen({ toolsListChanged: true }), { code: SdkErrorCode.MethodNotSupportedByProtocolVersion });
});

// From here on: subscriptions of 2026-07-28. The entry of the SDK tells all of its streams of a change.

const FILTERS = { tools: "toolsListChanged", resources: "resourcesListChanged", prompts: "promptsListChanged" };

for (const kind of KINDS) {
  row(`${kind}:listen:list-changed`, [MODERN], async (use) => {
    const { host, changed } = listener(use);
    const { place } = await use.connect(host, () => made(offersThatChange()));
    const subscription = await host.listen({ [FILTERS[kind]]: true });
    assert.deepEqual(subscription.honoredFilter, { [FILTERS[kind]]: true });
    place.notify[`${kind}Changed`]();
    await changed.atLeast(1, "news");
    assert.deepEqual(changed.items, [kind]);
  });
}

row("subscriptions:listen:per-stream-filter", [MODERN], async (use) => {
  const { host, changed } = listener(use);
  const { place } = await use.connect(host, () => made(offersThatChange()));
  await host.listen({ toolsListChanged: true });
  place.notify.promptsChanged();
  place.notify.resourcesChanged();
  place.notify.toolsChanged();
  await changed.atLeast(1, "news");
  assert.deepEqual(changed.items, ["tools"]);
});

row("subscriptions:listen:honored-filter-narrows-to-advertised", [MODERN], async (use) => {
  const { host, changed } = listener(use);
  const { place } = await use.connect(host, () => made((server) => server.registerTool("first", {}, () => text(""))));
  const wanted = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  assert.deepEqual((await host.listen(wanted)).honoredFilter, { toolsListChanged: true });
  place.notify.promptsChanged();
  place.notify.toolsChanged();
  await changed.atLeast(1, "news");
  assert.deepEqual(changed.items, ["tools"]);
});

row("subscriptions:listen:graceful-close", [MODERN], async (use) => {
  const { host, place } = await use.connect(use.host(), () => made(offersThatChange()));
  const subscription = await host.listen({ toolsListChanged: true });
  await place.close();
  assert.equal(await inTime(subscription.closed, "the end of the subscription"), "graceful");
});

/** A stream of a subscription, by hand. */
async function listen(use, url, id, notifications) {
  const gone = new AbortController();
  use.ends(() => gone.abort());
  const response = await fetch(url, {
    method: "POST",
    signal: gone.signal,
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": REVISION,
      "Mcp-Method": "subscriptions/listen",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id,
      method: "subscriptions/listen",
      params: { _meta: envelope(), notifications },
    }),
  });
  return response;
}

row("subscriptions:listen:ack-first-stamped", [MODERN], async (use) => {
  const place = use.place(() => made(offersThatChange()));
  const response = await listen(use, place.url, "sub 1", { toolsListChanged: true });
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const stream = events(response);
  const { params, method } = (await stream.next()).message;
  assert.equal(method, "notifications/subscriptions/acknowledged");
  assert.equal(params._meta[SUBSCRIPTION_ID_META_KEY], "sub 1");
  assert.deepEqual(params.notifications, { toolsListChanged: true });
});

row("subscriptions:listen:capacity-guard", [MODERN], async (use) => {
  const place = use.place(() => made(offersThatChange()), { maxSubscriptions: 1 });
  const filter = { toolsListChanged: true };
  const first = await listen(use, place.url, 1, filter);
  assert.match(first.headers.get("content-type"), /^text\/event-stream/);
  await events(first).next();
  const second = await listen(use, place.url, 2, filter);
  const { error } = (await events(second).next()).message;
  assert.deepEqual([error.code, error.message], [-32603, "Subscription limit reached"]);
});

row("typescript:subscriptions:listChanged-auto-open-modern", [MODERN], async (use) => {
  const { heard, listChanged } = reactions(false, ["tools"]);
  const { host, place } = await use.connect(use.host({ listChanged }), () => made(offersThatChange()));
  assert.deepEqual(host.autoOpenedSubscription.honoredFilter, { toolsListChanged: true });
  place.notify.toolsChanged();
  await heard.atLeast(1, "news");
  await host.autoOpenedSubscription.close();
});

row("client:listen:auto-refresh", [MODERN], async (use) => {
  const { heard, listChanged } = reactions(true, ["tools"]);
  const names = ["first"];
  const set = (server) => names.forEach((name) => server.registerTool(name, {}, () => text(name)));
  const { place } = await use.connect(use.host({ listChanged }), () => made(set));
  names.push("second");
  place.notify.toolsChanged();
  await heard.first((each) => each.names?.includes("second"), "the new list");
});
