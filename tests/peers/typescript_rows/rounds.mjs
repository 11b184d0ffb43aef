// Rows of questions between the rounds of a call: a server of 2026-07-28 asks in its result, and is called again.

import { SdkErrorCode } from "@modelcontextprotocol/client";
import { acceptedContent, inputRequired } from "@modelcontextprotocol/server";

import { CHANNEL, MODERN, Noted, OLDER, assert, made, refused, row, text, textOf } from "./rows.mjs";

const FORM = {
  message: "Go?",
  requestedSchema: { type: "object", properties: { sure: { type: "boolean" } }, required: ["sure"] },
};

/** A host that answers these methods, and a server whose tool asks this until it has an answer, which it returns. */
async function asked(use, question, capabilities, answers, { requestState, maxRounds, parts } = {}) {
  const heard = new Noted();
  const rounds = new Noted();
  const host = use.host({ capabilities, ...(maxRounds && { inputRequired: { maxRounds } }) });
  for (const [method, answer] of Object.entries(answers)) {
    host.setRequestHandler(method, async ({ params }) => {
      heard.push(params);
      return answer;
    });
  }
  const set = (server) =>
    server.registerTool("ask", {}, (ctx) => {
      rounds.push({ id: ctx.mcpReq.id, state: ctx.mcpReq.requestState(), responses: ctx.mcpReq.inputResponses });
      const said = ctx.mcpReq.inputResponses?.said;
      if (said !== undefined && !maxRounds)
        return text(JSON.stringify({ said, accepted: acceptedContent(ctx.mcpReq.inputResponses, "said") }));
      return inputRequired({ inputRequests: { said: question }, ...(requestState && { requestState }) });
    });
  const { transport } = await use.connect(host, () => made(set), { told: use.modern });
  const call = async () => host.callTool({ name: "ask", arguments: {} });
  return { call, heard: heard.items, rounds: rounds.items, transport };
}

const answer = async (call) => JSON.parse(textOf(await call()));
const forms = { elicitation: { form: {} } };
const yes = { action: "accept", content: { sure: true } };

row("typescript:mrtr:tools-call:write-once-roundtrip", [MODERN], async (use) => {
  const requestState = "opaque \u00fc state";
  const options = { requestState };
  const { call, heard, rounds, transport } = await asked(
    use,
    inputRequired.elicit(FORM),
    forms,
    { "elicitation/create": yes },
    options,
  );
  assert.deepEqual(await answer(call), { said: yes, accepted: { sure: true } });
  assert.equal(heard.length, 1);
  assert.deepEqual(
    rounds.map(({ state }) => state),
    [undefined, requestState],
  );
  assert.notEqual(rounds[0].id, rounds[1].id);
  const calls = transport.noted.items.filter(({ body }) => body?.method === "tools/call").map(({ body }) => body);
  assert.notEqual(calls[0].id, calls[1].id);
  assert.deepEqual(calls[1].params.inputResponses, { said: yes });
});

row("elicitation:mrtr:form:basic", [MODERN, OLDER], async (use) => {
  const { call, heard } = await asked(use, inputRequired.elicit(FORM), forms, { "elicitation/create": yes });
  assert.deepEqual((await answer(call)).said, yes);
  assert.deepEqual(heard, [{ mode: "form", ...FORM }]);
});

for (const action of ["decline", "cancel"]) {
  row(`elicitation:mrtr:form:action:${action}`, [MODERN, OLDER], async (use) => {
    const { call } = await asked(use, inputRequired.elicit(FORM), forms, { "elicitation/create": { action } });
    assert.deepEqual(await answer(call), { said: { action } });
  });
}

row("elicitation:mrtr:form:schema:primitives", [MODERN, OLDER], async (use) => {
  const requestedSchema = {
    type: "object",
    properties: {
      mail: { type: "string", format: "email", title: "Mail", minLength: 3 },
      height: { type: "number", minimum: 0.5 },
      age: { type: "integer", maximum: 120 },
      sure: { type: "boolean", default: true },
    },
  };
  const content = { mail: "a@example.com", height: 1.5, age: 3, sure: false };
  const question = inputRequired.elicit({ ...FORM, requestedSchema });
  const { call, heard } = await asked(use, question, forms, { "elicitation/create": { action: "accept", content } });
  assert.deepEqual((await answer(call)).accepted, content);
  assert.deepEqual(heard[0].requestedSchema, requestedSchema);
});

