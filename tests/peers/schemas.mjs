// Prints the published schemas that a release of the conformance suite has inside, by revision:
// `node schemas.mjs .../conformance/dist/index.js`. They stand there as object literals.
import fs from "node:fs";
import vm from "node:vm";

const BEGINNING = /\{\$schema:`[^`]*`,(?:\$defs|definitions):\{/g;
// A definition that came with the revision, the newest first.
const MARKS = { "2026-07-28": "DiscoverRequest", "2025-11-25": "CancelTaskRequest", "2025-06-18": "ElicitRequest",
  "2025-03-26": "JSONRPCBatchRequest" };

function literal(text, from) {
  for (let place = from, depth = 0, quote = ""; place < text.length; place += 1) {
    const letter = text[place];
    if (quote) {
      if (letter === "\\") place += 1;
      else if (letter === quote) quote = "";
    } else if ("`\"'".includes(letter)) quote = letter;
    else if (letter === "{") depth += 1;
    else if (letter === "}" && (depth -= 1) === 0) return text.slice(from, place + 1);
  }
  throw new Error(`the literal at ${from} has no end`);
}

const text = fs.readFileSync(process.argv[2], "utf8");
const found = {};
for (const match of text.matchAll(BEGINNING)) {
  const schema = vm.runInNewContext(`(${literal(text, match.index)})`);
  const names = schema.$defs ?? schema.definitions;
  const revision = Object.keys(MARKS).find((each) => MARKS[each] in names);
  if (revision) found[revision] = schema;
}
const missing = Object.keys(MARKS).filter((each) => !(each in found));
if (missing.length) throw new Error(`no schema of ${missing} in ${process.argv[2]}`);
process.stdout.write(JSON.stringify(found));
