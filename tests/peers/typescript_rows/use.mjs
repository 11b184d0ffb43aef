// What a row is given: servers of its part, hosts that are connected to them, and the ends of both.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { BOTH, EVENTS, MODERN, NEWER, Noted, OLDER, PIPES, SESSIONS, STATELESS } from "./rows.mjs";
import { Entry, OverEvents, OverPipes, WithSessions, WithoutSessions, relayTo } from "./servers.mjs";

export const REVISION = "2026-07-28";
const INFO = { name: "host", version: "1" };

const strict = (factory, options) => new Entry(factory, { legacy: "reject", keepAliveMs: 0, ...options });
const SERVED = {
  [SESSIONS]: (factory, options) => new WithSessions(factory, options),
  [STATELESS]: (factory, options) => new WithoutSessions(factory, options),
  [BOTH]: (factory, options) => new Entry(factory, { keepAliveMs: 0, ...options }),
  [MODERN]: strict,
  [OLDER]: strict,
  [NEWER]: (factory, options) => new WithSessions(factory, options),
  [PIPES]: (factory, options) => new OverPipes(factory, options),
  [EVENTS]: (factory) => new OverEvents(factory),
};

export class Use {
  #ends = [];

  constructor(part, mounts, url, through) {
    this.part = part;
    this.mounts = mounts;
    this.url = url;
    this.through = through;
  }

  get modern() {
    return [MODERN, NEWER].includes(this.part);
  }

  /** A server of the part, with its number and the URL for hosts. */
  place(factory, options) {
    return this.mount(SERVED[this.part](factory, options));
  }

  /** The same for a mount that the row made itself. */
  mount(mount) {
    const number = this.mounts.add(mount);
    this.#ends.push(() => mount.close());
    return Object.assign(mount, { number, url: `${this.url}/${number}/mcp` });
  }

  /** A host of the part's era that is not connected yet. */
  host(options = {}, info = INFO) {
    const negotiation = this.modern ? { versionNegotiation: { mode: { pin: REVISION } } } : {};
    return new Client(info, { ...negotiation, ...options });
  }

  /**
   * A transport to a server, which notes its exchanges; the options are those of the SDK. With `told` it notes the text
   * of answers, too: a host cannot end their streams then.
   */
  transport(place, { told = false, ...options } = {}) {
    const noted = new Noted();
    if (!this.through && this.part === PIPES) {
      const [command, ...args] = relayTo(this.mounts.port, place.number);
      return Object.assign(new StdioClientTransport({ command, args }), { noted });
    }
    if (!this.through && this.part === EVENTS) {
      return Object.assign(new SSEClientTransport(new URL(place.url)), { noted });
    }
    const notedFetch = async (url, init) => {
      const response = await (options.fetch ?? fetch)(url, init);
      const exchange = {
        method: init?.method ?? "GET",
        sent: new Headers(init?.headers),
        body: typeof init?.body === "string" ? JSON.parse(init.body) : undefined,
        status: response.status,
        received: response.headers,
        told: told && init?.method === "POST" ? response.clone().text() : undefined,
      };
      noted.push(exchange);
      return response;
    };
    const transport = new StreamableHTTPClientTransport(new URL(place.url), { ...options, fetch: notedFetch });
    return Object.assign(transport, { noted });
  }

  /** A host that is connected, to a server of the part or to a place that there is already. */
  async connect(host, served, { options, streams = true, ...more } = {}) {
    const place = typeof served === "function" ? this.place(served, options) : served;
    const transport = this.transport(place, more);
    await this.join(host, transport);
    if (streams && this.part === SESSIONS) await place.heard.first(({ method }) => method === "GET", "a GET stream");
    if (streams && transport instanceof StreamableHTTPClientTransport && !this.modern) {
      await transport.noted.first(({ method }) => method === "GET", "the answer to a GET");
    }
    return { host, place, transport };
  }

  /** Connects a host by a transport of the row's own; both end with the row. */
  async join(host, transport) {
    this.#ends.push(() => host.close());
    await host.connect(transport);
  }

  /** The host of a connection that nothing else is said of. */
  async connected(factory, options) {
    return (await this.connect(this.host(options), factory)).host;
  }

  ends(end) {
    this.#ends.push(end);
  }

  async close() {
    for (const end of this.#ends.reverse()) await Promise.resolve(end()).catch(() => {});
  }
}
