// The overview: problems, six numbers of the last hour, servers, tasks without progress, what happened, who uses what.

import {
  $, badge, button, cell, clockTime, curve, duration, element, emptyRow, link, measured, momentOf, more, replaceRows, row,
  secondsSince, setText, takeTime,
} from "./elements.js";
import { api, latest, mayAct, session } from "./requests.js";
import { useOf } from "./lists.js";
import { fillServers, holdButton } from "./servers.js";
import { addressOf, caller, cancelTask, ENDED, renderProgress, statusNote } from "./tasks.js";

const MOST_HAPPENED = 12;
const MOST_LISTED = 5;
const MOST_CALLERS = 100;
const SELDOM_MS = 5000;
let wholeAt = 0;
const UNFINISHED = { status: "working,input_required" };

// Each part is read by itself, one after the other: what is refused leaves the others, and a gateway that is busy
// gets one request of this page at a time. Lists of the store are read less often.
export async function loadOverview({ isWhole = true } = {}) {
  const errors = [];
  const read = async (kind, path, show) => {
    // The operator may sign out between two parts.
    if (!session.account) return null;
    try {
      const found = await latest(kind, "GET", path);
      if (found !== null) show(found);
      return found;
    } catch (error) {
      errors.push(error);
      return null;
    }
  };
  const ready = await readiness();
  let servers = [];
  await read("servers", "/upstreams", (page) => {
    servers = page.items;
  });
  showProblems(servers, ready);
  await read("hour", "/history", (hour) => {
    takeTime(hour);
    showNumbers(hour);
    fillServers($("overview-servers"), { items: servers }, hour);
    setText($("overview-replica"), `as replica ${hour.replica} sees it`);
  });
  if (isWhole || Date.now() - wholeAt > SELDOM_MS) {
    wholeAt = Date.now();
    const quiet = new URLSearchParams({ ...UNFINISHED, sort: "updated", limit: MOST_LISTED });
    await read("quiet", `/tasks?${quiet}`, (page) => showQuiet(page.items));
    const ended = new URLSearchParams({ status: "completed,failed,cancelled", limit: MOST_HAPPENED });
    const tasks = await read("ended", `/tasks?${ended}`, () => {});
    const refusals = await read("newest", `/refusals?limit=${MOST_HAPPENED}`, () => {});
    showHappened(tasks?.items ?? [], refusals?.items ?? [], servers);
    await read("users", `/callers?limit=${MOST_CALLERS}`, (page) => showUsers(page.items));
  }
  if (errors.length) throw errors[0];
}

// What `/readyz?verbose` says, which a gateway that is not ready answers with 503.
async function readiness() {
  try {
    const response = await fetch("/readyz?verbose", { cache: "no-store" });
    return await response.json();
  } catch {
    return {};
  }
}

// --- problems

const CHECKS = {
  started: "The gateway has not started.",
  store: "The task store does not answer: hosts get 503.",
  store_writes: "The task store takes no writes. Its disk may be full.",
  keys: "No key of an issuer is known, so tokens are refused.",
  lease: "This replica cannot write its lease.",
};

function showProblems(servers, ready) {
  const found = [];
  for (const item of servers) {
    if (item.state === "refusing" || item.state === "down") found.push(serverProblem(item));
    else if (item.is_held) found.push(problem("input_required", [element("strong", item.name), " is held by an operator."], mayAct() ? [holdButton(item)] : []));
    if (item.waiting && item.calls >= item.limit) found.push(queueProblem(item));
  }
  for (const [name, isFine] of Object.entries(ready.checks ?? {})) {
    if (!isFine) found.push(problem("failed", [CHECKS[name] ?? name]));
  }
  for (const [name, keys] of Object.entries(ready.issuers ?? {})) {
    if (keys.cause) {
      const refused = keys.refused ? `, ${keys.refused} requests refused` : "";
      found.push(problem("failed", [element("strong", name), `: its keys cannot be fetched: ${keys.cause}${since(keys)}${refused}.`]));
    }
  }
  for (const [name, sink] of Object.entries(ready.audit ?? {})) {
    found.push(problem("failed", [`The audit log cannot be written to `, element("strong", name), `: ${sink.cause}${since(sink)}, ${sink.waiting} lines wait.`]));
  }
  for (const [name, time] of Object.entries(ready.vanished ?? {})) {
    found.push(problem("failed", [`Replica `, element("strong", name), ` is gone since ${clockTime(time)}. Others took its tasks over.`]));
  }
  $("problems").replaceChildren(...found);
}

const since = (each) => (each.since ? ` since ${clockTime(each.since)} (${duration(secondsSince(each.since))})` : "");

function serverProblem(item) {
  const counts = item.recent_requests ? `, ${item.recent_failures} of ${item.recent_requests} requests of 5 min failed` : "";
  const text = ` ${item.state === "down" ? "is down" : "refuses"}: ${item.cause ?? "no cause is known"}${since(item)}${counts}.`;
  const actions = [
    link("Failed tasks", addressOf({ status: "failed", upstream: item.name }), "button"),
    unfinishedOf(item),
  ];
  if (mayAct()) actions.unshift(holdButton(item));
  return problem("failed", [element("strong", item.name), text], actions);
}

function queueProblem(item) {
  const text = ` has ${item.limit} calls in use, its limit, and ${item.waiting} wait: raise its concurrency, or see what it waits for.`;
  return problem("input_required", [element("strong", item.name), text], [unfinishedOf(item)]);
}

const unfinishedOf = (item) => link("Unfinished tasks", addressOf({ ...UNFINISHED, upstream: item.name }), "button");

