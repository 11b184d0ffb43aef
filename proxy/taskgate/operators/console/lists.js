// Callers, refusals and sessions.

import { $, age, badge, bar, button, cell, emptyRow, link, momentOf, more, replaceRows, row, say, setText, takeTime } from "./elements.js";
import { api, attempt, isAwaited, latest, mayAct, pagesOf } from "./requests.js";
import { confirm } from "./confirm.js";
import { addressOf, caller } from "./tasks.js";

const PAGE = 50;
const MOST_REFUSALS = 200;

// --- callers

const callers = pagesOf("callers", "Callers", loadCallers);
let wanted = "";

export async function showCallers(query) {
  wanted = query.get("caller") ?? "";
  $("caller-filter").elements.caller.value = wanted;
  await loadCallers(null);
}

export const reloadCallers = () => loadCallers(callers.cursor);

async function loadCallers(cursor) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (wanted) query.set("caller", wanted);
  if (cursor) query.set("cursor", cursor);
  const page = await latest("callers", "GET", `/callers?${query}`);
  if (page === null) return;
  takeTime(page);
  callers.take(cursor, page);
  const rows = page.items.flatMap((each) => each.limits.map((limit) => makeLimitRow(each, limit)));
  const none = wanted ? ["No such caller uses a limit. ", link("Show all", "/ui/callers")] : ["No caller uses a limit."];
  $("caller-rows").replaceChildren(...(rows.length ? rows : [emptyRow(5, ...none)]));
  setText($("callers-caption"), `Use of limits, as replica ${page.replica} counts it`);
}

function makeLimitRow(item, limit) {
  const name = cell(link(caller(item), addressOf({ caller: item.caller })), "", true);
  if (item.subject) name.append(more(item.caller));
  return row(
    name, cell(limit.upstream ? `${limit.limit} (${limit.upstream})` : limit.limit), cell(limit.used, "number"),
    cell(limit.most ?? "–", "number"), cell(useOf(limit), "wide progress"),
  );
}

// How near a limit is, as a bar.
export function useOf({ used, most }) {
  if (!most) return "";
  const share = used / most;
  return bar(0, share, `${used} of ${most}`, share >= 0.9 ? "failed" : share >= 0.5 ? "input_required" : "working");
}

$("caller-filter").addEventListener("submit", (event) => {
  event.preventDefault();
  wanted = event.target.elements.caller.value.trim();
  history.pushState(null, "", wanted ? `/ui/callers?${new URLSearchParams({ caller: wanted })}` : "/ui/callers");
  callers.turnTo(null);
});

// --- refusals

export async function loadRefusals() {
  const page = await latest("refusals", "GET", `/refusals?limit=${MOST_REFUSALS}`);
  if (page === null) return;
  takeTime(page);
  const rows = page.items.map(makeRefusalRow);
  $("refusal-rows").replaceChildren(...(rows.length ? rows : [emptyRow(6, "No request was refused.")]));
  const leftOut = page.left_out ? `; ${page.left_out} of callers with many are left out` : "";
  setText($("refusals-caption"), `The newest ${MOST_REFUSALS} of replica ${page.replica}, newest first${leftOut}`);
}

function makeRefusalRow(item) {
  const made = row(
    cell(momentOf(item.at), "number"), cell(badge(item.kind, item.kind === "security" ? "failed" : "input_required")),
    cell(item.reason), cell([item.caller && caller(item), item.address].filter(Boolean).join(", "), "wide"),
    cell([item.upstream, item.tool].filter(Boolean).join(", "), "wide"), cell(item.count, "number"),
  );
  // Equal refusals are one entry, with their number.
  made.dataset.key = JSON.stringify([item.kind, item.caller, item.address, item.upstream, item.tool, item.reason]);
  return made;
}

// True if the list on the page is older than the refusal may be, so that it has to be read again.
export function takeRefusal(item) {
  const body = $("refusal-rows");
  const made = makeRefusalRow(item);
  // The row that says that there is none has no key.
  for (const each of [...body.children]) {
    if (each.dataset.key === undefined || each.dataset.key === made.dataset.key) each.remove();
  }
  body.prepend(made);
  while (body.childElementCount > MOST_REFUSALS) body.lastElementChild.remove();
  return isAwaited("refusals");
}

// --- sessions

const sessions = pagesOf("sessions", "Sessions", loadSessions);

export const reloadSessions = () => loadSessions(sessions.cursor);

async function loadSessions(cursor) {
  const query = new URLSearchParams({ limit: String(PAGE), ...(cursor && { cursor }) });
  const page = await latest("sessions", "GET", `/sessions?${query}`);
  if (page === null) return;
  takeTime(page);
  sessions.take(cursor, page);
  const rows = page.items.map(makeSessionRow);
  replaceRows($("session-rows"), rows.length ? rows : [emptyRow(6, "No host has a session at this replica. Modern hosts need none.")]);
  const following = page.next ? ", more follow" : "";
  setText($("sessions-caption"), `${rows.length} sessions in the memory of replica ${page.replica}${following}`);
}

function makeSessionRow(item) {
  const name = cell(link(caller(item), addressOf({ caller: item.caller })), "", true);
  name.append(more(item.session));
  const act = cell("", "act");
  if (mayAct()) act.append(button("End", `End the session ${item.session}`, () => endSession(item), "danger"));
  const made = row(
    name, cell(item.upstream), cell(item.protocol, "wide"), cell(`${age(item.last_used)} ago`, "number"),
    cell(`${item.tasks} tasks, ${item.streams} streams`, "wide"), act,
  );
  made.dataset.key = item.session;
  return made;
}

async function endSession(item) {
  const text = `${caller(item)} at ${item.upstream}, ${item.session}. Its host has to begin a new session. Tasks go on.`;
  if (!(await confirm("End the session?", text, "End the session"))) return;
  await attempt("End", async () => {
    await api("POST", `/sessions/${item.session}/end`);
    say(`Ended: ${item.session}.`);
    await reloadSessions();
  });
}
