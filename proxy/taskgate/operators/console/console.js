// The console for operators, over /api/v1. Texts of hosts and servers become text nodes, never markup.

const PAGE = 50;
const MOST_ROWS = 100;
const MOST_REFUSALS = 200;
const MOST_SHOWN = 20_000;
const FLUSH_MS = 200;
const RELOAD_MS = 1000;
const CONNECT_AGAIN_MS = 2000;
const ENDED = new Set(["completed", "failed", "cancelled"]);
const STATE_TONES = { up: "completed", refusing: "failed", down: "failed", held: "input_required" };
const TOKEN = "#token=";
const EVENTS = "/api/v1/events";
// The header with the page's part of the session, and its name in the storage of the page, which is of this tab and
// this origin. The cookie is of all ports of the host, so it is worth nothing alone.
const PAGE_KEY = "Taskgate-Console";
const VIEWS = ["tasks", "servers", "callers", "refusals", "configuration"];
// Controls but for tab and line feed, marks of direction, invisible characters, tags and lone surrogates: those that
// the command line marks, too. Joiners stay, because languages and emoji need them.
const UNSEEN =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e00ff}]/gu;

const $ = (id) => document.getElementById(id);

let account = null;
let serverOffset = 0;

// --- elements

// A text with a mark for each character that hides or moves others, or makes two names look the same.
const visible = (text) => String(text).replace(UNSEEN, "\ufffd");

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = visible(text);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function setText(node, text) {
  const wanted = text === null || text === undefined ? "" : visible(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

function badge(text, tone) {
  return element("span", text, { class: "badge", "data-tone": tone });
}

function cell(content, className, heading = false) {
  const made = element(heading ? "th" : "td");
  if (heading) made.scope = "row";
  if (className) made.className = className;
  if (content instanceof Node) made.append(content);
  else setText(made, content);
  return made;
}

function row(...cells) {
  const made = element("tr");
  made.append(...cells);
  return made;
}

function emptyRow(text, columns) {
  const only = cell(text);
  only.colSpan = columns;
  return row(only);
}

function button(text, label, act, className = "") {
  const made = element("button", text, { type: "button", "aria-label": visible(label) });
  if (className) made.className = className;
  made.addEventListener("click", act);
  return made;
}

// Remembers which control of a table has the focus. The answer gives it back after a change of the rows.
function focusIn(body) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.closest("tr").dataset.key;
  const index = focused ? [...focused.closest("tr").querySelectorAll("button")].indexOf(focused) : -1;
  return () => {
    const found = key === undefined ? null : [...body.rows].find((each) => each.dataset.key === key);
    if (!found || found.contains(document.activeElement)) return;
    const controls = [...found.querySelectorAll("button")];
    (controls[index] ?? controls[0])?.focus();
  };
}

function replaceRows(body, rows) {
  const restoreFocus = focusIn(body);
  body.replaceChildren(...rows);
  restoreFocus();
}

function say(text, kind = "note") {
  const message = $("message");
  message.dataset.kind = kind;
  message.hidden = !text;
  setText(message, text);
}

// --- times

const now = () => Date.now() + serverOffset;

function takeTime(document) {
  const time = Date.parse(document.now);
  if (!Number.isNaN(time)) serverOffset = time - Date.now();
}

function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

const age = (time) => duration((now() - Date.parse(time)) / 1000);
const clockTime = (time) => new Date(time).toLocaleTimeString([], { hour12: false });
const dateTime = (time) => new Date(time).toLocaleString([], { hour12: false });

// --- requests

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(method, path, { body, token, read = JSON.parse } = {}) {
  const asker = account;
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
  if (response.status === 401 && account && account === asker) signedOut("The session has ended. Sign in again.");
  throw new Refused(response.status, document.error?.message ?? `status ${response.status}`);
}

const api = (method, path, options) => ask(method, `/api/v1${path}`, options);

// The newest request of each kind that has no answer yet.
const awaited = new Map();
let requests = 0;

// The answer to a request; null if another of its kind was made meanwhile, or the operator signed out.
async function latest(kind, method, path, body) {
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
  if (error.status === 404) say(`${what}: this gateway has no such path or record (404).`, "error");
  else if (account) say(`${what}: ${error.message}`, "error");
}

// Runs `work` at most once each RELOAD_MS, and once more after the last request.
function throttled(work) {
  let timer = null;
  let isRunning = false;
  let isWanted = false;
  async function run() {
    timer = null;
    isWanted = false;
    isRunning = true;
    try {
      await work();
    } finally {
      isRunning = false;
      if (isWanted) request();
    }
  }
  function request() {
    isWanted = true;
    if (timer === null && !isRunning) timer = setTimeout(run, RELOAD_MS);
  }
  return request;
}

// --- session

function sessionHeaders() {
  const key = sessionStorage.getItem(PAGE_KEY);
  return key === null ? {} : { [PAGE_KEY]: key };
}

async function signIn(token) {
  const { page_key: key, ...found } = await ask("POST", "/ui/session", { token });
  sessionStorage.setItem(PAGE_KEY, key);
  account = found;
  begin();
  $("main").focus();
}

function begin() {
  say("");
  $("sign-in").hidden = true;
  $("account").hidden = false;
  $("views").hidden = false;
  setText($("operator"), `${account.name} (${account.role})`);
  document.body.dataset.role = account.role;
  if (!VIEWS.includes(location.hash.slice(1))) history.replaceState(null, "", "#tasks");
  show();
  loadServerNames();
  connect();
}

function signedOut(text) {
  account = null;
  sessionStorage.removeItem(PAGE_KEY);
  awaited.clear();
  disconnect();
  lastEvent = null;
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
  for (const each of document.querySelectorAll("tbody")) each.replaceChildren();
  tasks.rows.clear();
  changed.clear();
  for (const each of document.forms) each.reset();
  for (const each of ["task-facts", "task-timeline"]) $(each).replaceChildren();
  hidePayload();
  setText($("yaml"), "");
  $("explanation").hidden = true;
  $("account").hidden = true;
  $("views").hidden = true;
  for (const view of VIEWS) $(`view-${view}`).hidden = true;
  $("sign-in").hidden = false;
  say(text);
  $("token").focus();
}

const mayAct = () => account?.role === "operator";

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
  try {
    await ask("DELETE", "/ui/session");
  } catch (error) {
    if (error.status !== 401) return sayRefusal("Sign out", error);
  }
  signedOut("Signed out.");
});