row("typescript:mrtr:url-elicitation:no-32042-on-2026", [MODERN, OLDER], async (use) => {
  const question = inputRequired.elicitUrl({ message: "Sign in", url: "https://example.com/in?a=1&b=2" });
  const answers = { "elicitation/create": { action: "accept" } };
  const { call, heard, transport } = await asked(use, question, { elicitation: { url: {} } }, answers);
  assert.deepEqual((await answer(call)).said, { action: "accept" });
  assert.deepEqual([heard[0].mode, heard[0].url], ["url", "https://example.com/in?a=1&b=2"]);
  for (const { told } of transport.noted.items) assert.ok(!(await told)?.includes("32042"));
});

row("typescript:mrtr:push-api:loud-fail-2026", [MODERN], async (use) => {
  const heard = [];
  const host = use.host({ capabilities: forms });
  host.setRequestHandler("elicitation/create", ({ params }) => {
    heard.push(params);
    return yes;
  });
  const set = (server) =>
    server.registerTool("push", {}, async (ctx) => text((await ctx.mcpReq.elicitInput(FORM)).action));
  await use.connect(host, () => made(set));
  const result = await host.callTool({ name: "push", arguments: {} });
  assert.ok(result.isError);
  assert.match(textOf(result), /inputRequired/);
  assert.deepEqual(heard, []);
});

row("typescript:mrtr:rounds-cap", [MODERN], async (use) => {
  const options = { requestState: "again", maxRounds: 2 };
  const { call, rounds } = await asked(use, inputRequired.elicit(FORM), forms, { "elicitation/create": yes }, options);
  await refused(call(), { code: SdkErrorCode.InputRequiredRoundsExceeded });
  assert.equal(rounds.length, 3);
});

row("typescript:mrtr:legacy-shim:write-once-on-2025", CHANNEL, async (use) => {
  const requestState = "opaque state";
  const { call, heard, rounds } = await asked(
    use,
    inputRequired.elicit(FORM),
    forms,
    { "elicitation/create": yes },
    { requestState },
  );
  assert.deepEqual(await answer(call), { said: yes, accepted: { sure: true } });
  assert.deepEqual(
    heard.map(({ message }) => message),
    ["Go?"],
  );
  assert.deepEqual(
    rounds.map(({ state }) => state),
    [undefined, requestState],
  );
});

const messages = [{ role: "user", content: { type: "text", text: "Two and two?" } }];
const thought = { role: "assistant", content: { type: "text", text: "Four." }, model: "parrot", stopReason: "endTurn" };
const SAMPLED = {
  "sampling:mrtr:create:basic": {},
  "sampling:mrtr:create:model-preferences": {
    modelPreferences: { hints: [{ name: "small" }], costPriority: 0, speedPriority: 1, intelligencePriority: 0.5 },
  },
  "sampling:mrtr:create:system-prompt": { systemPrompt: "Be brief.\nBe kind." },
  "sampling:mrtr:create:include-context": { includeContext: "none", stopSequences: ["."], metadata: { a: [1] } },
};

for (const [id, params] of Object.entries(SAMPLED)) {
  row(id, [MODERN, OLDER], async (use) => {
    const question = inputRequired.createMessage({ messages, maxTokens: 10, ...params });
    const { call, heard } = await asked(use, question, { sampling: {} }, { "sampling/createMessage": thought });
    assert.deepEqual((await answer(call)).said, thought);
    assert.deepEqual(heard, [{ messages, maxTokens: 10, ...params }]);
  });
}

for (const [id, roots] of [
  ["roots:mrtr:list:basic", [{ uri: "file:///srv/books", name: "Books" }, { uri: "file:///tmp" }]],
  ["roots:mrtr:list:empty", []],
]) {
  row(id, [MODERN, OLDER], async (use) => {
    const { call } = await asked(use, inputRequired.listRoots(), { roots: {} }, { "roots/list": { roots } });
    assert.deepEqual((await answer(call)).said, { roots });
  });
}
