// Rows of tools: what calls carry, what lists carry, and how calls fail.

import { ProtocolErrorCode } from "@modelcontextprotocol/client";
import { Server, UrlElicitationRequiredError, fromJsonSchema as served } from "@modelcontextprotocol/server";
import { z } from "zod";

import {
  ALL,
  BOTH,
  LEGACY,
  MODERN,
  Noted,
  SESSIONS,
  assert,
  inTime,
  made,
  only,
  promised,
  refused,
  row,
  text,
  textOf,
} from "./rows.mjs";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

const CONTENTS = {
  audio: [{ type: "audio", data: SOUND, mimeType: "audio/wav" }],
  image: [{ type: "image", data: PIXEL, mimeType: "image/png", annotations: { audience: ["user"], priority: 0.5 } }],
  "embedded-resource": [
    { type: "resource", resource: { uri: "file:///a.txt", mimeType: "text/plain", text: "a\u2028b\nc" } },
    { type: "resource", resource: { uri: "file:///b.bin", mimeType: "application/octet-stream", blob: "AAEC/w==" } },
  ],
  "resource-link": [
    { type: "resource_link", uri: "file:///far.txt", name: "far", title: "Far", mimeType: "text/plain", size: 12 },
  ],
  mixed: [
    { type: "text", text: "first" },
    { type: "image", data: PIXEL, mimeType: "image/png" },
    { type: "resource_link", uri: "file:///x", name: "x" },
    { type: "text", text: "last" },
  ],
};

for (const [kind, content] of Object.entries(CONTENTS)) {
  row(`tools:call:content:${kind}`, ALL, async (use) => {
    const host = await use.connected(() => made((server) => server.registerTool("give", {}, () => ({ content }))));
    const result = await host.callTool({ name: "give", arguments: {} });
    assert.deepEqual(result.content, content);
  });
}

const said = { inputSchema: z.object({ words: z.string(), times: z.number().optional() }) };

row("tools:call:content:text", ALL, async (use) => {
  const given = { words: 'ünïcödé \u0000 \u2028 \ud83d\ude80 "\\/', times: 3 };
  const set = (server) => server.registerTool("say", said, (args) => text(JSON.stringify(args)));
  const host = await use.connected(() => made(set));
  const result = await host.callTool({ name: "say", arguments: given });
  assert.deepEqual(JSON.parse(textOf(result)), given);
  assert.ok(!result.isError);
});

row("tools:call:is-error", ALL, async (use) => {
  const set = (server) => server.registerTool("fail", {}, () => ({ ...text("no paper"), isError: true }));
  const host = await use.connected(() => made(set));
  const result = await host.callTool({ name: "fail", arguments: {} });
  assert.deepEqual([result.isError, textOf(result)], [true, "no paper"]);
});

row("typescript:mcpserver:tool:handler-throws", ALL, async (use) => {
  const set = (server) =>
    server.registerTool("throw", {}, () => {
      throw new Error("it burns");
    });
  const host = await use.connected(() => made(set));
  const result = await host.callTool({ name: "throw", arguments: {} });
  assert.deepEqual([result.isError, result.content], [true, [{ type: "text", text: "it burns" }]]);
});

row("tools:call:unknown-name", ALL, async (use) => {
  const host = await use.connected(() => made((server) => server.registerTool("known", {}, () => text(""))));
  await refused(host.callTool({ name: "unknown", arguments: {} }), {
    code: ProtocolErrorCode.InvalidParams,
    message: /unknown/,
  });
});

row("tools:call:concurrent", ALL, async (use) => {
  const begun = new Noted();
  const open = promised();
  const set = (server) =>
    server.registerTool("wait", said, async ({ words }) => {
      begun.push(words);
      await inTime(open, "the end of the wait");
      return text(`${words} is back`);
    });
  const host = await use.connected(() => made(set));
  const calls = ["a", "b", "c", "d"].map((words) => host.callTool({ name: "wait", arguments: { words } }));
  await begun.atLeast(4, "call");
  open.resolve();
  const results = await Promise.all(calls);
  assert.deepEqual(results.map(textOf), ["a is back", "b is back", "c is back", "d is back"]);
});

