// Rows of resources, prompts and completions, and of lists in pages.

import { ProtocolErrorCode } from "@modelcontextprotocol/client";
import { ProtocolError, ResourceTemplate, Server, completable } from "@modelcontextprotocol/server";
import { z } from "zod";

import { ALL, LEGACY, assert, made, only, refused, row, text } from "./rows.mjs";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const annotations = { audience: ["user", "assistant"], priority: 0.25, lastModified: "2026-01-02T03:04:05Z" };

function library(server) {
  const about = { title: "One", description: "The first", mimeType: "text/plain", annotations };
  server.registerResource("one", "book://1", about, ({ href }) => ({
    contents: [{ uri: href, mimeType: "text/plain", text: "Once upon\na time", annotations }],
  }));
  server.registerResource("cover", "book://1/cover", {}, ({ href }) => ({
    contents: [{ uri: href, mimeType: "image/png", blob: PIXEL }],
  }));
  const template = new ResourceTemplate("book://{id}/page/{page}", {
    list: () => ({ resources: [{ uri: "book://1/page/1", name: "first page", description: "of one" }] }),
    complete: { page: (value) => ["1", "10", "2"].filter((each) => each.startsWith(value)) },
  });
  server.registerResource(
    "page",
    template,
    { title: "A page", description: "of a book", annotations },
    (uri, given) => ({
      contents: [{ uri: uri.href, text: JSON.stringify(given) }],
    }),
  );
  server.registerResource("torn", "book://torn", {}, () => {
    throw new Error("the page is torn");
  });
}

const reader = (use) => use.connected(() => made(library));

row("resources:list:basic", ALL, async (use) => {
  const { resources } = await (await reader(use)).listResources();
  const one = resources.find(({ uri }) => uri === "book://1");
  const wanted = { uri: "book://1", name: "one", title: "One", description: "The first", mimeType: "text/plain" };
  assert.deepEqual(only(one, ...Object.keys(wanted)), wanted);
  assert.equal(resources.length, 4);
});

row("resources:annotations", ALL, async (use) => {
  const host = await reader(use);
  const { resources } = await host.listResources();
  const { resourceTemplates } = await host.listResourceTemplates();
  assert.deepEqual(resources[0].annotations, annotations);
  assert.deepEqual(resourceTemplates[0].annotations, annotations);
});

row("resources:read:text", ALL, async (use) => {
  const { contents } = await (await reader(use)).readResource({ uri: "book://1" });
  const wanted = { uri: "book://1", mimeType: "text/plain", text: "Once upon\na time" };
  assert.deepEqual(only(contents[0], ...Object.keys(wanted)), wanted);
});

row("resources:read:blob", ALL, async (use) => {
  const { contents } = await (await reader(use)).readResource({ uri: "book://1/cover" });
  assert.deepEqual(contents, [{ uri: "book://1/cover", mimeType: "image/png", blob: PIXEL }]);
});

row("resources:read:template-vars", ALL, async (use) => {
  const { contents } = await (await reader(use)).readResource({ uri: "book://7/page/a%20b" });
  const { id, page } = JSON.parse(contents[0].text);
  assert.equal(id, "7");
  assert.ok(["a b", "a%20b"].includes(page));
});

row("resources:read:unknown-uri", ALL, async (use) => {
  const host = await reader(use);
  const error = await refused(host.readResource({ uri: "book://none" }), { code: ProtocolErrorCode.InvalidParams });
  assert.equal(error.data.uri, "book://none");
});

row("mcpserver:resource:read-throws-surfaced", ALL, async (use) => {
  await refused((await reader(use)).readResource({ uri: "book://torn" }), {
    code: ProtocolErrorCode.InternalError,
    message: /the page is torn/,
  });
});

row("resources:templates:list", ALL, async (use) => {
  const { resourceTemplates } = await (await reader(use)).listResourceTemplates();
  const wanted = { uriTemplate: "book://{id}/page/{page}", name: "page", title: "A page", description: "of a book" };
  assert.deepEqual(only(resourceTemplates[0], ...Object.keys(wanted)), wanted);
});

row("mcpserver:resource:template-list-callback", ALL, async (use) => {
  const { resources } = await (await reader(use)).listResources();
  assert.ok(resources.some(({ uri, name }) => uri === "book://1/page/1" && name === "first page"));
});

row("mcpserver:resource:metadata-override", ALL, async (use) => {
  const { resources } = await (await reader(use)).listResources();
  const page = resources.find(({ uri }) => uri === "book://1/page/1");
  assert.deepEqual(only(page, "title", "description"), { title: "A page", description: "of one" });
});

