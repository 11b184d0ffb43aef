// Rows of output schemas: what the host and the server validate of what crosses, in each era.

import { ProtocolErrorCode } from "@modelcontextprotocol/client";
import { Server, fromJsonSchema } from "@modelcontextprotocol/server";
import { z } from "zod";

import { ALL, LEGACY, MODERN, assert, made, refused, row, text, textOf } from "./rows.mjs";

const DIALECT = "https://example.com/no-such-dialect";
const POINT = {
  type: "object",
  $defs: { number: { type: "number" } },
  properties: { x: { $ref: "#/$defs/number" } },
  required: ["x"],
};

/** A server on the raw class: it lists these tools, and validates nothing of their results. */
function serverOfResults(tools) {
  return () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: { tools: {} } });
    const listed = Object.entries(tools).map(([name, [outputSchema]]) => {
      return { name, inputSchema: { type: "object" }, outputSchema };
    });
    server.setRequestHandler("tools/list", () => ({ tools: listed }));
    server.setRequestHandler("tools/call", ({ params }) => ({ content: [], ...tools[params.name][1] }));
    return server;
  };
}

async function told(use, tools) {
  const host = await use.connected(serverOfResults(tools));
  const listed = await host.listTools();
  assert.deepEqual(
    listed.tools.map(({ name }) => name),
    Object.keys(tools),
  );
  return (name) => host.callTool({ name, arguments: {} });
}

const good = { structuredContent: { x: 1 } };
const wrong = { structuredContent: { x: "one" } };

row("client:output-schema:validate", ALL, async (use) => {
  const call = await told(use, { good: [POINT, good], wrong: [POINT, wrong] });
  assert.deepEqual((await call("good")).structuredContent, { x: 1 });
  await refused(call("wrong"), { code: ProtocolErrorCode.InvalidParams, message: /schema/ });
});

row("client:output-schema:skip-on-error", ALL, async (use) => {
  const call = await told(use, { wrong: [POINT, { ...wrong, isError: true }] });
  assert.equal((await call("wrong")).isError, true);
});

row("client:output-schema:missing-structured", ALL, async (use) => {
  const call = await told(use, { none: [POINT, {}] });
  await refused(call("none"), { message: /structured content/ });
});

row("client:jsonschema:same-document-ref-ok", ALL, async (use) => {
  const call = await told(use, { good: [POINT, good] });
  assert.deepEqual((await call("good")).structuredContent, { x: 1 });
});

row("client:jsonschema:unsupported-dialect-graceful", ALL, async (use) => {
  const call = await told(use, { far: [{ $schema: DIALECT, ...POINT }, good] });
  await refused(call("far"), { code: ProtocolErrorCode.InvalidParams, message: /dialect/ });
});

row("client:jsonschema:bad-schema-isolates-tool", ALL, async (use) => {
  const far = { ...POINT, properties: { x: { $ref: "https://example.com/no-such-schema" } } };
  const call = await told(use, { far: [far, good], good: [POINT, good] });
  await refused(call("far"), { code: ProtocolErrorCode.InvalidParams });
  assert.deepEqual((await call("good")).structuredContent, { x: 1 });
});

row("client:jsonschema:non-object-output", [MODERN], async (use) => {
  const call = await told(use, { list: [{ type: "array", items: { type: "string" } }, { structuredContent: ["a"] }] });
  assert.deepEqual((await call("list")).structuredContent, ["a"]);
});

for (const [id, $schema] of [
  ["client:jsonschema:2020-12:prefixItems", { $schema: "https://json-schema.org/draft/2020-12/schema" }],
  ["client:jsonschema:dialect:default-is-2020-12", {}],
]) {
  row(id, ALL, async (use) => {
    const pair = {
      ...$schema,
      type: "object",
      properties: { of: { prefixItems: [{ type: "string" }, { type: "number" }] } },
    };
    const call = await told(use, {
      good: [pair, { structuredContent: { of: ["a", 1] } }],
      wrong: [pair, { structuredContent: { of: [1, "a"] } }],
    });
    assert.deepEqual((await call("good")).structuredContent, { of: ["a", 1] });
    await refused(call("wrong"), { code: ProtocolErrorCode.InvalidParams });
  });
}

row("client:jsonschema:falsy-structured-content-validated", [MODERN], async (use) => {
  const tools = {
    zero: [{ type: "integer" }, { structuredContent: 0 }],
    no: [{ type: "boolean" }, { structuredContent: false }],
    empty: [{ type: "string" }, { structuredContent: "" }],
    nothing: [{ type: "null" }, { structuredContent: null }],
    wrong: [{ type: "string" }, { structuredContent: 0 }],
  };
  const call = await told(use, tools);
  for (const name of ["zero", "no", "empty", "nothing"]) {
    assert.deepEqual((await call(name)).structuredContent, tools[name][1].structuredContent);
  }
  await refused(call("wrong"), { code: ProtocolErrorCode.InvalidParams });
});

const output = (outputSchema, result) => () =>
  made((server) => server.registerTool("tell", { outputSchema }, () => result));
const call = async (use, factory) => (await use.connected(factory)).callTool({ name: "tell", arguments: {} });
const list = fromJsonSchema({ type: "array", items: { type: "number" } });
const either = z.union([z.object({ name: z.string() }), z.string()]);

