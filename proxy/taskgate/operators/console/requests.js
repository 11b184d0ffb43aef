// Requests to the gateway, and the session in which they are made.

import { $, button, say } from "./elements.js";

const RELOAD_MS = 1000;
const SPARE = 30;
// The header with the page's part of the session, and its name in the storage of the page, which is of this tab and
// this origin. The cookie is of all ports of the host, so it is worth nothing alone.
const PAGE_KEY = "Taskgate-Console";

// The operator who is signed in, or null. `onEnd` is called when the gateway says that the session has ended.
export const session = { account: null, onEnd: () => {} };

export const mayAct = () => session.account?.role === "operator";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function sessionHeaders() {
  const key = sessionStorage.getItem(PAGE_KEY);
  return key === null ? {} : { [PAGE_KEY]: key };
}

export function begin(key, account) {
  if (key !== undefined) sessionStorage.setItem(PAGE_KEY, key);
  session.account = account;
}

export function end() {
  session.account = null;
  sessionStorage.removeItem(PAGE_KEY);
  awaited.clear();
}

export async function ask(method, path, { body, token, read = JSON.parse } = {}) {
  const asker = session.account;
  // A token has visible ASCII characters alone; others are no text of a header.
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) throw new Refused(401, "not authenticated");
  const options = { method, headers: sessionHeaders(), credentials: "same-origin", cache: "no-store" };
  if (token !== undefined) options.headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response, document;
  try {
    response = await fetch(path, options);
    const text = await response.text();
    document = response.ok ? read(text) : JSON.parse(text);
  } catch {
    throw new Refused(0, "The gateway does not answer.");
  }
  if (response.ok) return document;
  if (response.status === 401 && asker && session.account === asker) session.onEnd("The session has ended. Sign in again.");
  throw new Refused(response.status, document.error?.message ?? `status ${response.status}`);
}

export const api = (method, path, options) => ask(method, `/api/v1${path}`, options);

// The newest request of each kind that has no answer yet.
const awaited = new Map();
let requests = 0;

export const isAwaited = (kind) => awaited.has(kind);
export const forget = (kind) => awaited.delete(kind);

// The answer to a request; null if another of its kind was made meanwhile, or the operator signed out.
export async function latest(kind, method, path, body) {
  const number = ++requests;
  awaited.set(kind, number);
  const isLatest = () => awaited.get(kind) === number;
  try {
    const document = await api(method, path, { body });
    return isLatest() ? document : null;
  } catch (error) {
    if (isLatest()) throw error;
    return null;
  } finally {
    if (isLatest()) awaited.delete(kind);
  }
}

function sayRefusal(what, error) {
  if (!(error instanceof Refused)) throw error;
  const words = error.status === 404 ? "this gateway has no such path or record (404)." : error.message;
  if (session.account) say(`${what}: ${words}`, "error", what);
}

// Does what may be refused. Undefined, and words on the page, if it was.
export async function attempt(what, work) {
  try {
    const found = await work();
    if ($("message").dataset.of === what) say("");
    return found;
  } catch (error) {
    sayRefusal(what, error);
  }
}

// The pages of a list: their two buttons, and the cursors. `load` reads the page at a cursor.
export function pagesOf(id, what, load) {
  const pages = { cursor: null, next: null };
  pages.turnTo = (cursor) => {
    // At once: what reads the list again meanwhile reads this page.
    pages.cursor = cursor;
    return attempt(what, () => load(cursor));
  };
  const first = button("First page", "First page", () => pages.turnTo(null));
  const following = button("Next page", "Next page", () => pages.turnTo(pages.next));
  first.id = `${id}-first`;
  following.id = `${id}-next`;
  $(`${id}-pages`).prepend(first, following);
  pages.take = (cursor, { next }) => {
    Object.assign(pages, { cursor, next });
    first.disabled = !cursor;
    following.disabled = !next;
  };
  return pages;
}

// Runs `work` at most once in a while, and once more after the last request. It takes a thirtieth of the time at most.
export function throttled(work, pause = RELOAD_MS) {
  let wait = pause;
  let timer = null;
  let isRunning = false;
  let isWanted = false;
  async function run() {
    timer = null;
    isWanted = false;
    isRunning = true;
    const start = performance.now();
    try {
      await work();
    } finally {
      isRunning = false;
      wait = Math.max(pause, SPARE * (performance.now() - start));
      if (isWanted) request();
    }
  }
  function request() {
    isWanted = true;
    if (timer === null && !isRunning) timer = setTimeout(run, wait);
  }
  return request;
}