row("resources:subscribe:capability-required", LEGACY, async (use) => {
  const host = await reader(use);
  await refused(host.request({ method: "resources/subscribe", params: { uri: "book://1" } }), {
    code: ProtocolErrorCode.MethodNotFound,
  });
});

/** A server on the raw class with three pages of a list, whose cursors mean something to it alone. */
function paged(method, field, capability, item) {
  const pages = { undefined: [1, "cursor two"], "cursor two": [2, "\u00fc=3"], "\u00fc=3": [3, undefined] };
  return () => {
    const server = new Server({ name: "server", version: "1" }, { capabilities: { [capability]: {} } });
    server.setRequestHandler(method, ({ params }) => {
      if (!(`${params?.cursor}` in pages)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "no such cursor");
      const [number, nextCursor] = pages[params?.cursor];
      return { [field]: [item(number)], ...(nextCursor && { nextCursor }) };
    });
    return server;
  };
}

const LISTS = {
  "resources:list:pagination": [
    "resources/list",
    "resources",
    "resources",
    (number) => ({ uri: `book://${number}`, name: `${number}` }),
  ],
  "resources:templates:pagination": [
    "resources/templates/list",
    "resourceTemplates",
    "resources",
    (number) => ({ uriTemplate: `book://${number}/{page}`, name: `${number}` }),
  ],
  "prompts:list:pagination": ["prompts/list", "prompts", "prompts", (number) => ({ name: `${number}` })],
  "pagination:client:cursor-handling": [
    "tools/list",
    "tools",
    "tools",
    (number) => ({ name: `${number}`, inputSchema: { type: "object" } }),
  ],
};

for (const [id, [method, field, capability, item]] of Object.entries(LISTS)) {
  row(id, ALL, async (use) => {
    const host = await use.connected(paged(method, field, capability, item));
    const names = [];
    let cursor;
    do {
      const page = await host.request({ method, params: cursor ? { cursor } : {} });
      names.push(...page[field].map(({ name }) => name));
      cursor = page.nextCursor;
    } while (cursor);
    assert.deepEqual(names, ["1", "2", "3"]);
  });
}

row("pagination:invalid-cursor", ALL, async (use) => {
  const host = await use.connected(paged(...LISTS["resources:list:pagination"]));
  const request = host.request({ method: "resources/list", params: { cursor: "of nobody" } });
  await refused(request, { code: ProtocolErrorCode.InvalidParams, message: /no such cursor/ });
});

const MESSAGES = {
  "prompts:get:content:audio": { type: "audio", data: "UklGRg==", mimeType: "audio/wav" },
  "prompts:get:content:image": { type: "image", data: PIXEL, mimeType: "image/png" },
  "prompts:get:content:embedded-resource": {
    type: "resource",
    resource: { uri: "book://1", mimeType: "text/plain", text: "Once" },
  },
};

const said = (role, words) => ({ role, content: { type: "text", text: words } });

for (const [id, content] of Object.entries(MESSAGES)) {
  row(id, ALL, async (use) => {
    const messages = [{ role: "user", content }];
    const host = await use.connected(() => made((server) => server.registerPrompt("show", {}, () => ({ messages }))));
    assert.deepEqual((await host.getPrompt({ name: "show" })).messages, messages);
  });
}

const many = Array.from({ length: 150 }, (_, at) => `city ${at}`);

function questions(server) {
  const argsSchema = z.object({
    city: completable(z.string().describe("Where"), (value, context) => {
      const { country } = context?.arguments ?? {};
      return country ? [`${value} in ${country}`] : ["Oslo", "Rome"].filter((each) => each.startsWith(value));
    }),
    days: z.string().optional(),
  });
  server.registerPrompt("weather", { title: "Weather", description: "Asks for it", argsSchema }, ({ city, days }) => ({
    description: "A question",
    messages: [
      said("user", `Weather in ${city} for ${days ?? "one"}?`),
      said("assistant", "Sun."),
      said("user", "Sure?"),
    ],
  }));
  server.registerPrompt("hello", {}, () => ({ messages: [said("user", "Hello")] }));
  const all = z.object({ all: completable(z.string(), () => many), rest: z.enum(["red", "green"]) });
  server.registerPrompt("all", { argsSchema: all }, () => ({ messages: [] }));
  library(server);
}

const asker = (use) => use.connected(() => made(questions));

row("prompts:list:basic", ALL, async (use) => {
  const [prompt] = (await (await asker(use)).listPrompts()).prompts;
  assert.deepEqual(only(prompt, "name", "title", "description"), {
    name: "weather",
    title: "Weather",
    description: "Asks for it",
  });
  assert.deepEqual(prompt.arguments, [
    { name: "city", description: "Where", required: true },
    { name: "days", required: false },
  ]);
});

