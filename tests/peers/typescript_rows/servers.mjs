// The servers of the rows: each at a path of its own of one socket, behind the transport that its part has.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { WebStandardStreamableHTTPServerTransport, createMcpHandler } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";

import { Noted } from "./rows.mjs";

const SESSION = "mcp-session-id";

const refusal = (status, message) =>
  Response.json({ jsonrpc: "2.0", error: { code: -32000, message }, id: null }, { status });

/** A server for each session of its hosts; the options are those of the SDK's transport. */
export class WithSessions {
  constructor(factory, options = {}) {
    this.factory = factory;
    this.options = options;
    this.transports = new Map();
    this.heard = new Noted();
  }

  async fetch(request) {
    this.heard.push(request);
    const id = request.headers.get(SESSION);
    if (id === null && request.method !== "POST") return refusal(400, "no session");
    if (id !== null) return this.transports.get(id)?.handleRequest(request) ?? refusal(404, "Session not found");
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      ...this.options,
      onsessioninitialized: (made) => {
        this.transports.set(made, transport);
        this.options.onsessioninitialized?.(made);
      },
      onsessionclosed: (closed) => {
        this.transports.delete(closed);
        this.options.onsessionclosed?.(closed);
      },
    });
    await this.factory({ era: "legacy", requestInfo: request }).connect(transport);
    return transport.handleRequest(request);
  }

  async close() {
    await Promise.all([...this.transports.values()].map((transport) => transport.close()));
  }
}

/** A server for each request. */
export class WithoutSessions {
  constructor(factory, options = {}) {
    this.factory = factory;
    this.options = options;
    this.heard = new Noted();
    this.transports = [];
  }

  async fetch(request) {
    this.heard.push(request);
    if (request.method !== "POST") return refusal(405, "Method not allowed.");
    const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: undefined, ...this.options });
    this.transports.push(transport);
    await this.factory({ era: "legacy", requestInfo: request }).connect(transport);
    return transport.handleRequest(request);
  }

  async close() {
    await Promise.all(this.transports.map((transport) => transport.close()));
  }
}

/** The SDK's entry for both eras, or with `legacy: "reject"` for 2026-07-28 alone. */
export class Entry {
  constructor(factory, options = {}) {
    this.heard = new Noted();
    this.handler = createMcpHandler(factory, options);
  }

  get notify() {
    return this.handler.notify;
  }

  fetch(request) {
    this.heard.push(request);
    return this.handler.fetch(request);
  }

  close() {
    return this.handler.close();
  }
}

/** A server for each connection of HTTP+SSE. */
export class OverEvents {
  constructor(factory) {
    this.factory = factory;
    this.heard = new Noted();
    this.transports = new Map();
  }

  async serve(incoming, outgoing, path) {
    this.heard.push(incoming);
    const { pathname, searchParams } = new URL(incoming.url, "http://here");
    if (incoming.method === "GET") {
      const transport = new SSEServerTransport(`${path}/messages`, outgoing);
      this.transports.set(transport.sessionId, transport);
      await this.factory({ era: "legacy" }).connect(transport);
      return;
    }
    const transport = this.transports.get(searchParams.get("sessionId"));
    if (pathname.endsWith("/messages") && transport) await transport.handlePostMessage(incoming, outgoing);
    else outgoing.writeHead(incoming.method === "POST" ? 405 : 404).end();
  }

  async close() {
    await Promise.all([...this.transports.values()].map((transport) => transport.close()));
  }
}

/** A server for each program that `RELAY` is: what the program reads and writes crosses a socket. */
export class OverPipes {
  constructor(factory, options = {}) {
    this.factory = factory;
    this.options = options;
    this.heard = new Noted();
    this.open = new Set();
  }

  async pipe(socket) {
    this.heard.push(socket);
    socket.on("error", () => {});
    const transport = new StdioServerTransport(socket, socket);
    this.open.add(socket);
    socket.on("close", () => {
      this.open.delete(socket);
      transport.close();
    });
    if (this.options.entry) serveStdio(this.factory, { ...this.options.entry, transport });
    else await this.factory({ era: "legacy" }).connect(transport);
  }

  async close() {
    for (const socket of this.open) socket.destroy();
  }
}

/** The program of a mount: a relay between its standard streams and the socket of the rows. */
export const relayTo = (port, number) => [
  "bash",
  "--norc",
  "-c",
  process.env.SUITE_RELAY,
  "relay",
  String(port),
  String(number),
];

async function answer(mount, incoming, outgoing) {
  const gone = new AbortController();
  outgoing.on("close", () => gone.abort());
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const response = await mount.fetch(
    new Request(`http://${incoming.headers.host}${incoming.url}`, {
      method: incoming.method,
      headers: incoming.headers,
      body: chunks.length ? Buffer.concat(chunks) : undefined,
      signal: gone.signal,
    }),
  );
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.flushHeaders();
  if (response.body === null) outgoing.end();
  else await pipeline(Readable.fromWeb(response.body), outgoing).catch(() => {});
}

/** All mounts on the socket with this descriptor, by number. */
export class Mounts {
  constructor() {
    this.mounts = [];
    this.listener = createServer((incoming, outgoing) => {
      const [, number] = incoming.url.split("/");
      const mount = this.mounts[number];
      const served = mount?.serve
        ? mount.serve(incoming, outgoing, `/${number}`)
        : mount?.fetch && answer(mount, incoming, outgoing);
      if (served) served.catch(() => outgoing.destroy());
      else outgoing.writeHead(404).end();
    });
    this.listener.on("upgrade", (incoming, socket, head) => {
      const mount = this.mounts[incoming.url.split("/")[1]];
      if (!mount?.pipe) return socket.destroy();
      if (head.length) socket.unshift(head);
      mount.pipe(socket).catch(() => socket.destroy());
    });
  }

  listen(fd) {
    return new Promise((resolve) => this.listener.listen({ fd }, resolve));
  }

  get port() {
    return this.listener.address().port;
  }

  add(mount) {
    return this.mounts.push(mount) - 1;
  }
}