function problem(tone, words, actions = []) {
  const made = element("li", null, { "data-tone": tone });
  const text = element("p");
  text.append(...words);
  made.append(text, ...actions);
  return made;
}

// --- numbers

const sum = (values) => values.reduce((total, each) => total + each, 0);
const last = (values, count) => sum(values.slice(-count));

function showNumbers(hour) {
  const requests = last(hour.requests, 5);
  const failed = requests ? (100 * last(hour.failures, 5)) / requests : 0;
  const refused = last(hour.refusals, 5);
  const numbers = [
    ["requests / min", hour.requests.at(-1), hour.requests, "working"],
    ["failed, 5 min", `${Number(failed.toPrecision(2))} %`, hour.failures, failed > 0 ? "failed" : "completed"],
    ["p95 of calls, 5 min", measured(hour.recent_p95_seconds), hour.p95_seconds, "working"],
    ["unfinished tasks", hour.unfinished.at(-1), hour.unfinished, "working"],
    ["waiting in queues", hour.waiting.at(-1), hour.waiting, hour.waiting.at(-1) ? "input_required" : "working"],
    ["refused, 5 min", refused, hour.refusals, refused ? "input_required" : "working"],
  ];
  $("numbers").replaceChildren(...numbers.map(([name, value, values, tone]) => number(name, value, values, tone)));
}

function number(name, value, values, tone) {
  const made = element("li");
  const shown = element("strong", value, { "data-tone": tone });
  made.append(element("span", name), shown, curve(values, `${name}: the last hour`, tone));
  return made;
}

// --- tasks without progress, what happened, who uses what

function showQuiet(items) {
  const rows = items.map((item) => {
    const name = cell(link(item.tool, `/ui/tasks/${item.reference}`), "", true);
    name.append(more(item.upstream));
    const who = cell(caller(item), "wide");
    const progress = cell("none", "progress wide");
    if (item.progress) renderProgress(progress, item);
    const act = cell("", "act");
    if (mayAct()) act.append(button("Cancel", `Cancel ${item.tool}, ${item.reference}`, () => cancelTask(item), "danger"));
    const made = row(name, who, progress, cell(duration(secondsSince(item.updated_at)), "number"), act);
    made.dataset.key = item.reference;
    return made;
  });
  replaceRows($("quiet-rows"), rows.length ? rows : [emptyRow(5, "No task is unfinished.")]);
}

function showHappened(ended, refusals, servers) {
  const found = [
    ...ended.filter((item) => ENDED.has(item.status)).map(endOf),
    ...refusals.map((item) => ({
      at: item.at, badge: badge("refused", "input_required"),
      words: [[item.reason, item.caller && caller(item), item.count > 1 && `${item.count} ×`].filter(Boolean).join(" · ")],
    })),
    ...servers.filter((item) => item.cause && item.since).map((item) => ({
      at: item.since, badge: badge("server", "failed"), words: [`${item.name}: ${item.cause}`],
    })),
  ].sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
  const items = found.slice(0, MOST_HAPPENED).map((each) => {
    const made = element("li");
    made.append(momentOf(each.at), " ", each.badge, " ", ...each.words);
    return made;
  });
  $("happened").replaceChildren(...(items.length ? items : [element("li", "Nothing yet. A task that ends and a refusal appear here.")]));
}

function endOf(item) {
  const tone = item.tool_error ? "failed" : item.status;
  const took = (Date.parse(item.updated_at) - Date.parse(item.created_at)) / 1000;
  const rest = ` · ${item.upstream} · ${caller(item)} · ${[measured(took), statusNote(item)].filter(Boolean).join(" · ")}`;
  return { at: item.updated_at, badge: badge(item.status, tone), words: [link(item.tool, `/ui/tasks/${item.reference}`), rest] };
}

function showUsers(items) {
  const share = (limit) => (limit.most ? limit.used / limit.most : 0);
  const found = items.map((item) => ({ item, nearest: [...item.limits].sort((one, other) => share(other) - share(one))[0] }));
  found.sort((one, other) => share(other.nearest ?? {}) - share(one.nearest ?? {}));
  const count = (item, limit) => sum(item.limits.filter((each) => each.limit === limit).map((each) => each.used));
  const rows = found.slice(0, MOST_LISTED).map(({ item, nearest }) => {
    const name = cell(link(caller(item), addressOf({ caller: item.caller })), "", true);
    const use = cell(nearest ? useOf(nearest) : "", "progress");
    if (nearest) use.append(more(`${nearest.limit} ${nearest.used} of ${nearest.most ?? "any"}`));
    return row(name, cell(count(item, "calls_per_context"), "number"), cell(count(item, "tasks_per_context"), "number"), use);
  });
  $("user-rows").replaceChildren(...(rows.length ? rows : [emptyRow(4, "No caller uses a limit.")]));
}

// --- search

// Goes to what a text names: the address of its page, or null.
export async function addressOfText(text) {
  if (/^t_[A-Za-z0-9_-]{22}$/.test(text)) return `/ui/tasks/${text}`;
  if (/^c_./.test(text)) return addressOf({ caller: text, status: "" });
  const isReference = /^t_[A-Za-z0-9_-]{0,21}$/.test(text);
  for (const name of [...(isReference ? ["reference"] : []), "tool", "caller", "tenant"]) {
    const query = new URLSearchParams({ [name]: text, limit: 1 });
    const page = await api("GET", `/tasks?${query}`);
    if (page.items.length) return addressOf({ [name]: text, status: "" });
  }
  const { items } = await api("GET", "/upstreams");
  return items.some((each) => each.name === text) ? addressOf({ upstream: text, status: "" }) : null;
}
