// What all rows use: the parts and the list of rows, lists that tell of their growth, and bounded waits.

import { strict as assert } from "node:assert";

import { McpServer } from "@modelcontextprotocol/server";

export const SESSIONS = "legacy hosts, servers with sessions";
export const STATELESS = "legacy hosts, servers without sessions";
export const BOTH = "legacy hosts, servers of both eras";
export const MODERN = "modern hosts";
export const PIPES = "legacy hosts, servers over stdio";
export const EVENTS = "legacy hosts, servers over HTTP+SSE";
/** Between the eras: without a gateway these hosts and servers have no revision in common. */
export const OLDER = "legacy hosts, servers of 2026-07-28";
export const NEWER = "modern hosts, servers of 2025-11-25";

export const LEGACY = [SESSIONS, STATELESS, BOTH, PIPES, EVENTS];
export const ALL = [...LEGACY, MODERN, OLDER, NEWER];
/** Where a server can ask its host, and tell it what belongs to no request. */
export const CHANNEL = [SESSIONS, PIPES, EVENTS];
/** Where a server of the legacy era can ask a host of either. */
export const QUESTIONS = [...CHANNEL, NEWER];
export const HTTP = [SESSIONS, STATELESS, BOTH, MODERN];

const rows = new Map();

/**
 * Adds a row: the requirement, perhaps with a title in parentheses, the parts, and what is tried. What is tried of several
 * requirements is tried once.
 */
export function row(ids, parts, body) {
  const [id] = [ids].flat();
  for (const each of rows.values()) if (each.ids.includes(id)) throw new Error(`two rows: ${id}`);
  rows.set(id, { ids: [ids].flat(), parts, body });
}

export const rowsOf = (part) => [...rows.values()].filter((each) => each.parts.includes(part));

const WITHIN = 5_000; // milliseconds for one wait

/** What a promise brings; rejects if that takes too long. */
export async function inTime(promise, what = "what was awaited") {
  let late;
  const limit = new Promise((_, reject) => {
    late = setTimeout(() => reject(new Error(`${what} did not come`)), WITHIN);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(late);
  }
}

/** A list, and waits for what is added to it. */
export class Noted {
  items = [];
  #checks = new Set();

  push = (item) => {
    this.items.push(item);
    for (const check of this.#checks) check();
  };

  /** The first item that this is true of, as soon as there is one. */
  async first(wanted, what = "an item") {
    let check;
    const found = new Promise((resolve) => {
      check = () => {
        const item = this.items.find(wanted);
        if (item !== undefined) resolve(item);
      };
    });
    this.#checks.add(check);
    check();
    try {
      return await inTime(found, what);
    } finally {
      this.#checks.delete(check);
    }
  }

  /** All items, as soon as there are as many. */
  async atLeast(count, what = "item") {
    await this.first((_, at, all) => all.length >= count, `${what} ${count}`);
    return this.items;
  }
}

/** A promise that somebody else settles. */
export function promised() {
  let resolve;
  const made = new Promise((settle) => {
    resolve = settle;
  });
  return Object.assign(made, { resolve });
}

/** The error that a promise is rejected with, which has these properties. */
export async function refused(promise, expected = {}) {
  const error = await inTime(promise, "an error").then(
    () => assert.fail("nothing was refused"),
    (reason) => reason,
  );
  if (error.code === "ERR_ASSERTION") throw error;
  for (const [key, value] of Object.entries(expected)) {
    if (value instanceof RegExp) assert.match(String(error[key]), value);
    else assert.deepEqual(error[key], value, `${key} of ${error}`);
  }
  return error;
}

export const text = (words) => ({ content: [{ type: "text", text: words }] });

export const textOf = (result) => result.content.map((block) => block.text).join(" ");

/** The same object with these keys alone. */
export const only = (given, ...keys) =>
  Object.fromEntries(keys.filter((key) => key in given).map((key) => [key, given[key]]));

/** A server with these options, after `set` has registered what it offers. */
export function made(set = () => {}, options = {}) {
  const server = new McpServer({ name: "server", version: "1" }, options);
  set(server);
  return server;
}

export { assert };
