// The console for operators, over /api/v1: sign-in, views by address, and live events.

import { $, element, isUtc, say, setText, useUtc } from "./elements.js";
import { ask, attempt, begin, end, latest, session, sessionHeaders, throttled } from "./requests.js";
import { confirm } from "./confirm.js";
import { loadConfiguration } from "./configuration.js";
import { loadRefusals, reloadCallers, reloadSessions, showCallers, takeRefusal } from "./lists.js";
import { addressOfText, loadOverview } from "./overview.js";
import { loadServers, onHold } from "./servers.js";
import { clearTask, noteTask, showTask } from "./task.js";
import { clearTasks, reloadTasks, showTasks, takeTask } from "./tasks.js";

const CONNECT_AGAIN_MS = 2000;
const OVERVIEW_MS = 2000;
const REPAINT_MS = 10_000;
const TOKEN = "#token=";
const EVENTS = "/api/v1/events";

// --- session

async function signIn(token) {
  const { page_key: key, ...account } = await ask("POST", "/ui/session", { token });
  begin(key, account);
  open();
  $("main").focus();
}

function open() {
  const { account } = session;
  say("");
  $("sign-in").hidden = true;
  for (const each of ["account", "views", "search"]) $(each).hidden = false;
  setText($("operator"), `${account.name} (${account.role})`);
  document.body.dataset.role = account.role;
  show();
  loadServerNames();
  connect();
}

function signedOut(text) {
  end();
  disconnect();
  lastEvent = null;
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
  for (const each of document.querySelectorAll("tbody, #problems, #numbers, #happened")) each.replaceChildren();
  clearTasks();
  clearTask();
  document.title = "taskgate console";
  for (const each of document.forms) each.reset();
  setText($("yaml"), "");
  $("explanation").hidden = true;
  for (const each of ["account", "views", "search"]) $(each).hidden = true;
  for (const view of Object.keys(VIEWS)) $(`view-${view}`).hidden = true;
  $("sign-in").hidden = false;
  say(text);
  $("token").focus();
}

session.onEnd = signedOut;

$("sign-in-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  $("token").value = "";
  try {
    await signIn(token);
  } catch (error) {
    const wrong = error.status === 401 ? "The token is wrong." : error.message;
    say(wrong, "error");
    $("token").focus();
  }
});

$("sign-out").addEventListener("click", async () => {
  await attempt("Sign out", async () => {
    await ask("DELETE", "/ui/session");
    signedOut("Signed out.");
  });
});

// --- views: each has an address, so that a link, a reload and the way back show the same

const VIEWS = {
  overview: { show: () => loadOverview(), reload: () => loadOverview({ isWhole: false }) },
  tasks: { show: showTasks, reload: reloadTasks },
  task: { show: (_, reference) => showTask(reference) },
  servers: { show: loadServers },
  callers: { show: showCallers, reload: reloadCallers },
  refusals: { show: loadRefusals },
  sessions: { show: reloadSessions },
  configuration: { show: loadConfiguration },
};
const LIVE = new Set(["servers", "callers", "sessions"]);
const REPAINTED = new Set(["overview", "servers", "task"]);

// The view that an address has, and the reference of a task.
function placeOf({ pathname }) {
  const [, , name = "overview", reference] = pathname.split("/");
  if (name === "tasks" && reference) return ["task", reference];
  return [name !== "task" && name in VIEWS ? name : "overview"];
}

const current = () => placeOf(location)[0];

// Reads what the address shows, with `isAgain` at the page of a list where the operator is.
function load(isAgain = false) {
  const [view, reference] = placeOf(location);
  const { show: begin, reload: goOn } = VIEWS[view];
  const query = new URLSearchParams(location.search);
  return attempt($(`view-${view}`).dataset.name, () => (isAgain && goOn ? goOn() : begin(query, reference)));
}

function show() {
  if (!session.account) return;
  const view = current();
  for (const each of Object.keys(VIEWS)) $(`view-${each}`).hidden = each !== view;
  const address = view === "task" ? "/ui/tasks" : view === "overview" ? "/ui" : `/ui/${view}`;
  for (const link of $("views").querySelectorAll("a")) {
    if (link.pathname === address) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== "task") clearTask();
  document.title = `${$(`view-${view}`).dataset.name} - taskgate console`;
  return load();
}

const reload = () => load(true);

function go(address) {
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  say("");
  return show();
}

onHold.reload = reload;

addEventListener("popstate", () => {
  if (location.hash.startsWith(TOKEN)) return start();
  say("");
  show();
});

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/ui']");
  const isOwn = link && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!isOwn || !session.account) return;
  event.preventDefault();
  go(link.pathname + link.search);
  if (!link.closest("nav")) $("main").focus();
});

$("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("search-text").value.trim();
  if (!text) return;
  const address = await attempt("Search", () => addressOfText(text));
  if (address === null) return say(`Nothing is named ${text}: no task, tool, caller, tenant or server.`, "error");
  if (address === undefined) return;
  $("search-text").value = "";
  await go(address);
  $("main").focus();
});

// --- times: of this browser's zone, or UTC

function showZone() {
  $("utc").setAttribute("aria-pressed", String(isUtc()));
}

$("utc").addEventListener("click", () => {
  useUtc(!isUtc());
  showZone();
  load();
});

// --- keys: / searches, j and k go to the next and the last row, o opens it, c cancels

