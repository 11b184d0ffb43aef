// The list of tasks: its filter, which the address has, its pages, and what events change in it.

import {
  $, age, badge, bar, button, cell, duration, element, emptyRow, link, more, replaceRows, row, say,
  secondsSince, setText, shareOf, takeTime, visible,
} from "./elements.js";
import { api, attempt, latest, mayAct, pagesOf, Refused, session, throttled } from "./requests.js";
import { confirm } from "./confirm.js";

const PAGE = 50;
const QUIET_SECONDS = 60;
const COLUMNS = 6;
const UNFINISHED = "working,input_required";
export const ENDED = new Set(["completed", "failed", "cancelled"]);

const tasks = { rows: new Map(), isComplete: true, filter: { status: UNFINISHED } };
const pages = pagesOf("tasks", "Tasks", loadTasks);
const REASONS = { tool_error: "error of the tool", jsonrpc_error: "error of the server", call_lost: "the call was lost" };

// --- the filter, in the form and in the address

function readFilter() {
  const given = Object.fromEntries(new FormData($("task-filter")));
  const filter = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ""));
  const statuses = (filter.status ?? "").split(",").filter(Boolean);
  // Lists with ended tasks have the newest first.
  if (!statuses.length || statuses.some((status) => ENDED.has(status))) delete filter.sort;
  return filter;
}

// The address of the list with a filter. An address without a status is that of unfinished tasks.
export function addressOf({ status, ...filter }) {
  const query = new URLSearchParams(filter);
  if (status !== UNFINISHED) query.set("status", status ?? "");
  if (filter.sort === "-created") query.delete("sort");
  return query.size ? `/ui/tasks?${query}` : "/ui/tasks";
}

// Fills the form from an address, and reads the list.
export async function showTasks(query) {
  const form = $("task-filter");
  const unknown = [...query.keys()].find((name) => form.elements.namedItem(name) === null);
  if (unknown !== undefined) {
    clearTasks();
    throw new Refused(400, `the page has no filter ${unknown}`);
  }
  for (const control of form.querySelectorAll("input, select")) {
    const given = query.get(control.name);
    const fallback = { status: UNFINISHED, sort: "-created" }[control.name] ?? "";
    const value = given ?? fallback;
    // A name of a server that is not known yet, or a status of another release.
    if (control.tagName === "SELECT" && ![...control.options].some((each) => each.value === value)) {
      control.append(element("option", value, { value }));
    }
    control.value = value;
  }
  tasks.filter = readFilter();
  await loadTasks(null);
}

function applyFilter(event) {
  event.preventDefault();
  if (!$("task-filter").reportValidity()) return;
  const address = addressOf(readFilter());
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  tasks.filter = readFilter();
  say("");
  pages.turnTo(null);
}

// --- the list

async function loadTasks(cursor) {
  const query = new URLSearchParams({ ...tasks.filter, limit: String(PAGE) });
  if (cursor) query.set("cursor", cursor);
  let page;
  try {
    page = await latest("tasks", "GET", `/tasks?${query}`);
  } catch (error) {
    // Rows of another filter would stand beside the error, and could be cancelled.
    clearTasks();
    throw error;
  }
  if (page === null) return;
  takeTime(page);
  pages.take(cursor, page);
  tasks.isComplete = page.is_complete;
  // A row keeps its elements, so that a click meets the button that it aims at.
  const before = new Map(tasks.rows);
  tasks.rows.clear();
  for (const item of page.items) tasks.rows.set(item.reference, takeListed(before.get(item.reference), item));
  const rows = tasks.rows.size ? [...tasks.rows.values()].map((each) => each.row) : [emptyRow(COLUMNS, ...nothing())];
  // Words stay, so that a click meets the link in them.
  if (tasks.rows.size || rows[0].textContent !== $("task-rows").textContent) replaceRows($("task-rows"), rows);
  showTaskCount();
}

// The row of a task that the list has. An answer and an event may cross each other.
function takeListed(known, item) {
  if (!known) return makeTaskRow(item);
  if (Date.parse(known.item.updated_at) <= Date.parse(item.updated_at)) known.item = item;
  known.listed = item;
  renderTaskRow(known);
  return known;
}

export const reloadTasks = () => loadTasks(pages.cursor);

function showTaskCount() {
  const count = tasks.rows.size;
  const parts = [`${count} ${count === 1 ? "task" : "tasks"}`];
  if (pages.cursor) parts.push("a later page");
  if (pages.next) parts.push("more follow");
  if (!tasks.isComplete) parts.push("of more than 10,000, not all are sorted");
  setText($("tasks-caption"), parts.join(", "));
  $("tasks-cancel").hidden = !mayAct() || !canCancelMany();
}

// What to do where a list is empty.
function nothing() {
  const { status, sort, ...rest } = tasks.filter;
  if (Object.keys(rest).length) return ["No task matches. ", link("Show all tasks", addressOf({}))];
  if (status !== UNFINISHED) return ["There is no such task. Ended ones are kept until they expire."];
  return ["No task is unfinished. ", link("Show all tasks", addressOf({}))];
}

const canCancelMany = () => tasks.rows.size > 0 && (tasks.filter.status ?? "") === UNFINISHED;

