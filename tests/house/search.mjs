// What the search of the built site finds: the theme's own worker, with the index that the page loads. Arguments: the
// folder of the site, then the queries. Prints, for each query, the addresses of the pages in the order in which they
// are shown. A query that the engine cannot answer is shown without results, and ends this program with status 1.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const page = readFileSync(join(site, "index.html"), "utf8");
const { features, search } = JSON.parse(page.match(/<script id="__config" type="application\/json">(.*?)<\/script>/s)[1]);
const index = JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf8"));

let hear, answered;
function warn(...words) {
  console.error(...words);
  process.exitCode = 1;
}

const worker = {
  console: { warn },
  addEventListener: (_, listener) => (hear = listener),
  postMessage: (message) => answered(message),
};
worker.self = worker;
vm.runInNewContext(readFileSync(join(site, search), "utf8"), worker);

function ask(type, data) {
  return new Promise((resolve) => {
    answered = resolve;
    hear({ data: { type, data } });
  });
}

await ask(0, { ...index, options: { suggest: features.includes("search.suggest") } });
const found = {};
for (const query of queries) {
  const { data } = await ask(2, query);
  found[query] = data.items.map(([first]) => first.location.split("#")[0]);
}
console.log(JSON.stringify(found));