addEventListener("keydown", (event) => {
  const isTyped = event.target.closest?.("input, select, textarea, dialog");
  if (!session.account || isTyped || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    return $("search-text").focus();
  }
  if (event.key === "j" || event.key === "k") return goToRow(event.key === "j" ? 1 : -1);
  const shown = document.activeElement.closest("tr");
  if (event.key === "o") shown?.querySelector("th a")?.click();
  if (event.key === "c") (shown?.querySelector("button.danger") ?? (current() === "task" ? $("task-cancel") : null))?.click();
});

function goToRow(step) {
  const links = [...document.querySelectorAll(`#view-${current()} tbody th a`)];
  const index = links.findIndex((each) => each.closest("tr").contains(document.activeElement));
  links[Math.min(Math.max(index + step, 0), links.length - 1)]?.focus();
}

async function loadServerNames() {
  const page = await attempt("Servers", () => latest("names", "GET", "/upstreams"));
  const names = page?.items.map((each) => each.name) ?? [];
  for (const { upstream: select } of [$("task-filter").elements, $("explain-form").elements]) {
    const chosen = select.value;
    const fixed = [...select.options].filter((option) => option.value === "");
    const all = chosen && !names.includes(chosen) ? [...names, chosen] : names;
    select.replaceChildren(...fixed, ...all.map((name) => element("option", name, { value: name })));
    if (chosen || fixed.length) select.value = chosen;
  }
}

// --- events

let source = null;
let connecting = null;
let lastEvent = null;

const reloadIf = (isWanted, pause) =>
  throttled(async () => {
    if (session.account && isWanted(current())) await reload();
  }, pause);
const reloadView = reloadIf((view) => view !== "configuration");
const reloadCounts = reloadIf((view) => LIVE.has(view));
const reloadOverview = reloadIf((view) => view === "overview" && !document.hidden, OVERVIEW_MS);
const repaint = reloadIf((view) => REPAINTED.has(view) && !document.hidden, 0);

// Curves and durations move although nothing happens.
setInterval(repaint, REPAINT_MS);
document.addEventListener("visibilitychange", repaint);

function showLive(state, text) {
  $("live").dataset.state = state;
  setText($("live"), text);
}

const handlers = {
  task(item) {
    takeTask(item);
    noteTask(item);
    reloadCounts();
    reloadOverview();
  },
  upstream() {
    reloadCounts();
    reloadOverview();
  },
  refusal(item) {
    if (current() === "refusals" && takeRefusal(item)) reloadView();
    if (current() === "callers") reloadCounts();
    reloadOverview();
  },
  reset: reloadView,
};

// An `EventSource` sends no header, so the stream is read here.
async function connect() {
  disconnect();
  const stream = new AbortController();
  source = stream;
  showLive("connecting", "connecting");
  let response = null;
  try {
    const headers = { ...sessionHeaders(), Accept: "text/event-stream" };
    if (lastEvent !== null) headers["Last-Event-ID"] = lastEvent;
    response = await fetch(EVENTS, { headers, credentials: "same-origin", cache: "no-store", signal: stream.signal });
  } catch {
    // A gateway that does not answer may come back.
  }
  if (stream === source && response?.ok) {
    showLive("open", "live");
    // What happened before the stream was open has no event.
    reloadView();
    await readEvents(response.body.pipeThrough(new TextDecoderStream()).getReader(), stream);
  }
  if (stream !== source) return;
  stream.abort();
  showLive("broken", response === null || response.ok ? "connecting again" : "no live updates");
  connecting = setTimeout(connectAgain, CONNECT_AGAIN_MS);
}

// Reads until the stream ends, breaks, or another one takes its place.
async function readEvents(reader, stream) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done || stream !== source) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      try {
        takeEvent(part);
      } catch (error) {
        reportError(error);
      }
    }
  }
}

// An event has one line for each field, as the gateway writes it. Comments and pauses have no name.
function takeEvent(text) {
  const fields = Object.fromEntries(text.split("\n").map((line) => line.split(/: (.*)/s)));
  if (fields.id !== undefined) lastEvent = fields.id;
  handlers[fields.event]?.(JSON.parse(fields.data));
}

// A refused stream tells no reason; the session may have ended.
async function connectAgain() {
  try {
    await ask("GET", "/ui/session");
  } catch {
    // A session that has ended was shown; a gateway that does not answer may come back.
  }
  if (session.account) connect();
}

function disconnect() {
  clearTimeout(connecting);
  source?.abort();
  source = null;
  showLive("off", "");
}

// --- start

async function start() {
  const given = location.hash.startsWith(TOKEN) ? location.hash.slice(TOKEN.length) : null;
  // A token is neither kept in the history nor shown in the address.
  if (given !== null) history.replaceState(null, "", location.pathname + location.search);
  showZone();
  try {
    begin(undefined, await ask("GET", "/ui/session"));
    // A link, which may be of another page, does not replace the operator of this one.
    return open();
  } catch (error) {
    if (error.status !== 401) return signedOut(error.message);
  }
  signedOut("");
  if (given === null) return;
  try {
    const token = decodeURIComponent(given);
    // The link may want this operator to work under another name.
    const { name, role } = await ask("GET", "/ui/session", { token });
    const text = `The link has the token of ${name} (${role}). What you do is logged under that name.`;
    if (await confirm("Sign in with the token of the link?", text, `Sign in as ${name}`)) await signIn(token);
  } catch (error) {
    signedOut(error.status === 401 ? "The token of the link is wrong." : error.message);
  }
}

start();