row("prompts:get:with-args", ALL, async (use) => {
  const prompt = await (await asker(use)).getPrompt({ name: "weather", arguments: { city: "Oslo", days: "3" } });
  assert.equal(prompt.description, "A question");
  assert.deepEqual(prompt.messages[0], said("user", "Weather in Oslo for 3?"));
});

row("mcpserver:prompt:optional-args", ALL, async (use) => {
  const { messages } = await (await asker(use)).getPrompt({ name: "weather", arguments: { city: "Rome" } });
  assert.equal(messages[0].content.text, "Weather in Rome for one?");
});

row("prompts:get:no-args", ALL, async (use) => {
  assert.deepEqual((await (await asker(use)).getPrompt({ name: "hello" })).messages, [said("user", "Hello")]);
});

row("prompts:get:multi-message", ALL, async (use) => {
  const { messages } = await (await asker(use)).getPrompt({ name: "weather", arguments: { city: "Rome" } });
  assert.deepEqual(
    messages.map(({ role }) => role),
    ["user", "assistant", "user"],
  );
});

row("prompts:get:missing-required-args", ALL, async (use) => {
  const host = await asker(use);
  await refused(host.getPrompt({ name: "weather", arguments: {} }), {
    code: ProtocolErrorCode.InvalidParams,
    message: /city/,
  });
});

row("mcpserver:prompt:args-validation", ALL, async (use) => {
  const host = await asker(use);
  const request = host.getPrompt({ name: "all", arguments: { all: "a", rest: "blue" } });
  await refused(request, { code: ProtocolErrorCode.InvalidParams, message: /rest/ });
});

row("prompts:get:unknown-name", ALL, async (use) => {
  const host = await asker(use);
  await refused(host.getPrompt({ name: "none" }), { code: ProtocolErrorCode.InvalidParams, message: /none/ });
});

const weather = { type: "ref/prompt", name: "weather" };
const complete = async (use, params) => (await (await asker(use)).complete(params)).completion;

row("completion:prompt-arg", ALL, async (use) => {
  const { values } = await complete(use, { ref: weather, argument: { name: "city", value: "R" } });
  assert.deepEqual(values, ["Rome"]);
});

row("completion:resource-template-arg", ALL, async (use) => {
  const ref = { type: "ref/resource", uri: "book://{id}/page/{page}" };
  const { values } = await complete(use, { ref, argument: { name: "page", value: "1" } });
  assert.deepEqual(values, ["1", "10"]);
});

row("completion:context-arguments", ALL, async (use) => {
  const context = { arguments: { country: "Norway" } };
  const { values } = await complete(use, { ref: weather, argument: { name: "city", value: "O" }, context });
  assert.deepEqual(values, ["O in Norway"]);
});

row("completion:result-shape", ALL, async (use) => {
  const ref = { type: "ref/prompt", name: "all" };
  const { values, total, hasMore } = await complete(use, { ref, argument: { name: "all", value: "" } });
  assert.deepEqual([values.length, total, hasMore], [100, 150, true]);
});

row("completion:error:invalid-ref", ALL, async (use) => {
  const host = await asker(use);
  for (const ref of [
    { type: "ref/prompt", name: "none" },
    { type: "ref/resource", uri: "film://{id}" },
  ]) {
    await refused(host.complete({ ref, argument: { name: "a", value: "" } }), {
      code: ProtocolErrorCode.InvalidParams,
    });
  }
});

row("completion:capability:declared", ALL, async (use) => {
  assert.ok((await asker(use)).getServerCapabilities().completions);
});

row("mcpserver:completion:capability-auto", ALL, async (use) => {
  const set = (server) => server.registerPrompt("hello", {}, () => ({ messages: [] }));
  assert.equal((await use.connected(() => made(set))).getServerCapabilities().completions, undefined);
});

row("completion:complete:not-supported", LEGACY, async (use) => {
  const set = (server) => server.registerPrompt("hello", {}, () => ({ messages: [] }));
  const host = await use.connected(() => made(set));
  const params = { ref: { type: "ref/prompt", name: "hello" }, argument: { name: "a", value: "" } };
  await refused(host.request({ method: "completion/complete", params }), { code: ProtocolErrorCode.MethodNotFound });
});

row("standardschema:prompt:args-schema", ALL, async (use) => {
  const host = await asker(use);
  const { prompts } = await host.listPrompts();
  const all = prompts.find(({ name }) => name === "all");
  assert.deepEqual(
    all.arguments.map(({ name }) => name),
    ["all", "rest"],
  );
  assert.deepEqual((await host.getPrompt({ name: "all", arguments: { all: "a", rest: "red" } })).messages, []);
});
