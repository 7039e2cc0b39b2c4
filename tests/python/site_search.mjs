// Searches the documentation's site as a browser does, and prints for each question the pages that it finds, the best
// one first, as JSON. It runs two scripts of the built site on the built index: the one that prepares questions, which
// pages load, and the search worker.
//   node site_search.mjs SITE QUESTION ...
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const [site, ...questions] = process.argv.slice(2);
const workers = join(site, "assets/javascripts/workers");
const script = readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf8"));

const listeners = [];
const answers = [];
const inner = {
  console,
  addEventListener: (kind, listener) => kind === "message" && listeners.push(listener),
  postMessage: (data) => answers.push(data),
};
inner.self = inner;
vm.runInNewContext(readFileSync(join(workers, script), "utf8"), inner);

// The page: a worker that keeps what it is sent, and the site's own script, which changes Worker.
class PlainWorker extends EventTarget {
  postMessage(message) {
    this.sent = message;
  }
}
const page = { location: { protocol: "http:" }, EventTarget, window: { Worker: PlainWorker } };
vm.runInNewContext(readFileSync(join(site, "assets/iframe-worker.js"), "utf8"), page);
const worker = new page.window.Worker();

async function ask(message) {
  worker.postMessage(message);
  for (const listener of listeners) await listener({ data: worker.sent });
  return answers.pop();
}

// The kinds of message are those of the theme: 0 sets the search up, 2 is a question.
await ask({ type: 0, data: { config: index.config, docs: index.docs, options: { suggest: false } } });
const found = {};
for (const question of questions) {
  const { data } = await ask({ type: 2, data: question });
  found[question] = data.items.map((sections) => sections[0].location.split("#")[0]);
}
console.log(JSON.stringify(found));