row("tools:call:concurrent (answers in another order)", ALL, async (use) => {
  const opened = { a: promised(), b: promised() };
  const begun = new Noted();
  const set = (server) =>
    server.registerTool("wait", said, async ({ words }) => {
      begun.push(words);
      await inTime(opened[words], "the end of the wait");
      return text(words);
    });
  const host = await use.connected(() => made(set));
  const [a, b] = ["a", "b"].map((words) => host.callTool({ name: "wait", arguments: { words } }));
  await begun.atLeast(2, "call");
  opened.b.resolve();
  assert.equal(textOf(await inTime(b)), "b");
  opened.a.resolve();
  assert.equal(textOf(await inTime(a)), "a");
});

row("tools:list:basic", ALL, async (use) => {
  const inputSchema = z.object({ city: z.string().describe("Where"), days: z.number().int().optional() });
  const set = (server) => {
    server.registerTool("weather", { description: "Tells the weather", inputSchema }, () => text(""));
    server.registerTool("bare", {}, () => text(""));
  };
  const host = await use.connected(() => made(set));
  const { tools } = await host.listTools();
  assert.deepEqual(
    tools.map(({ name }) => name),
    ["weather", "bare"],
  );
  const [{ description, inputSchema: listed }] = tools;
  assert.equal(description, "Tells the weather");
  assert.deepEqual(listed.required, ["city"]);
  assert.equal(listed.properties.city.description, "Where");
});

const FULL = {
  title: "Everything",
  description: "Has it all",
  annotations: { title: "All", readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  _meta: { "com.example/extra": { level: 3 } },
  icons: [{ src: "https://example.com/icon.png", mimeType: "image/png", sizes: ["48x48"] }],
};

function serverOfTools(...tools) {
  return () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: { tools: {} } });
    server.setRequestHandler("tools/list", () => ({ tools }));
    server.setRequestHandler("tools/call", ({ params }) => text(JSON.stringify(params.arguments)));
    return server;
  };
}

row("tools:list:metadata", LEGACY, async (use) => {
  const tool = { name: "all", inputSchema: { type: "object" }, execution: { taskSupport: "forbidden" }, ...FULL };
  const host = await use.connected(serverOfTools(tool));
  assert.deepEqual((await host.listTools()).tools, [tool]);
});

row("mcpserver:tool:metadata-roundtrip", ALL, async (use) => {
  const host = await use.connected(() => made((server) => server.registerTool("all", FULL, () => text(""))));
  const [tool] = (await host.listTools()).tools;
  assert.deepEqual(only(tool, ...Object.keys(FULL)), FULL);
});

const SCHEMA = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: { place: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
  properties: {
    from: { $ref: "#/$defs/place" },
    to: { $ref: "#/$defs/place", description: "Where to" },
    stops: { type: "array", prefixItems: [{ type: "string" }], items: false },
  },
  required: ["from"],
  additionalProperties: false,
  dependentRequired: { to: ["from"] },
};

const PRESERVED = {
  "json-schema-2020-12": (listed) => assert.deepEqual(listed, SCHEMA),
  "preserve-additional-properties": ({ additionalProperties }) => assert.equal(additionalProperties, false),
  "preserve-defs": ({ $defs }) => assert.deepEqual($defs, SCHEMA.$defs),
  "preserve-schema-dialect": ({ $schema }) => assert.equal($schema, SCHEMA.$schema),
};

for (const [kind, check] of Object.entries(PRESERVED)) {
  row(`tools:input-schema:${kind}`, ALL, async (use) => {
    const host = await use.connected(serverOfTools({ name: "travel", inputSchema: SCHEMA }));
    check((await host.listTools()).tools[0].inputSchema);
    const given = { from: { city: "Oslo" }, to: { city: "Rome" } };
    assert.deepEqual(JSON.parse(textOf(await host.callTool({ name: "travel", arguments: given }))), given);
  });
}

