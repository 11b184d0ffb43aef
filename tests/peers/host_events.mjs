// A host on `@ai-sdk/mcp` 2 that subscribes to an event and receives it: `node host_events.mjs URL` speaks 2026-07-28,
// with `--initialize` 2025-11-25. Its report has the outcome of each step, each answer to a method of events, and each
// delivery to its webhook. The package verifies the deliveries.

import { createServer } from "node:http";

import { experimental_createMCPClient, experimental_createMCPEventWebhook } from "@ai-sdk/mcp";

const [url, ...options] = process.argv.slice(2);
const ARRIVES_WITHIN = 10_000; // milliseconds for the event
const EVENT = { name: "ticket.changed", arguments: { ticket: "T-1" } };
const told = { steps: {}, answers: [], deliveries: [] };

function subscriptions() {
  const kept = new Map();
  return {
    get: async (key) => kept.get(key),
    getById: async (id) => [...kept.values()].find((each) => each.id === id),
    set: async (each) => void kept.set(each.key, each),
    update: async (key, changes) => void Object.assign(kept.get(key), changes),
    delete: async (key) => void kept.delete(key),
  };
}

const store = subscriptions();
const arrived = Promise.withResolvers();
let last; // the newest delivery, as it came
const receive = experimental_createMCPEventWebhook({
  store,
  onEvent: async ({ subscription, event }) => arrived.resolve({ subscription: subscription.id, event }),
});

const receiver = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const place = `http://${incoming.headers.host}${incoming.url}`;
  const answer = await receive(new Request(place, { method: incoming.method, headers: incoming.headers, body }));
  last = { place, headers: incoming.headers, body };
  const { type, eventId } = JSON.parse(body.toString());
  const subscription = incoming.headers["x-mcp-subscription-id"];
  told.deliveries.push({ type: type ?? "event", eventId: eventId ?? null, subscription, status: answer.status });
  outgoing.writeHead(answer.status, Object.fromEntries(answer.headers));
  outgoing.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));

/** Fetches for the client, and notes each answer to a method of events. */
async function noted(place, init) {
  const response = await fetch(place, init);
  const { method } = typeof init.body === "string" ? JSON.parse(init.body) : {};
  if (method?.startsWith("events/")) {
    const text = await response.clone().text();
    const line = text.split("\n").find((each) => each.startsWith("data: {"));
    const { result, error } = JSON.parse(line === undefined ? text : line.slice("data: ".length));
    told.answers.push({ method, status: response.status, result, error });
  }
  return response;
}

/** The status with which the receiver answers a delivery under another signature. */
async function forged({ place, headers, body }) {
  const signed = { ...headers, "webhook-signature": `v1,${Buffer.alloc(32).toString("base64")}` };
  return (await receive(new Request(place, { method: "POST", headers: signed, body }))).status;
}

async function step(name, doing) {
  try {
    told.steps[name] = (await doing()) ?? null;
  } catch (error) {
    told.steps[name] = { refused: error.message, code: error.code ?? null, data: error.data ?? null };
  }
}

const client = await experimental_createMCPClient({
  transport: { type: "http", url, fetch: noted },
  experimental_events: { store },
  protocolVersionDiscovery: !options.includes("--initialize"),
});
told.declared = client.initializeResult.capabilities;
const events = client.experimental_events;
const delivery = (port) => ({
  mode: "webhook",
  url: `http://127.0.0.1:${port}/hook?tenant=a%2Fb`,
  allowInsecureLocalhost: true,
});
const { port } = receiver.address();

await step("list", () => events.list());
await step("subscribe", () => events.subscribe({ ...EVENT, ttlMs: 7_200_000, delivery: delivery(port) }));
const id = told.steps.subscribe.id;
if (id !== undefined) {
  const { change } = await client.tools();
  const given = { ticket: "T-1", summary: "closed" };
  const changed = async (toolCallId) => (await change.execute(given, { toolCallId, messages: [] })).structuredContent;
  await step("change", () => changed("1"));
  const late = new Promise((resolve) => setTimeout(resolve, ARRIVES_WITHIN, "nothing arrived"));
  await step("event", () => Promise.race([arrived.promise, late]));
  await step("forged", () => forged(last));
  await step("refresh", () => events.refresh({ id }));
  await step("unsubscribe", () => events.unsubscribe({ id }));
  await step("change after", () => changed("2"));
}
await step("ill-formed", () => events.subscribe({ ...EVENT, arguments: { ticket: 1 }, delivery: delivery(port) }));
receiver.close();
receiver.closeAllConnections();
await step("unreachable", () => events.subscribe({ ...EVENT, delivery: delivery(port) }));
await client.close();
process.stdout.write(`${JSON.stringify(told)}\n`, () => process.exit(0));
