// Elements of the page, and times. Texts of hosts and servers become text nodes, never markup.

// Controls but for tab and line feed, marks of direction, invisible characters, tags and lone surrogates: those that
// the command line marks, too. Joiners stay, because languages and emoji need them.
const UNSEEN =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e00ff}]/gu;
const SVG = "http://www.w3.org/2000/svg";
const ZONE = "taskgate-utc";

export const $ = (id) => document.getElementById(id);

// A text with a mark for each character that hides or moves others, or makes two names look the same.
export const visible = (text) => String(text).replace(UNSEEN, "\ufffd");

export function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = visible(text);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export function setText(node, text) {
  const wanted = text === null || text === undefined ? "" : visible(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export const badge = (text, tone) => element("span", text, { class: "badge", "data-tone": tone });
export const more = (text) => element("span", text, { class: "more" });

export function cell(content, className, heading = false) {
  const made = element(heading ? "th" : "td");
  if (heading) made.scope = "row";
  if (className) made.className = className;
  if (content instanceof Node) made.append(content);
  else setText(made, content);
  return made;
}

export function row(...cells) {
  const made = element("tr");
  made.append(...cells);
  return made;
}

export function emptyRow(columns, ...content) {
  const only = cell("");
  only.colSpan = columns;
  only.append(...content);
  return row(only);
}

export function button(text, label, act, className = "") {
  const made = element("button", text, { type: "button", "aria-label": visible(label) });
  if (className) made.className = className;
  made.addEventListener("click", act);
  return made;
}

export const link = (text, address, className = "") => element("a", text, { href: address, class: className });

// A button that copies a text, and says so.
export function copyButton(label, text) {
  const made = button(label, `${label}: ${text}`, async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(`Copied: ${text}`);
    } catch {
      // Without HTTPS, beyond this machine, a browser has no clipboard for pages.
      say(text);
    }
  });
  return made;
}

// Remembers which control of a table has the focus. The answer gives it back after a change of the rows.
function focusIn(body) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.closest("tr").dataset.key;
  const index = focused ? [...focused.closest("tr").querySelectorAll("a, button")].indexOf(focused) : -1;
  return () => {
    const found = key === undefined ? null : [...body.rows].find((each) => each.dataset.key === key);
    if (!found || found.contains(document.activeElement)) return;
    const controls = [...found.querySelectorAll("a, button")];
    (controls[index] ?? controls[0])?.focus();
  };
}

export function replaceRows(body, rows) {
  const restoreFocus = focusIn(body);
  body.replaceChildren(...rows);
  restoreFocus();
}

// Says something. `of` is what it is about: the next success of that takes an error away.
export function say(text, kind = "note", of = "") {
  const message = $("message");
  message.dataset.kind = kind;
  message.dataset.of = of;
  message.hidden = !text;
  setText(message, text);
}

// --- drawings: the policy of the page allows no styles in attributes, so that sizes are those of SVG

function drawing(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// The curve of an hour. `label` says in words what it shows.
export function curve(values, label, tone = "working") {
  const most = Math.max(1, ...values.map((each) => each ?? 0));
  const last = values.length - 1;
  const points = values.map((each, index) => `${(100 * index) / last},${23 - (22 * (each ?? 0)) / most}`).join(" ");
  return drawing(
    "svg",
    { class: "curve", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": visible(label), "data-tone": tone },
    drawing("polygon", { points: `0,24 ${points} 100,24` }),
    drawing("polyline", { points }),
  );
}

// A bar from `start` to `end`, shares of the whole.
export function bar(start, end, label, tone = "working") {
  const x = 100 * Math.min(Math.max(start, 0), 0.995);
  const width = Math.max(100 * Math.min(end, 1) - x, 0.5);
  return drawing(
    "svg",
    { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": visible(label), "data-tone": tone },
    drawing("rect", { x, y: 0, width, height: 10 }),
  );
}

// The share that a text of progress tells, such as 57/100; null for others.
export function shareOf(progress) {
  const found = /^(\d+(?:\.\d+)?)\/(\d+(?:\.\d+)?)(?:\s|:|,|$)/.exec(progress ?? "");
  return found && Number(found[2]) > 0 ? Number(found[1]) / Number(found[2]) : null;
}

// --- times

let serverOffset = 0;

export const now = () => Date.now() + serverOffset;

export function takeTime(document) {
  const time = Date.parse(document.now);
  if (!Number.isNaN(time)) serverOffset = time - Date.now();
}

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

// A duration that was measured: 84 ms, 1.2 s.
export function measured(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  return seconds < 120 ? `${Number(seconds.toPrecision(seconds < 100 ? 2 : 3))} s` : duration(seconds);
}

export const isUtc = () => localStorage.getItem(ZONE) !== null;

export function useUtc(wanted) {
  if (wanted) localStorage.setItem(ZONE, "yes");
  else localStorage.removeItem(ZONE);
}

const zone = () => ({ hour12: false, ...(isUtc() && { timeZone: "UTC" }) });
export const secondsSince = (time) => (now() - Date.parse(time)) / 1000;
export const age = (time) => duration(secondsSince(time));
export const clockTime = (time) => new Date(time).toLocaleTimeString([], zone());
export const dateTime = (time) => new Date(time).toLocaleString([], zone());

// A moment as it is read at a glance; the whole date is its title.
export function momentOf(time) {
  const made = element("time", clockTime(time), { datetime: new Date(time).toISOString() });
  made.title = `${dateTime(time)}, ${age(time)} ago`;
  return made;
}
