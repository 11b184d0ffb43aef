// Rows of what a server of the legacy era asks its host in the middle of a call: elicitation, sampling and roots.

import { ProtocolError, ProtocolErrorCode, SdkErrorCode } from "@modelcontextprotocol/client";
import { UrlElicitationRequiredError } from "@modelcontextprotocol/server";
import { z } from "zod";

import {
  BOTH,
  QUESTIONS,
  CHANNEL,
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

/** A host that may be asked these things, connected to a server whose tool asks; with what the host has heard. */
async function asked(use, ask, { capabilities, answers = {}, served, ...options }) {
  const heard = new Noted();
  const host = use.host({ capabilities, ...options });
  for (const [method, answer] of Object.entries(answers)) {
    host.setRequestHandler(method, async (request, ctx) => {
      heard.push(request.params);
      return typeof answer === "function" ? answer(request.params, ctx) : answer;
    });
  }
  const set = (server) =>
    server.registerTool("ask", {}, async (ctx) => {
      try {
        return text(JSON.stringify({ answer: await ask(ctx, server.server) }));
      } catch (error) {
        return text(JSON.stringify({ code: error.code, message: error.message, data: error.data }));
      }
    });
  const connection = await use.connect(host, () => made(set, served));
  const call = async () => JSON.parse(textOf(await host.callTool({ name: "ask", arguments: {} })));
  return { heard: heard.items, call, host, noted: heard, ...connection };
}

const FORM = {
  mode: "form",
  message: "Who?",
  requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
};
const URL_MODE = { mode: "url", message: "Sign in", url: "https://example.com/in?a=1&b=%20", elicitationId: "e-7" };
const forms = { elicitation: { form: {} } };
const urls = { elicitation: { url: {} } };
const elicit = (params) => (ctx) => ctx.mcpReq.elicitInput(params);
const accept = (content) => ({ "elicitation/create": { action: "accept", content } });

row("elicitation:form:basic", QUESTIONS, async (use) => {
  const { call, heard } = await asked(use, elicit(FORM), { capabilities: forms, answers: accept({ name: "Ada" }) });
  await call();
  assert.deepEqual(heard, [FORM]);
});

row(
  ["elicitation:form:action:accept", "mcpserver:context:elicit-from-handler", "tools:call:elicitation-roundtrip"],
  QUESTIONS,
  async (use) => {
    const { call } = await asked(use, elicit(FORM), { capabilities: forms, answers: accept({ name: "Ada" }) });
    assert.deepEqual(await call(), { answer: { action: "accept", content: { name: "Ada" } } });
  },
);

for (const action of ["cancel", "decline"]) {
  row(`elicitation:form:action:${action}`, QUESTIONS, async (use) => {
    const { call } = await asked(use, elicit(FORM), {
      capabilities: forms,
      answers: { "elicitation/create": { action } },
    });
    assert.deepEqual(await call(), { answer: { action } });
  });
  row(`elicitation:url:action:${action}`, QUESTIONS, async (use) => {
    const { call } = await asked(use, elicit(URL_MODE), {
      capabilities: urls,
      answers: { "elicitation/create": { action } },
    });
    assert.deepEqual(await call(), { answer: { action } });
  });
}

row("elicitation:form:defaults", QUESTIONS, async (use) => {
  const requestedSchema = {
    type: "object",
    properties: { name: { type: "string", default: "Eve" }, age: { type: "integer", default: 7 } },
  };
  const { call } = await asked(use, elicit({ ...FORM, requestedSchema }), {
    capabilities: { elicitation: { form: { applyDefaults: true } } },
    answers: accept({ age: 9 }),
  });
  assert.deepEqual(await call(), { answer: { action: "accept", content: { name: "Eve", age: 9 } } });
});

row("elicitation:form:mode-omitted-default", QUESTIONS, async (use) => {
  const { mode, ...params } = FORM;
  const { call, heard } = await asked(use, elicit(params), { capabilities: forms, answers: accept({ name: "Ada" }) });
  assert.equal((await call()).answer.action, "accept");
  assert.ok(heard[0].mode === undefined || heard[0].mode === mode);
});

row("elicitation:form:schema:primitives", QUESTIONS, async (use) => {
  const requestedSchema = {
    type: "object",
    properties: {
      mail: { type: "string", format: "email", title: "Mail", minLength: 3, maxLength: 40 },
      day: { type: "string", format: "date" },
      height: { type: "number", minimum: 0.5, maximum: 2.5 },
      age: { type: "integer", minimum: 0 },
      sure: { type: "boolean", default: true },
    },
    required: ["mail"],
  };
  const content = { mail: "a@example.com", day: "2026-01-02", height: 1.5, age: 3, sure: false };
  const { call, heard } = await asked(use, elicit({ ...FORM, requestedSchema }), {
    capabilities: forms,
    answers: accept(content),
  });
  assert.deepEqual(await call(), { answer: { action: "accept", content } });
  assert.deepEqual(heard[0].requestedSchema, requestedSchema);
});

row("elicitation:form:schema:enum-variants", QUESTIONS, async (use) => {
  const requestedSchema = {
    type: "object",
    properties: {
      plain: { type: "string", enum: ["a", "b"] },
      titled: {
        type: "string",
        oneOf: [
          { const: "a", title: "A" },
          { const: "b", title: "B" },
        ],
      },
      named: { type: "string", enum: ["a", "b"], enumNames: ["A", "B"] },
      several: { type: "array", items: { type: "string", enum: ["a", "b"] }, minItems: 1, maxItems: 2 },
      titles: {
        type: "array",
        items: {
          anyOf: [
            { const: "a", title: "A" },
            { const: "b", title: "B" },
          ],
        },
      },
    },
  };
  const content = { plain: "a", titled: "b", named: "a", several: ["a", "b"], titles: ["b"] };
  const { call, heard } = await asked(use, elicit({ ...FORM, requestedSchema }), {
    capabilities: forms,
    answers: accept(content),
  });
  assert.deepEqual(await call(), { answer: { action: "accept", content } });
  assert.deepEqual(heard[0].requestedSchema, requestedSchema);
});

row("elicitation:form:response-validation", QUESTIONS, async (use) => {
  const { call } = await asked(use, elicit(FORM), { capabilities: forms, answers: accept({ name: 5 }) });
  assert.equal((await call()).code, ProtocolErrorCode.InvalidParams);
});

row("elicitation:url:basic", QUESTIONS, async (use) => {
  const { call, heard } = await asked(use, elicit(URL_MODE), {
    capabilities: urls,
    answers: { "elicitation/create": { action: "accept" } },
  });
  await call();
  assert.deepEqual(heard, [URL_MODE]);
});

row("elicitation:url:action:accept-no-content", QUESTIONS, async (use) => {
  const answers = { "elicitation/create": { action: "accept" } };
  const { call } = await asked(use, elicit(URL_MODE), { capabilities: urls, answers });
  assert.deepEqual(await call(), { answer: { action: "accept" } });
});

row("elicitation:url:complete-notification", CHANNEL, async (use) => {
  const done = new Noted();
  const ask = async (ctx, server) => {
    const answer = await ctx.mcpReq.elicitInput(URL_MODE);
    await server.createElicitationCompletionNotifier(URL_MODE.elicitationId)();
    return answer;
  };
  const { call, host } = await asked(use, ask, {
    capabilities: urls,
    answers: { "elicitation/create": { action: "accept" } },
  });
  host.setNotificationHandler("notifications/elicitation/complete", ({ params }) => done.push(params.elicitationId));
  await call();
  await done.atLeast(1, "news");
  assert.deepEqual(done.items, ["e-7"]);
});

row("elicitation:url:complete-unknown-ignored", CHANNEL, async (use) => {
  const done = new Noted();
  const ask = (ctx, server) =>
    server
      .createElicitationCompletionNotifier("of nobody")()
      .then(() => "told");
  const { call, host } = await asked(use, ask, { capabilities: urls });
  host.onerror = (error) => done.push(error);
  assert.deepEqual(await call(), { answer: "told" });
  assert.deepEqual(await host.ping(), {});
  assert.deepEqual(done.items, []);
});

row("elicitation:capability:empty-is-form", QUESTIONS, async (use) => {
  const { call } = await asked(use, elicit(FORM), {
    capabilities: { elicitation: {} },
    answers: accept({ name: "Ada" }),
  });
  assert.equal((await call()).answer.action, "accept");
});

row("elicitation:capability:mode-mismatch", QUESTIONS, async (use) => {
  const ask = (ctx) => ctx.mcpReq.send({ method: "elicitation/create", params: URL_MODE });
  const { call, heard } = await asked(use, ask, { capabilities: forms, answers: accept({}) });
  assert.equal((await call()).code, ProtocolErrorCode.InvalidParams);
  assert.deepEqual(heard, []);
});

row("elicitation:capability:server-respects-mode", QUESTIONS, async (use) => {
  const { call, heard } = await asked(use, elicit(URL_MODE), { capabilities: forms, answers: accept({}) });
  assert.equal((await call()).code, SdkErrorCode.CapabilityNotSupported);
  assert.deepEqual(heard, []);
});

row("elicitation:capability:not-declared", QUESTIONS, async (use) => {
  for (const params of [FORM, URL_MODE]) {
    const { call } = await asked(use, elicit(params), { capabilities: {} });
    assert.equal((await call()).code, SdkErrorCode.CapabilityNotSupported);
  }
});

row("flow:elicitation:multi-step-form", QUESTIONS, async (use) => {
  const step = (property, message) => ({
    mode: "form",
    message,
    requestedSchema: { type: "object", properties: { [property]: { type: "string" } }, required: [property] },
  });
  const ask = async (ctx) => {
    const first = await ctx.mcpReq.elicitInput(step("city", "Where?"));
    if (first.action !== "accept") return `ended at first: ${first.action}`;
    const second = await ctx.mcpReq.elicitInput(step("day", `When in ${first.content.city}?`));
    return second.action === "accept"
      ? `${first.content.city} on ${second.content.day}`
      : `ended at second: ${second.action}`;
  };
  const plans = [
    [
      { action: "accept", content: { city: "Oslo" } },
      { action: "accept", content: { day: "Monday" } },
    ],
    [{ action: "accept", content: { city: "Oslo" } }, { action: "decline" }],
    [{ action: "cancel" }],
  ];
  const answers = { "elicitation/create": () => plans[0].shift() };
  const { call, heard } = await asked(use, ask, { capabilities: forms, answers });
  for (const wanted of ["Oslo on Monday", "ended at second: decline", "ended at first: cancel"]) {
    assert.deepEqual(await call(), { answer: wanted });
    plans.shift();
  }
  assert.deepEqual(
    heard.map(({ message }) => message),
    ["Where?", "When in Oslo?", "Where?", "When in Oslo?", "Where?"],
  );
});

row("flow:elicitation:url-at-session-init", [SESSIONS], async (use) => {
  const heard = new Noted();
  const host = use.host({ capabilities: urls });
  host.setRequestHandler("elicitation/create", ({ params }) => {
    heard.push(params);
    return { action: "accept" };
  });
  const open = promised();
  const factory = () => {
    const server = made((each) => each.registerTool("none", {}, () => text("")));
    server.server.oninitialized = async () => {
      if (!server.server.getClientCapabilities().elicitation?.url) return;
      await open;
      await server.server.elicitInput(URL_MODE).catch(() => {});
    };
    return server;
  };
  const { transport } = await use.connect(host, factory);
  open.resolve();
  await heard.atLeast(1, "question");
  assert.deepEqual(heard.items, [URL_MODE]);
  const requests = transport.noted.items.filter(({ body }) => body?.method && "id" in body);
  assert.deepEqual(
    requests.map(({ body }) => body.method),
    ["initialize"],
  );
});

row("flow:elicitation:url-required-then-retry", CHANNEL, async (use) => {
  const done = new Noted();
  let signedIn = false;
  const set = (server) => {
    server.registerTool("private", {}, () => {
      if (!signedIn) throw new UrlElicitationRequiredError([URL_MODE]);
      return text("welcome");
    });
    server.registerTool("sign_in", {}, async () => {
      signedIn = true;
      await server.server.createElicitationCompletionNotifier(URL_MODE.elicitationId)();
      return text("signed in");
    });
  };
  const host = use.host({ capabilities: urls });
  host.setNotificationHandler("notifications/elicitation/complete", ({ params }) => done.push(params.elicitationId));
  await use.connect(host, () => made(set));
  const error = await refused(host.callTool({ name: "private", arguments: {} }), { code: -32042 });
  assert.deepEqual(error.elicitations, [URL_MODE]);
  await host.callTool({ name: "sign_in", arguments: {} });
  await done.atLeast(1, "news");
  assert.equal(textOf(await host.callTool({ name: "private", arguments: {} })), "welcome");
});

const user = (words) => ({ role: "user", content: { type: "text", text: words } });
const thought = { role: "assistant", content: { type: "text", text: "Four." }, model: "parrot", stopReason: "endTurn" };
const think = (params) => (ctx) =>
  ctx.mcpReq.requestSampling({ messages: [user("Two and two?")], maxTokens: 10, ...params });
const thinks = { "sampling/createMessage": thought };

row(
  ["sampling:create:basic", "mcpserver:context:sampling-from-handler", "tools:call:sampling-roundtrip"],
  QUESTIONS,
  async (use) => {
    const { call, heard } = await asked(use, think({}), { capabilities: { sampling: {} }, answers: thinks });
    assert.deepEqual(await call(), { answer: thought });
    assert.deepEqual(heard, [{ messages: [user("Two and two?")], maxTokens: 10 }]);
  },
);

const PASSED = {
  "sampling:create:system-prompt": { systemPrompt: "Be brief.\nBe kind." },
  "sampling:create:model-preferences": {
    modelPreferences: { hints: [{ name: "small" }, {}], costPriority: 0, speedPriority: 1, intelligencePriority: 0.5 },
  },
  "sampling:create:include-context": {
    includeContext: "none",
    temperature: 0.5,
    stopSequences: ["."],
    metadata: { a: [1] },
  },
};

for (const [id, params] of Object.entries(PASSED)) {
  row(id, QUESTIONS, async (use) => {
    const { call, heard } = await asked(use, think(params), { capabilities: { sampling: {} }, answers: thinks });
    await call();
    assert.deepEqual(heard, [{ messages: [user("Two and two?")], maxTokens: 10, ...params }]);
  });
}

row("sampling:create:include-context (with the capability)", QUESTIONS, async (use) => {
  const options = { capabilities: { sampling: { context: {} } }, answers: thinks };
  const { call, heard } = await asked(use, think({ includeContext: "thisServer" }), options);
  await call();
  assert.equal(heard[0].includeContext, "thisServer");
});

const weather = { name: "weather", inputSchema: { type: "object", properties: { city: { type: "string" } } } };
const used = { type: "tool_use", id: "use-1", name: "weather", input: { city: "Oslo" } };
const toolUse = { role: "assistant", content: [used], model: "parrot", stopReason: "toolUse" };
const withTools = { capabilities: { sampling: { tools: {} } } };

row(["sampling:create:tools", "sampling:result:with-tools-array-content"], QUESTIONS, async (use) => {
  const params = { tools: [weather], toolChoice: { mode: "required" } };
  const { call, heard } = await asked(use, think(params), {
    ...withTools,
    answers: { "sampling/createMessage": toolUse },
  });
  assert.deepEqual(await call(), { answer: toolUse });
  assert.deepEqual(heard[0].tools, [weather]);
  assert.deepEqual(heard[0].toolChoice, { mode: "required" });
});

row("sampling:result:no-tools-single-content", QUESTIONS, async (use) => {
  const several = { ...thought, content: [thought.content, thought.content] };
  const { call } = await asked(use, think({}), {
    capabilities: { sampling: {} },
    answers: { "sampling/createMessage": several },
  });
  assert.ok((await call()).code);
});

row("sampling:message:content-cardinality", QUESTIONS, async (use) => {
  const messages = [
    user("One"),
    {
      role: "user",
      content: [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
    },
  ];
  const { call, heard } = await asked(use, think({ messages }), { capabilities: { sampling: {} }, answers: thinks });
  await call();
  assert.deepEqual(heard[0].messages, messages);
});

const MEDIA = {
  "sampling:create:image-content": { type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" },
  "sampling:create:audio-content": { type: "audio", data: "UklGRg==", mimeType: "audio/wav" },
};

for (const [id, content] of Object.entries(MEDIA)) {
  row(id, QUESTIONS, async (use) => {
    const answers = { "sampling/createMessage": { ...thought, content } };
    const params = { messages: [{ role: "user", content }] };
    const { call, heard } = await asked(use, think(params), { capabilities: { sampling: {} }, answers });
    assert.deepEqual((await call()).answer.content, content);
    assert.deepEqual(heard[0].messages, params.messages);
  });
}

row("sampling:error:user-rejected", QUESTIONS, async (use) => {
  const reject = () => {
    throw new ProtocolError(-1, "User rejected sampling request", { why: "busy" });
  };
  const { call } = await asked(use, think({}), {
    capabilities: { sampling: {} },
    answers: { "sampling/createMessage": reject },
  });
  const { code, message, data } = await call();
  assert.deepEqual([code, data], [-1, { why: "busy" }]);
  assert.match(message, /User rejected sampling request/);
});

const result = { type: "tool_result", toolUseId: "use-1", content: [{ type: "text", text: "sun" }] };
const BROKEN = {
  "sampling:tool-result:no-mixed-content": [
    { role: "assistant", content: [used] },
    { role: "user", content: [result, { type: "text", text: "and?" }] },
  ],
  "sampling:tool-use:result-balance": [{ role: "assistant", content: [used] }, user("And?")],
};

for (const [id, messages] of Object.entries(BROKEN)) {
  row(id, QUESTIONS, async (use) => {
    const ask = think({ messages: [user("Weather?"), ...messages], tools: [weather] });
    const { call } = await asked(use, ask, { ...withTools, answers: thinks });
    assert.ok((await call()).message);
  });
}

row("sampling:tools:server-gated-by-capability", QUESTIONS, async (use) => {
  const options = { capabilities: { sampling: {} }, answers: thinks };
  const { call, heard } = await asked(use, think({ tools: [weather] }), options);
  assert.ok((await call()).code);
  assert.deepEqual(heard, []);
});

row("sampling:create:not-supported", QUESTIONS, async (use) => {
  const { call } = await asked(use, think({}), { capabilities: {}, served: { enforceStrictCapabilities: true } });
  assert.equal((await call()).code, SdkErrorCode.CapabilityNotSupported);
});

row("sampling:capability:declare", QUESTIONS, async (use) => {
  const known = (ctx, server) => server.getClientCapabilities().sampling;
  const { call } = await asked(use, known, { ...withTools, answers: thinks });
  assert.deepEqual(await call(), { answer: { tools: {} } });
});

const roots = (ctx, server) => server.listRoots(undefined, { relatedRequestId: ctx.mcpReq.id });

for (const [id, given] of [
  ["roots:list:basic", [{ uri: "file:///srv/books", name: "Books" }, { uri: "file:///tmp" }]],
  ["roots:list:empty", []],
]) {
  row(id, QUESTIONS, async (use) => {
    const options = { capabilities: { roots: {} }, answers: { "roots/list": { roots: given } } };
    const { call } = await asked(use, roots, options);
    assert.deepEqual(await call(), { answer: { roots: given } });
  });
}

row("roots:list:client-error", QUESTIONS, async (use) => {
  const refuse = () => {
    throw new ProtocolError(ProtocolErrorCode.InternalError, "the disk is gone");
  };
  const { call } = await asked(use, roots, { capabilities: { roots: {} }, answers: { "roots/list": refuse } });
  const { code, message } = await call();
  assert.equal(code, ProtocolErrorCode.InternalError);
  assert.match(message, /the disk is gone/);
});

row("roots:list:not-supported", QUESTIONS, async (use) => {
  const ask = (ctx) => ctx.mcpReq.send({ method: "roots/list" });
  const { call } = await asked(use, ask, { capabilities: {} });
  assert.equal((await call()).code, ProtocolErrorCode.MethodNotFound);
});

row("roots:list-changed", CHANNEL, async (use) => {
  const changed = new Noted();
  const factory = () => {
    const server = made((each) => each.registerTool("none", {}, () => text("")));
    server.server.setNotificationHandler("notifications/roots/list_changed", () => changed.push("changed"));
    return server;
  };
  const host = await use.connected(factory, { capabilities: { roots: { listChanged: true } } });
  await host.sendRootsListChanged();
  await changed.atLeast(1, "news");
});

row("custom-methods:client-handler:roundtrip", CHANNEL, async (use) => {
  const schemas = { params: z.object({ word: z.string() }), result: z.object({ reversed: z.string() }) };
  const ask = (ctx) => ctx.mcpReq.send({ method: "com.example/reverse", params: { word: "abc" } }, schemas.result);
  const heard = new Noted();
  const host = use.host();
  host.setRequestHandler("com.example/reverse", schemas, ({ word }) => {
    heard.push(word);
    return { reversed: [...word].reverse().join("") };
  });
  const set = (server) => server.registerTool("ask", {}, async (ctx) => text((await inTime(ask(ctx))).reversed));
  await use.connect(host, () => made(set));
  assert.equal(textOf(await host.callTool({ name: "ask", arguments: {} })), "cba");
});

row("transport:streamable-http:stateless-restrictions", [STATELESS, BOTH], async (use) => {
  const { call, heard } = await asked(use, elicit(FORM), { capabilities: forms, answers: accept({ name: "Ada" }) });
  assert.ok((await call()).message);
  assert.deepEqual(heard, []);
});