row("tools:list:pagination", ALL, async (use) => {
  const pages = { undefined: ["a", "p 2/=&\u00e9"], "p 2/=&\u00e9": ["b", "3"], 3: ["c", undefined] };
  const cursors = [];
  const factory = () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: { tools: {} } });
    server.setRequestHandler("tools/list", ({ params }) => {
      cursors.push(params?.cursor);
      const [name, nextCursor] = pages[params?.cursor];
      return { tools: [{ name, inputSchema: { type: "object" } }], ...(nextCursor && { nextCursor }) };
    });
    return server;
  };
  const host = await use.connected(factory);
  const names = [];
  let cursor;
  do {
    const page = await host.request({ method: "tools/list", params: cursor ? { cursor } : {} });
    names.push(...page.tools.map(({ name }) => name));
    cursor = page.nextCursor;
  } while (cursor);
  assert.deepEqual(names, ["a", "b", "c"]);
  assert.deepEqual(cursors.slice(-3), [undefined, "p 2/=&\u00e9", "3"]);
});

row("typescript:mcpserver:tool:extra", ALL, async (use) => {
  const set = (server) =>
    server.registerTool("context", {}, async (ctx) => {
      const { id, method, signal } = ctx.mcpReq;
      return text(JSON.stringify([typeof id, method, signal.aborted, typeof ctx.mcpReq.notify]));
    });
  const host = await use.connected(() => made(set));
  const [id, method, aborted, notify] = JSON.parse(textOf(await host.callTool({ name: "context", arguments: {} })));
  assert.ok(id === "number" || id === "string");
  assert.deepEqual([method, aborted, notify], ["tools/call", false, "function"]);
});

row("typescript:mcpserver:tool:extra (the session)", [SESSIONS], async (use) => {
  const set = (server) => server.registerTool("session", {}, (ctx) => text(`${ctx.sessionId}`));
  const { host, transport } = await use.connect(use.host(), () => made(set));
  assert.equal(textOf(await host.callTool({ name: "session", arguments: {} })), transport.sessionId);
});

row("mcpserver:tool:input-validation", ALL, async (use) => {
  let called = false;
  const set = (server) =>
    server.registerTool("say", said, () => {
      called = true;
      return text("");
    });
  const host = await use.connected(() => made(set));
  const result = await host.callTool({ name: "say", arguments: { words: 5 } });
  assert.ok(result.isError);
  assert.match(textOf(result), /words/);
  assert.ok(!called);
});

row("mcpserver:tool:naming-validation", ALL, async (use) => {
  const name = "not a good/näme!";
  const warn = console.warn;
  console.warn = () => {};
  use.ends(() => {
    console.warn = warn;
  });
  const host = await use.connected(() => made((server) => server.registerTool(name, {}, () => text("yes"))));
  assert.deepEqual(
    (await host.listTools()).tools.map((tool) => tool.name),
    [name],
  );
  assert.equal(textOf(await host.callTool({ name, arguments: {} })), "yes");
});

const PENDING = [{ mode: "url", message: "Sign in", url: "https://example.com/in?a=1&b=2", elicitationId: "e-1" }];

function privateTool(server) {
  server.registerTool("private", {}, () => {
    throw new UrlElicitationRequiredError(PENDING);
  });
}

row(
  ["mcpserver:tool:url-elicitation-error", "typescript:mrtr:legacy-32042-freeze", "elicitation:url:required-error"],
  LEGACY,
  async (use) => {
    const host = await use.connected(() => made(privateTool), { capabilities: { elicitation: { url: {} } } });
    const error = await refused(host.callTool({ name: "private", arguments: {} }), { code: -32042 });
    assert.deepEqual(error.data.elicitations, PENDING);
  },
);

row("typescript:mcpserver:tool:schema-variants", ALL, async (use) => {
  const variants = z.object({
    either: z.union([z.string(), z.number()]),
    both: z.intersection(z.object({ a: z.number() }), z.object({ b: z.number() })),
    upper: z.string().transform((words) => words.toUpperCase()),
    made: z.preprocess((value) => Number(value), z.number()),
    nested: z.object({ deep: z.object({ list: z.array(z.boolean()) }) }),
  });
  const set = (server) => server.registerTool("all", { inputSchema: variants }, (args) => text(JSON.stringify(args)));
  const host = await use.connected(() => made(set));
  const given = { either: 1, both: { a: 1, b: 2 }, upper: "up", made: "12", nested: { deep: { list: [true] } } };
  const result = await host.callTool({ name: "all", arguments: given });
  assert.deepEqual(JSON.parse(textOf(result)), { ...given, upper: "UP", made: 12 });
});