function makeTaskRow(item) {
  const open = link("", `/ui/tasks/${item.reference}`);
  const place = more(null);
  const name = cell(open, "", true);
  name.append(place);
  const status = badge("", "");
  const note = more(null);
  const statusCell = cell(status);
  statusCell.append(note);
  const made = {
    item,
    listed: item,
    row: row(name, statusCell, cell("", "number"), cell("", "wide progress"), cell("", "wide"), cell("", "act")),
    parts: { open, place, status, note },
  };
  made.row.dataset.key = item.reference;
  renderTaskRow(made);
  return made;
}

// Who a caller is: its subject, with the tenant in brackets; its reference without names.
export function caller(item) {
  const name = item.subject ?? item.caller;
  return item.tenant ? `${name} (${item.tenant})` : name;
}

function renderTaskRow(made) {
  const { item, parts } = made;
  const [, , ageCell, progress, callerCell, act] = made.row.cells;
  setText(parts.open, item.tool);
  setText(parts.place, `${item.upstream} · ${item.reference}`);
  setText(parts.status, item.status);
  parts.status.dataset.tone = item.tool_error ? "failed" : item.status;
  setText(parts.note, statusNote(item));
  renderAge(ageCell, item);
  renderProgress(progress, item);
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

export function renderProgress(place, item) {
  const share = shareOf(item.progress);
  if (share === null) return setText(place, item.progress);
  if (place.textContent !== visible(item.progress)) {
    place.replaceChildren(bar(0, share, "progress"), element("span", item.progress));
  }
}

// The age of a task; how long an unfinished one has been silent, or how long an ended one took.
function renderAge(place, item) {
  const text = age(item.created_at);
  const silent = secondsSince(item.updated_at);
  const took = (Date.parse(item.updated_at) - Date.parse(item.created_at)) / 1000;
  const note = ENDED.has(item.status) ? `took ${duration(took)}` : silent > QUIET_SECONDS ? `silent ${duration(silent)}` : "";
  if (!place.firstChild) place.append(element("span"), more(""));
  setText(place.firstChild, text);
  setText(place.lastChild, note);
}

export function statusNote(item) {
  if (item.is_queued) return item.queue_position === null ? "waits" : `waits, ${item.queue_position} before it`;
  return item.reason ? REASONS[item.reason] ?? item.reason.replaceAll("_", " ") : "";
}

// --- what events change: a row at once; what joins or leaves the list, with the next reading of it

export function takeTask(item) {
  const known = tasks.rows.get(item.reference);
  if (known && Date.parse(known.item.updated_at) <= Date.parse(item.updated_at)) {
    known.item = item;
    renderTaskRow(known);
  }
  // Only the gateway knows the order and the filter.
  if (!known || !isListedSo(known.listed, item)) reloadPage();
}

const isListedSo = (listed, item) => listed.status === item.status && !tasks.filter.sort?.endsWith("updated");

const reloadPage = throttled(async () => {
  if (session.account && !$("view-tasks").hidden) await pages.turnTo(pages.cursor);
});

export function clearTasks() {
  tasks.rows.clear();
  $("task-rows").replaceChildren();
  $("tasks-cancel").hidden = true;
  setText($("tasks-caption"), "Tasks");
}

setInterval(() => {
  for (const { item, row: shown } of tasks.rows.values()) {
    renderAge(shown.cells[2], item);
    if (secondsSince(item.expires_at) > 0) reloadPage();
  }
}, 1000);

// --- cancel

// Asks, and cancels a task. True if it was cancelled.
export async function cancelTask(task) {
  const text = `${task.tool} at ${task.upstream}, ${task.reference}. The call is cancelled at the server.`;
  const agreed = await confirm("Cancel the task?", text, "Cancel the task", { asksWhy: true });
  if (!agreed) return false;
  return attempt("Cancel", async () => {
    await api("POST", `/tasks/${task.reference}/cancel`, agreed.reason ? { body: agreed } : {});
    say(`Cancelled: ${task.tool}, ${task.reference}.`);
    return true;
  });
}

// Counts the tasks that match the filter, asks, and cancels exactly those.
const cancelMany = () => attempt("Cancel", async () => {
  const { sort, status, ...selection } = tasks.filter;
  const selected = { ...selection, status: status.split(",") };
  if (selected.older_than) selected.older_than = Number(selected.older_than);
  const counted = await api("POST", "/tasks/cancel", { body: { ...selected, dry_run: true } });
  const named = Object.entries(selection).map(([name, value]) => `${name.replace("_", " ")} ${value}`).join(", ");
  const text = `${counted.matched} unfinished tasks${named && ` with ${named}`}. Their calls are cancelled at the servers.`;
  const agreed = await confirm("Cancel all tasks that match?", text, `Cancel ${counted.matched} tasks`, { asksWhy: true });
  if (!agreed) return;
  const body = { ...selected, ...agreed, confirm: counted.matched, selection: counted.selection };
  const outcome = await api("POST", "/tasks/cancel", { body });
  const parts = [`Cancelled: ${outcome.cancelled} tasks`];
  if (outcome.ended) parts.push(`${outcome.ended} had ended`);
  if (outcome.failed) parts.push(`${outcome.failed} could not be cancelled`);
  say(`${parts.join(", ")}.`);
  await pages.turnTo(null);
});

$("task-filter").addEventListener("submit", applyFilter);
$("task-filter").addEventListener("change", applyFilter);
$("tasks-cancel").addEventListener("click", cancelMany);
