// The configuration in force, and `explain` for a call.

import { $, cell, row, say, setText } from "./elements.js";
import { attempt, latest } from "./requests.js";

export async function loadConfiguration() {
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
  const body = { upstream, tool, token: token || undefined, claims: given };
  const found = await attempt("Explain", () => latest("explain", "POST", "/explain", body));
  if (found === null) return;
  $("explanation").hidden = found === undefined;
  if (found === undefined) return;
  $("explanation-rows").replaceChildren(
    ...[...members(found)].map(([key, value, from]) => row(cell(key, "", true), cell(value), cell(from, "wide"))),
  );
  say("");
});