for (const [id, result] of [
  ["mcpserver:output-schema:missing-structured", text("no structure")],
  ["typescript:mcpserver:output-schema:server-validate", { ...text("wrong"), structuredContent: { n: "one" } }],
]) {
  row(id, ALL, async (use) => {
    const factory = output(z.object({ n: z.number() }), result);
    const ended = await call(use, factory).catch((error) => ({ isError: true, ...text(error.message) }));
    assert.ok(ended.isError);
    assert.match(textOf(ended), /output/i);
  });
}

row("mcpserver:output-schema:skip-on-error", ALL, async (use) => {
  const result = await call(use, output(z.object({ n: z.number() }), { ...text("no paper"), isError: true }));
  assert.deepEqual([result.isError, textOf(result)], [true, "no paper"]);
});

row(["tools:call:structured-content", "tools:call:structured-content:text-mirror"], ALL, async (use) => {
  const structuredContent = { n: 4.5, list: [1, "two", null], deep: { ü: true } };
  const outputSchema = z.looseObject({ n: z.number() });
  const host = await use.connected(
    output(outputSchema, { structuredContent, ...text(JSON.stringify(structuredContent)) }),
  );
  const [listed] = (await host.listTools()).tools;
  assert.deepEqual(listed.outputSchema.properties.n, { type: "number" });
  const result = await host.callTool({ name: "tell", arguments: {} });
  assert.deepEqual([result.structuredContent, JSON.parse(textOf(result))], [structuredContent, structuredContent]);
});

row("server:jsonschema:array-structured-content-textfallback", [MODERN], async (use) => {
  const result = await call(use, output(list, { structuredContent: [1, 2], content: [] }));
  assert.deepEqual([result.structuredContent, textOf(result)], [[1, 2], "[1,2]"]);
});

row("server:jsonschema:array-structured-content-textfallback (own text)", [MODERN], async (use) => {
  const result = await call(use, output(list, { structuredContent: [1], ...text("one") }));
  assert.deepEqual([result.structuredContent, textOf(result)], [[1], "one"]);
});

for (const [type, value] of [
  ["string", "words"],
  ["number", 4.5],
  ["boolean", false],
  ["null", null],
]) {
  row(`server:jsonschema:primitive-structured-content (${type})`, [MODERN], async (use) => {
    const result = await call(use, output(fromJsonSchema({ type }), { structuredContent: value, content: [] }));
    assert.deepEqual([result.structuredContent, textOf(result)], [value, JSON.stringify(value)]);
  });
}

row("server:jsonschema:union-output-natural", [MODERN], async (use) => {
  const host = await use.connected(output(either, { structuredContent: "a name", content: [] }));
  const [{ outputSchema }] = (await host.listTools()).tools;
  assert.ok(outputSchema.anyOf);
  const result = await host.callTool({ name: "tell", arguments: {} });
  assert.deepEqual([result.structuredContent, textOf(result)], ["a name", '"a name"']);
});

row("2025:jsonschema:non-object-output-wrapped", LEGACY, async (use) => {
  const host = await use.connected(output(list, { structuredContent: [1], content: [] }));
  const [{ outputSchema }] = (await host.listTools()).tools;
  assert.deepEqual([outputSchema.type, outputSchema.required], ["object", ["result"]]);
  assert.equal(outputSchema.properties.result.type, "array");
});

row("2025:jsonschema:non-object-structured-content-wrapped", LEGACY, async (use) => {
  const result = await call(use, output(list, { structuredContent: [1], content: [] }));
  assert.deepEqual([result.structuredContent, textOf(result)], [{ result: [1] }, "[1]"]);
});

row("2025:jsonschema:schemaless-non-object-sc-wrapped", LEGACY, async (use) => {
  const set = (server) => server.registerTool("tell", {}, () => ({ structuredContent: 5, content: [] }));
  assert.deepEqual((await call(use, () => made(set))).structuredContent, { result: 5 });
});

row("2025:jsonschema:wrap-follows-schema-not-value", LEGACY, async (use) => {
  const result = await call(use, output(either, { structuredContent: { name: "Ada" }, content: [] }));
  assert.deepEqual(result.structuredContent, { result: { name: "Ada" } });
});

row("2025:jsonschema:ref-rewrite-on-wrap", LEGACY, async (use) => {
  const tree = fromJsonSchema({ type: "array", items: { $ref: "#/$defs/leaf" }, $defs: { leaf: { type: "number" } } });
  const host = await use.connected(output(tree, { structuredContent: [1], content: [] }));
  const [{ outputSchema }] = (await host.listTools()).tools;
  assert.equal(outputSchema.properties.result.items.$ref, "#/properties/result/$defs/leaf");
  const { structuredContent } = await host.callTool({ name: "tell", arguments: {} });
  assert.deepEqual(structuredContent, { result: [1] });
});

row("2025:jsonschema:ref-rewrite-scope", LEGACY, async (use) => {
  const literal = { $ref: "#/$defs/leaf" };
  const schema = { type: "array", items: { ...literal, default: literal }, $defs: { leaf: { type: "number" } } };
  const host = await use.connected(output(fromJsonSchema(schema), { structuredContent: [1], content: [] }));
  const [{ outputSchema }] = (await host.listTools()).tools;
  const { items } = outputSchema.properties.result;
  assert.deepEqual([items.$ref, items.default], ["#/properties/result/$defs/leaf", literal]);
});