// --- views

const current = () => VIEWS.find((view) => view === location.hash.slice(1)) ?? "tasks";

const loads = {
  tasks: () => loadTasks(tasks.cursor),
  servers: loadServers,
  callers: () => loadCallers(callers.cursor),
  refusals: loadRefusals,
  configuration: loadConfiguration,
};

async function load(view) {
  try {
    await loads[view]();
  } catch (error) {
    sayRefusal($(`${view}-title`).textContent, error);
  }
}

function show() {
  if (!account) return;
  const chosen = current();
  for (const view of VIEWS) $(`view-${view}`).hidden = view !== chosen;
  for (const link of $("views").querySelectorAll("a")) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${$(`${chosen}-title`).textContent} - taskgate console`;
  load(chosen);
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith(TOKEN)) return start();
  say("");
  show();
});

async function loadServerNames() {
  try {
    const page = await latest("names", "GET", "/upstreams");
    if (page === null) return;
    const names = page.items.map((each) => each.name);
    for (const form of [$("task-filter"), $("explain-form")]) {
      const select = form.elements.upstream;
      const chosen = select.value;
      const fixed = [...select.options].filter((option) => option.value === "");
      select.replaceChildren(...fixed, ...names.map((name) => element("option", name, { value: name })));
      if (names.includes(chosen)) select.value = chosen;
    }
  } catch (error) {
    sayRefusal("Servers", error);
  }
}

// --- tasks

const tasks = {
  rows: new Map(), cursor: null, next: null, isComplete: true, filter: readFilter(),
};
const changed = new Map();
let flushing = null;

function readFilter() {
  const given = Object.fromEntries(new FormData($("task-filter")));
  const filter = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ""));
  const statuses = (filter.status ?? "").split(",").filter(Boolean);
  // Lists of ended tasks have the order of the store.
  if (!statuses.length || statuses.some((status) => ENDED.has(status))) delete filter.sort;
  return filter;
}

function isMatch(item) {
  const filter = tasks.filter;
  return (
    (!filter.status || filter.status.split(",").includes(item.status)) &&
    (!filter.upstream || filter.upstream === item.upstream) &&
    (!filter.tool || filter.tool === item.tool) &&
    (!filter.caller || [item.caller, item.subject].includes(filter.caller)) &&
    (!filter.reference || item.reference.startsWith(filter.reference)) &&
    (!filter.older_than || (now() - Date.parse(item.created_at)) / 1000 >= Number(filter.older_than))
  );
}

// The order of two tasks in the list: by a time and then by the reference, as in the API.
function order(one, other) {
  const name = tasks.filter.sort.endsWith("created") ? "created_at" : "updated_at";
  const direction = tasks.filter.sort.startsWith("-") ? -1 : 1;
  return direction * (compare(moment(one[name]), moment(other[name])) || compare(one.reference, other.reference));
}

const compare = (one, other) => (one < other ? -1 : Number(one > other));
// Times of the API are in UTC, with microseconds, which a `Date` has not. Without the zone, they compare as texts.
const moment = (time) => time.replace(/Z$/, "");

async function loadTasks(cursor) {
  const query = new URLSearchParams({ ...tasks.filter, limit: String(PAGE) });
  if (cursor) query.set("cursor", cursor);
  const page = await latest("tasks", "GET", `/tasks?${query}`);
  if (page === null) return;
  takeTime(page);
  Object.assign(tasks, { cursor, next: page.next, isComplete: page.is_complete });
  const before = new Map(tasks.rows);
  tasks.rows.clear();
  for (const item of page.items) {
    tasks.rows.set(item.reference, makeTaskRow(item));
    const known = before.get(item.reference)?.item;
    if (known && newest(known, item) === known && !changed.has(item.reference)) takeTask(known);
  }
  replaceRows($("task-rows"), [...tasks.rows.values()].map((each) => each.row));
  showTaskCount();
}

// An answer and an event may cross each other.
function newest(known, item) {
  return known && moment(known.updated_at) > moment(item.updated_at) ? known : item;
}

function showTaskCount() {
  const count = tasks.rows.size;
  const parts = [`${count} ${count === 1 ? "task" : "tasks"}`];
  if (tasks.cursor) parts.push("a later page");
  if (tasks.next) parts.push("more follow");
  if (!tasks.filter.sort) parts.push("in the order of the store");
  if (!tasks.isComplete) parts.push("more than 10,000 are unfinished, not all are sorted");
  setText($("tasks-caption"), parts.join(", "));
  $("tasks-next").disabled = !tasks.next;
  $("tasks-first").disabled = !tasks.cursor;
}

function makeTaskRow(item) {
  const open = element("button", item.tool, { type: "button", class: "link" });
  open.addEventListener("click", () => openTask(item.reference));
  const place = element("span", null, { class: "more" });
  const name = cell(open, "", true);
  name.append(place);
  const status = badge("", "");
  const queue = element("span", null, { class: "more" });
  const statusCell = cell(status);
  statusCell.append(queue);
  const made = {
    item,
    row: row(name, statusCell, cell("", "number"), cell("", "wide"), cell("", "wide"), cell("", "act")),
    parts: { open, place, status, queue },
  };
  made.row.dataset.key = item.reference;
  renderTaskRow(made);
  return made;
}

// Who a caller is: its subject, with the tenant in brackets; its reference without names.
function caller(item) {
  const name = item.subject ?? item.caller;
  return item.tenant ? `${name} (${item.tenant})` : name;
}

function renderTaskRow(made) {
  const { item, parts } = made;
  const [, , ageCell, progress, callerCell, act] = made.row.cells;
  setText(parts.open, item.tool);
  setText(parts.place, `${item.upstream} · ${item.reference}`);
  setText(parts.status, item.status);
  parts.status.dataset.tone = item.status;
  setText(parts.queue, statusNote(item));
  setText(ageCell, age(item.created_at));
  setText(progress, item.progress);
  setText(callerCell, caller(item));
  callerCell.title = visible([item.caller, item.client].filter(Boolean).join(", "));
  const canCancel = mayAct() && !ENDED.has(item.status);
  if (canCancel && !act.firstChild) {
    act.append(button("Cancel", `Cancel ${item.tool}, ${item.reference}`, () => cancelTask(made.item), "danger"));
  } else if (!canCancel) {
    if (act.contains(document.activeElement)) parts.open.focus();
    act.replaceChildren();
  }
}

function statusNote(item) {
  if (item.is_queued) return item.queue_position === null ? "waits" : `waits, ${item.queue_position} before it`;
  return item.tool_error ? "error of the tool" : "";
}

function takeTask(item) {
  changed.set(item.reference, item);
  flushing ??= setTimeout(flushTasks, FLUSH_MS);
  // Beyond a screenful, only the newest are of use.
  if (changed.size > 10 * MOST_ROWS) changed.delete(changed.keys().next().value);
}

function flushTasks() {
  // Events that come while a list is on its way are newer than the list.
  flushing = awaited.has("tasks") ? setTimeout(flushTasks, FLUSH_MS) : null;
  if (flushing !== null) return;
  const items = [...changed.values()];
  changed.clear();
  const before = tasks.rows.size;
  const isSorted = Boolean(tasks.filter.sort);
  const restoreFocus = focusIn($("task-rows"));
  const added = [];
  for (const item of items) {
    if (!updateTask(item)) added.push(item);
  }
  if (isSorted) added.sort(order);
  // Rows of more would be removed at once.
  const kept = isSorted ? added.slice(0, MOST_ROWS) : added.slice(-MOST_ROWS);
  kept.forEach(addTask);
  restoreFocus();
  const isShort = tasks.rows.size < Math.min(before, PAGE) && tasks.next;
  if (isShort || (isSorted && kept.length < added.length)) reloadPage();
  if (items.some((item) => item.reference === opened)) reloadOpened();
  showTaskCount();
}

// Changes the row of a task where it is, or removes it. False if the task needs a row, at another place.
function updateTask(item) {
  const known = tasks.rows.get(item.reference);
  if (!known) return !isMatch(item);
  if (newest(known.item, item) !== item) return true;
  if (isMatch(item) && (!tasks.filter.sort || order(known.item, item) === 0)) {
    known.item = item;
    renderTaskRow(known);
    return true;
  }
  removeTask(known);
  return !isMatch(item);
}

function removeTask({ item, row: shown }) {
  const next = shown.nextElementSibling ?? shown.previousElementSibling;
  if (shown.contains(document.activeElement)) (next?.querySelector("button") ?? $("main")).focus();
  tasks.rows.delete(item.reference);
  shown.remove();
}

function addTask(item) {
  const body = $("task-rows");
  const isSorted = Boolean(tasks.filter.sort);
  const next = isSorted && [...body.children].find((each) => order(item, tasks.rows.get(each.dataset.key).item) < 0);
  // Only between two of its rows does a later page tell what belongs to it.
  if (tasks.cursor && (!next || next === body.firstElementChild)) return;
  if (!next && (tasks.rows.size >= PAGE || (isSorted && tasks.next))) {
    // It belongs to a later page. Without one so far, the list is loaded again for its cursor.
    if (!tasks.next) reloadPage();
    return;
  }
  const made = makeTaskRow(item);
  tasks.rows.set(item.reference, made);
  body.insertBefore(made.row, next || null);
  if (tasks.rows.size > MOST_ROWS) {
    removeTask(tasks.rows.get(body.lastElementChild.dataset.key));
    reloadPage();
  }
}

const reloadPage = throttled(async () => {
  if (account && current() === "tasks") await load("tasks");
});

setInterval(() => {
  for (const { item, row: shown } of tasks.rows.values()) setText(shown.cells[2], age(item.created_at));
}, 1000);

function applyFilter(event) {
  event.preventDefault();
  if (!$("task-filter").reportValidity()) return;
  tasks.filter = readFilter();
  say("");
  tasks.cursor = null;
  load("tasks");
}

async function turnTo(cursor) {
  try {
    await loadTasks(cursor);
  } catch (error) {
    sayRefusal("Tasks", error);
  }
}

$("task-filter").addEventListener("submit", applyFilter);
$("task-filter").addEventListener("change", applyFilter);
$("tasks-next").addEventListener("click", () => turnTo(tasks.next));
$("tasks-first").addEventListener("click", () => turnTo(null));

// --- one task

let opened = null;

async function openTask(reference) {
  if (opened !== reference) hidePayload();
  opened = reference;
  try {
    const task = await latest("task", "GET", `/tasks/${reference}`);
    if (task === null) return;
    renderTask(task);
    if (!$("task-dialog").open) $("task-dialog").showModal();
  } catch (error) {
    if (!$("task-dialog").open) opened = null;
    sayRefusal("Task", error);
  }
}

const reloadOpened = throttled(async () => {
  if (opened !== null && account) await openTask(opened);
});

function renderTask(task) {
  setText($("task-dialog-title"), task.tool);
  const facts = {
    Reference: task.reference,
    Server: task.upstream,
    Status: [task.status, statusNote(task)].filter(Boolean).join(", "),
    Progress: task.progress,
    Failure: task.failure && [task.failure.reason, task.failure.message].filter(Boolean).join(": "),
    Questions: task.questions.join(", "),
    Caller: [caller(task), task.subject && task.caller].filter(Boolean).join(", "),
    Client: task.client,
    Issuer: task.issuer,
    Host: [task.host.name, task.host.version, task.host.revision].filter(Boolean).join(" "),
    Created: dateTime(task.created_at),
    Changed: dateTime(task.updated_at),
    Expires: dateTime(task.expires_at),
    Lease: task.lease && `${task.lease.replica} until ${dateTime(task.lease.until)}`,
    "Result fetched": ENDED.has(task.status) ? (task.is_retrieved ? "yes" : "no") : null,
    Trace: task.trace_id,
  };
  const shown = Object.entries(facts).filter(([, value]) => value);
  $("task-facts").replaceChildren(...shown.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  $("task-timeline").replaceChildren(...task.timeline.map((change, index) => timelineItem(task, change, index)));
  const canCancel = mayAct() && !ENDED.has(task.status);
  if (!canCancel && document.activeElement === $("task-cancel")) $("task-close").focus();
  $("task-cancel").hidden = !canCancel;
  $("task-cancel").onclick = () => cancelTask(task);
  if (!task.may_show_payload && document.activeElement === $("task-show-payload")) $("task-close").focus();
  $("task-show-payload").hidden = !task.may_show_payload;
  $("task-show-payload").onclick = () => showPayload(task.reference);
  if (!task.may_show_payload) hidePayload();
}

function timelineItem(task, change, index) {
  const start = Date.parse(change.time);
  const next = task.timeline[index + 1];
  const until = next ? Date.parse(next.time) : now();
  const isLast = ENDED.has(change.status);
  const made = element("li");
  made.dataset.tone = change.status;
  made.append(
    element("span", change.status),
    element("span", ` at ${clockTime(start)}${isLast ? "" : `, for ${duration((until - start) / 1000)}`}`),
  );
  return made;
}

$("task-close").addEventListener("click", () => $("task-dialog").close());
$("task-dialog").addEventListener("close", () => {
  opened = null;
  awaited.delete("task");
  hidePayload();
});

// --- the payload of a task: read only when the operator asks, since each look is in the audit log

const STATES = { none: "none", pending: "the task has not ended", not_stored: "the store has lost it" };

// Numbers of values stay as they are written, where the browser can tell how that is.
function readPayload(text) {
  const exact = (key, value, context) =>
    typeof value === "number" && JSON.rawJSON && context?.source ? JSON.rawJSON(context.source) : value;
  return { page: JSON.parse(text), values: JSON.parse(text, exact) };
}

// Invisible characters, and marks of direction, become escapes as JSON has them.
function escaped(text) {
  const unit = (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const escape = (found) => found.split("").map(unit).join("");
  return text.replace(/[^\P{C}\n]|[\u2028\u2029]/gu, escape);
}

async function showPayload(reference) {
  let found;
  try {
    found = await api("GET", `/tasks/${reference}/payload`, { read: readPayload });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    found = error;
  }
  if (!account || opened !== reference) return;
  $("task-payload").hidden = false;
  const isRefused = found instanceof Refused;
  setText($("task-payload-note"), isRefused ? found.message : `Read at ${clockTime(now())}. This look is in the audit log.`);
  $("task-payload-parts").replaceChildren(...(isRefused ? [] : payloadParts(found)));
  $("task-payload").focus();
}

function payloadParts({ page, values }) {
  const parts = ["arguments", "result", "error"].map((name) => [name, page[name], values[name]]);
  for (const [name, list] of [["question", "questions"], ["answer", "answers"]]) {
    page[list].forEach((each, index) => {
      const title = [name, each.key, each.method].filter(Boolean).join(" ");
      parts.push([title, { ...each, state: "shown" }, values[list][index]]);
    });
  }
  return parts.flatMap(([title, part, exact]) => payloadPart(title, part, exact.value));
}

function payloadPart(title, part, value) {
  if (part.state !== "shown") return [element("h4", `${title}: ${STATES[part.state] ?? part.state}`)];
  const text = escaped(JSON.stringify(value, null, 2));
  const heading = element("h4", `${title}: ${part.bytes} bytes`);
  const shown = element("pre", text.slice(0, MOST_SHOWN), { role: "region", tabindex: "0", "aria-label": title });
  if (text.length <= MOST_SHOWN) return [heading, shown];
  return [heading, shown, element("p", `Cut: the first ${MOST_SHOWN} of ${text.length} characters are shown.`)];
}

function hidePayload() {
  $("task-payload").hidden = true;
  setText($("task-payload-note"), "");
  $("task-payload-parts").replaceChildren();
}

async function cancelTask(task) {
  const text = `${task.tool} at ${task.upstream}, ${task.reference}. The call is cancelled at the server.`;
  if (!(await confirm("Cancel the task?", text, "Cancel the task", true))) return;
  const reason = $("confirm-reason").value.trim();
  try {
    takeTask(await api("POST", `/tasks/${task.reference}/cancel`, reason ? { body: { reason } } : {}));
    say(`Cancelled: ${task.tool}, ${task.reference}.`);
    if (opened === task.reference) await openTask(opened);
  } catch (error) {
    sayRefusal("Cancel", error);
  }
}

// --- confirmation

let answer = null;

function confirm(title, text, action, asksWhy = false) {
  $("confirm-reason").value = "";
  $("confirm-why").hidden = !asksWhy;
  setText($("confirm-title"), title);
  setText($("confirm-text"), text);
  setText($("confirm-yes"), action);
  $("confirm-dialog").showModal();
  $("confirm-no").focus();
  return new Promise((resolve) => {
    answer = resolve;
  });
}

function settle(isAgreed) {
  const resolve = answer;
  answer = null;
  if ($("confirm-dialog").open) $("confirm-dialog").close();
  resolve?.(isAgreed);
}

$("confirm-yes").addEventListener("click", () => settle(true));
$("confirm-no").addEventListener("click", () => settle(false));
$("confirm-dialog").addEventListener("close", () => settle(false));

// --- servers

async function loadServers() {
  const page = await latest("servers", "GET", "/upstreams");
  if (page === null) return;
  replaceRows($("server-rows"), page.items.map(makeServerRow));
  setText($("servers-caption"), `${page.items.length} servers, as replica ${page.replica} sees them`);
}

function makeServerRow(item) {
  const name = cell(item.name, "", true);
  name.append(element("span", item.path, { class: "more" }));
  const state = cell(badge(item.state ?? "unknown", STATE_TONES[item.state] ?? "cancelled"));
  for (const text of troubleOf(item)) state.append(element("span", text, { class: "more" }));
  if (item.circuit !== "closed") state.append(element("span", `circuit ${item.circuit}`, { class: "more" }));
  const act = cell("", "act");
  if (mayAct()) {
    const [verb, label] = item.is_held ? ["release", "Release"] : ["hold", "Hold"];
    act.append(button(label, `${label} ${item.name}`, () => holdServer(item, verb)));
  }
  const made = row(
    name, state, cell(item.circuit, "wide"), cell(`${item.calls} of ${item.limit}`, "number"),
    cell(item.waiting, "number"), cell(item.tasks, "number wide"), cell(item.processes ?? "–", "number wide"), act,
  );
  made.dataset.key = item.name;
  return made;
}

// Why a server is not up, since when, and how many of the latest requests failed.
function troubleOf(item) {
  const counts = `${item.recent_failures} of ${item.recent_requests} failed in 5 min`;
  return [item.cause, item.since && `since ${dateTime(item.since)}`, item.recent_failures > 0 && counts].filter(Boolean);
}

async function holdServer(item, verb) {
  const text = `This replica refuses new calls to ${item.name}. Calls that run go on.`;
  if (verb === "hold" && !(await confirm("Hold the server?", text, "Hold the server"))) return;
  try {
    await api("POST", `/upstreams/${encodeURIComponent(item.name)}/${verb}`);
    say(verb === "hold" ? `Held: ${item.name}.` : `Released: ${item.name}.`);
    await loadServers();
  } catch (error) {
    sayRefusal(verb === "hold" ? "Hold" : "Release", error);
  }
}

// --- callers

const callers = { cursor: null, next: null, filter: "" };

async function loadCallers(cursor) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (callers.filter) query.set("caller", callers.filter);
  if (cursor) query.set("cursor", cursor);
  const page = await latest("callers", "GET", `/callers?${query}`);
  if (page === null) return;
  takeTime(page);
  Object.assign(callers, { cursor, next: page.next });
  const rows = page.items.flatMap((each) =>
    each.limits.map((limit) =>
      row(
        cell(each.subject ? `${caller(each)}, ${each.caller}` : caller(each), "", true), cell(limit.upstream ? `${limit.limit} (${limit.upstream})` : limit.limit),
        cell(limit.used, "number"), cell(limit.most ?? "–", "number"),
      ),
    ),
  );
  $("caller-rows").replaceChildren(...(rows.length ? rows : [emptyRow("No caller uses a limit.", 4)]));
  setText($("callers-caption"), `Use of limits, as replica ${page.replica} counts it`);
  $("callers-next").disabled = !page.next;
  $("callers-first").disabled = !cursor;
}

async function turnCallersTo(cursor) {
  try {
    await loadCallers(cursor);
  } catch (error) {
    sayRefusal("Callers", error);
  }
}

$("caller-filter").addEventListener("submit", (event) => {
  event.preventDefault();
  callers.filter = event.target.elements.caller.value.trim();
  turnCallersTo(null);
});
$("callers-next").addEventListener("click", () => turnCallersTo(callers.next));
$("callers-first").addEventListener("click", () => turnCallersTo(null));

// --- refusals

async function loadRefusals() {
  const page = await latest("refusals", "GET", `/refusals?limit=${MOST_REFUSALS}`);
  if (page === null) return;
  takeTime(page);
  const rows = page.items.map(makeRefusalRow);
  $("refusal-rows").replaceChildren(...(rows.length ? rows : [emptyRow("No request was refused.", 6)]));
  const leftOut = page.left_out ? `; ${page.left_out} of callers with many are left out` : "";
  setText($("refusals-caption"), `The newest ${MOST_REFUSALS} of replica ${page.replica}, newest first${leftOut}`);
}

function makeRefusalRow(item) {
  const time = cell(clockTime(item.at), "number");
  time.title = dateTime(item.at);
  const made = row(
    time, cell(badge(item.kind, item.kind === "security" ? "failed" : "input_required")), cell(item.reason),
    cell([item.caller && caller(item), item.address].filter(Boolean).join(", "), "wide"),
    cell([item.upstream, item.tool].filter(Boolean).join(", "), "wide"), cell(item.count, "number"),
  );
  // Equal refusals are one entry, with their number.
  made.dataset.key = JSON.stringify([item.kind, item.caller, item.address, item.upstream, item.tool, item.reason]);
  return made;
}

function takeRefusal(item) {
  if (current() !== "refusals") return;
  // A list that is on its way may be older.
  if (awaited.has("refusals")) reloadView();
  const body = $("refusal-rows");
  const made = makeRefusalRow(item);
  // The row that says that there is none has no key.
  for (const each of [...body.children]) {
    if (each.dataset.key === undefined || each.dataset.key === made.dataset.key) each.remove();
  }
  body.prepend(made);
  while (body.childElementCount > MOST_REFUSALS) body.lastElementChild.remove();
}

// --- configuration

async function loadConfiguration() {
  const document = await latest("configuration", "GET", "/config");
  if (document !== null) setText($("yaml"), document.yaml);
}

// The members of a document as rows: key, value, and the configuration key that it comes from.
function* members(value, key = "") {
  if (value !== null && typeof value === "object" && "value" in value && "from" in value) {
    yield [key, shown(value.value), `${value.from ?? ""}${value.default ? " (default)" : ""}`];
  } else if (Array.isArray(value) && value.every((each) => each === null || typeof each !== "object")) {
    yield [key, value.length ? value.map(shown).join(", ") : "none", ""];
  } else if (value !== null && typeof value === "object") {
    for (const [name, each] of Object.entries(value)) yield* members(each, key ? `${key}.${name}` : name);
  } else {
    yield [key, shown(value), ""];
  }
}

function shown(value) {
  if (value === null) return "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Claims as they are written: sub=bob,scope=read write; or a JSON object. Null for any other text.
function pairs(text) {
  try {
    if (text.trim().startsWith("{")) return JSON.parse(text);
  } catch {
    return null;
  }
  const found = text.split(",").map((pair) => /^\s*([^=]*[^=\s])\s*=(.*)$/s.exec(pair));
  return found.includes(null) ? null : Object.fromEntries(found.map(([, name, value]) => [name, value.trim()]));
}

$("explain-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { upstream, tool, token, claims } = Object.fromEntries(new FormData(event.target));
  event.target.elements.token.value = "";
  const given = claims.trim() ? pairs(claims) : undefined;
  if (given === null) return say("Explain: claims are written as sub=bob,scope=read, or as a JSON object.", "error");
  try {
    const found = await latest("explain", "POST", "/explain", { upstream, tool, token: token || undefined, claims: given });
    if (found === null) return;
    $("explanation-rows").replaceChildren(
      ...[...members(found)].map(([key, value, from]) => row(cell(key, "", true), cell(value), cell(from, "wide"))),
    );
    $("explanation").hidden = false;
    say("");
  } catch (error) {
    $("explanation").hidden = true;
    sayRefusal("Explain", error);
  }
});

// --- events

let source = null;
let connecting = null;
let lastEvent = null;

const reloadView = throttled(async () => {
  if (account && current() !== "configuration") await load(current());
});
const reloadCounts = throttled(async () => {
  if (account && ["servers", "callers"].includes(current())) await load(current());
});

function showLive(state, text) {
  $("live").dataset.state = state;
  setText($("live"), text);
}

const handlers = {
  task(item) {
    takeTask(item);
    reloadCounts();
  },
  upstream: reloadCounts,
  refusal(item) {
    takeRefusal(item);
    if (current() === "callers") reloadCounts();
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
  if (account) connect();
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
  if (given !== null) history.replaceState(null, "", location.pathname);
  try {
    account = await ask("GET", "/ui/session");
    // A link, which may be of another page, does not replace the operator of this one.
    return begin();
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
