// The page of one task: facts, timeline, payload.

import {
  $, age, badge, bar, cell, clockTime, copyButton, dateTime, element, link, measured, now, row, setText, visible,
} from "./elements.js";
import { api, attempt, forget, latest, mayAct, Refused, session, throttled } from "./requests.js";
import { addressOf, caller, cancelTask, ENDED, renderProgress, statusNote } from "./tasks.js";

const MOST_SHOWN = 20_000;

let opened = null;

export async function showTask(reference) {
  if (opened !== reference) clearTask();
  opened = reference;
  try {
    const task = await latest("task", "GET", `/tasks/${reference}`);
    if (task !== null && opened === reference) render(task);
  } catch (error) {
    if (error.status !== 404) throw error;
    clearTask();
    setText($("task-title"), `There is no task ${reference}, or it has expired.`);
  }
}

export function clearTask() {
  opened = null;
  forget("task");
  hidePayload();
  for (const each of ["task-title", "task-facts", "task-times", "task-timeline", "task-events", "task-copies"]) $(each).replaceChildren();
  for (const each of ["task-cancel", "task-show-payload"]) $(each).hidden = true;
}

// Reads the task again if an event is about it.
export function noteTask(item) {
  if (item.reference === opened) reloadOpened();
}

const reloadOpened = throttled(async () => {
  if (opened !== null && session.account) await attempt("Task", () => showTask(opened));
});

function render(task) {
  renderTitle(task);
  renderFacts(task);
  renderTimeline(task);
  const canCancel = mayAct() && !ENDED.has(task.status);
  if (!canCancel && document.activeElement === $("task-cancel")) $("main").focus();
  $("task-cancel").hidden = !canCancel;
  $("task-cancel").onclick = async () => {
    if (await cancelTask(task)) reloadOpened();
  };
  if (!task.may_show_payload && document.activeElement === $("task-show-payload")) $("main").focus();
  $("task-show-payload").hidden = !task.may_show_payload;
  $("task-show-payload").onclick = () => showPayload(task.reference);
  if (!task.may_show_payload) hidePayload();
  $("task-copies").replaceChildren(
    copyButton("Copy the link", location.href),
    copyButton("Copy as CLI", `taskgate tasks show ${task.reference}`),
  );
}

function renderTitle(task) {
  const isError = task.status === "failed" || task.tool_error;
  $("task-title").replaceChildren(
    link("Tasks", "/ui/tasks"), " › ", link(task.upstream, addressOf({ upstream: task.upstream })), " › ",
    element("strong", task.tool), " ", badge(task.status, isError ? "failed" : task.status),
    " ", element("span", statusNote(task), { class: "soft" }),
  );
  document.title = `${visible(task.tool)} - taskgate console`;
}

function renderFacts(task) {
  const facts = {
    Reference: task.reference,
    Server: task.upstream,
    Progress: task.progress,
    Failure: task.failure && [task.failure.reason, task.failure.message].filter(Boolean).join(": "),
    Questions: task.questions.join(", "),
    Caller: [caller(task), task.subject && task.caller].filter(Boolean).join(", "),
    Client: task.client,
    Issuer: task.issuer,
    Host: [task.host.name, task.host.version, task.host.revision].filter(Boolean).join(" "),
    Created: `${dateTime(task.created_at)}, ${age(task.created_at)} ago`,
    Changed: `${dateTime(task.updated_at)}, ${age(task.updated_at)} ago`,
    "Kept until": dateTime(task.expires_at),
    Lease: task.lease && `${task.lease.replica} until ${dateTime(task.lease.until)}`,
    "Result fetched": ENDED.has(task.status) ? (task.is_retrieved ? "yes" : "no") : null,
    Trace: task.trace_id,
  };
  const shown = Object.entries(facts).filter(([, value]) => value);
  $("task-facts").replaceChildren(...shown.flatMap(([name, value]) => [element("dt", name), fact(task, name, value)]));
}

function fact(task, name, value) {
  const made = element("dd", value);
  if (name === "Progress") renderProgress(made, task);
  if (name === "Caller") made.append(" ", link("all tasks of this caller", addressOf({ caller: task.caller })));
  return made;
}

// --- the timeline: a bar for each time in which the task waited for something

const WAITS = {
  queued: { text: "waits for a permit", tone: "input_required" },
  working: { text: "call at the server", tone: "working" },
  input_required: { text: "waits for an answer of the host", tone: "input_required" },
};

// The times of a task: what it waited for, from when to when, in milliseconds.
function spans(task) {
  const end = ENDED.has(task.status) ? Date.parse(task.updated_at) : now();
  const found = task.timeline.map((change, index) => ({
    kind: change.status,
    start: Date.parse(change.time),
    end: task.timeline[index + 1] ? Date.parse(task.timeline[index + 1].time) : end,
  }));
  const [first] = found;
  const sent = task.is_queued ? end : task.dispatched_at && Date.parse(task.dispatched_at);
  // A call that waits for a permit counts as working.
  if (first && sent && sent > first.start && sent <= first.end) {
    found.unshift({ kind: "queued", start: first.start, end: sent });
    first.start = sent;
  }
  return found.filter((each) => !ENDED.has(each.kind) && each.end > each.start);
}

function renderTimeline(task) {
  const start = Date.parse(task.created_at);
  const end = Math.max(ENDED.has(task.status) ? Date.parse(task.updated_at) : now(), start + 1);
  const seconds = (each) => (each.end - each.start) / 1000;
  const found = spans(task);
  const queued = found.filter((each) => each.kind === "queued").reduce((sum, each) => sum + seconds(each), 0);
  const parts = [`${measured((end - start) / 1000)} ${ENDED.has(task.status) ? "in all" : "so far"}`];
  if (queued >= 0.1) parts.push(`${measured(queued)} of it in the queue`);
  setText($("task-times"), parts.join(", "));
  const items = found.map((each) => {
    const { text, tone } = WAITS[each.kind];
    const words = `${text}, ${measured(seconds(each))}`;
    const made = element("li", words);
    made.append(bar((each.start - start) / (end - start), (each.end - start) / (end - start), words, tone));
    return made;
  });
  $("task-timeline").replaceChildren(...items);
  $("task-events").replaceChildren(...events(task).map((each) => eventRow(start, each)));
}

// What happened, oldest first: the time, words, and a tone.
function events(task) {
  const words = { working: "works on", input_required: "asks the host", completed: "completed", failed: "failed", cancelled: "cancelled" };
  const found = task.timeline.map(({ status, time }, index) => ({
    time, text: index ? words[status] : "created by tools/call", tone: ENDED.has(status) ? status : null,
  }));
  if (task.tool_error) found.at(-1).tone = "failed";
  if (task.dispatched_at) found.push({ time: task.dispatched_at, text: `sent to ${task.upstream}`, tone: null });
  return found.sort((one, other) => Date.parse(one.time) - Date.parse(other.time));
}

function eventRow(start, { time, text, tone }) {
  const what = cell(text);
  if (tone) what.dataset.tone = tone;
  const at = cell(clockTime(time), "number");
  at.title = dateTime(time);
  return row(at, cell(`+ ${measured(Math.max(0, Date.parse(time) - start) / 1000)}`, "number"), what);
}

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
  if (!session.account || opened !== reference) return;
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