row("validators:from-json-schema:tool-roundtrip", ALL, async (use) => {
  const schema = { type: "object", properties: { n: { type: "integer", minimum: 1 } }, required: ["n"] };
  const set = (server) =>
    server.registerTool("count", { inputSchema: served(schema) }, (args) => text(JSON.stringify(args)));
  const host = await use.connected(() => made(set));
  const [{ inputSchema }] = (await host.listTools()).tools;
  assert.deepEqual(only(inputSchema, "type", "properties", "required"), schema);
  assert.equal(textOf(await host.callTool({ name: "count", arguments: { n: 4 } })), '{"n":4}');
});

row("standardschema:tool:invalid-args-rejected", ALL, async (use) => {
  let called = false;
  const set = (server) =>
    server.registerTool("say", said, () => {
      called = true;
      return text("");
    });
  const host = await use.connected(() => made(set));
  const ended = await host.callTool({ name: "say", arguments: {} }).catch((error) => ({ isError: true, error }));
  assert.ok(ended.isError && !called);
});

row("validators:from-json-schema:invalid-args-rejected", ALL, async (use) => {
  let called = false;
  const schema = { type: "object", properties: { n: { type: "integer", minimum: 1 } }, required: ["n"] };
  const set = (server) =>
    server.registerTool("count", { inputSchema: served(schema) }, () => {
      called = true;
      return text("");
    });
  const host = await use.connected(() => made(set));
  const ended = await host
    .callTool({ name: "count", arguments: { n: 0 } })
    .catch((error) => ({ isError: true, error }));
  assert.ok(ended.isError && !called);
});

row("flow:tool-result:resource-link-follow", ALL, async (use) => {
  const set = (server) => {
    server.registerTool("find", {}, () => ({ content: [{ type: "resource_link", uri: "book://1", name: "one" }] }));
    server.registerResource("one", "book://1", {}, ({ href }) => ({ contents: [{ uri: href, text: "Once" }] }));
  };
  const host = await use.connected(() => made(set));
  const [{ uri }] = (await host.callTool({ name: "find", arguments: {} })).content;
  assert.equal((await host.readResource({ uri })).contents[0].text, "Once");
});

for (const [id, parts] of [
  ["hosting:context:web-request-headers", [SESSIONS]],
  ["typescript:hosting:entry:ctx-http-req-headers", [BOTH, MODERN]],
]) {
  row(id, parts, async (use) => {
    const set = (server) =>
      server.registerTool("header", {}, (ctx) => text(`${ctx.http.req.headers.get("x-of-the-host")}`));
    const host = use.host();
    const requestInit = { headers: { "X-Of-The-Host": "words" } };
    await use.connect(host, () => made(set), { requestInit });
    assert.equal(textOf(await host.callTool({ name: "header", arguments: {} })), "words");
  });
}

const REGION = {
  type: "object",
  properties: {
    region: { type: "string", "x-mcp-header": "Region" },
    size: { type: "integer", "x-mcp-header": "Size" },
  },
  required: ["region"],
};

row("sep-2243:param-header:roundtrip", [MODERN], async (use) => {
  const host = use.host();
  const { transport, place } = await use.connect(host, serverOfTools({ name: "make", inputSchema: REGION }));
  await host.listTools();
  const region = "süd-öst ";
  const given = { region, size: 12 };
  assert.deepEqual(JSON.parse(textOf(await host.callTool({ name: "make", arguments: given }))), given);
  const { sent } = await transport.noted.first(({ body }) => body?.method === "tools/call", "the call");
  const encoded = `=?base64?${Buffer.from(region).toString("base64")}?=`;
  assert.deepEqual([sent.get("mcp-param-region"), sent.get("mcp-param-size")], [encoded, "12"]);
  const call = place.heard.items.find(({ headers }) => headers.get("mcp-method") === "tools/call");
  assert.deepEqual([call.headers.get("mcp-param-region"), call.headers.get("mcp-param-size")], [encoded, "12"]);
});
