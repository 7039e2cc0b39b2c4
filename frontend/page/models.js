/** The view of models: the watched versions, the list of all models, and one version in detail. */
import { call, modelPath, withQuery } from "./api.js";
import { makeCharts } from "./chart.js";
import { ask } from "./dialogs.js";
import { make, notify, setFacts, setText } from "./dom.js";
import { bytes, duration, number, time } from "./format.js";
import { Table } from "./table.js";

const PAGE = 50;

export const hashOf = (view, ...parts) => `#${[view, ...parts].map(encodeURIComponent).join("/")}`;

const badge = (text, kind = "") => make("span", { class: `badge ${kind}` }, text);

/** A version's state in a word. */
function stateOf(about) {
  if (about.lastError) return badge("failing", "bad");
  if (about.workersReady === 0 && about.workersAll === 0) return badge("no worker", "note");
  if (about.workersReady === 0) return badge("loading");
  if (about.swap && !about.swap.retired) return badge("being replaced", "note");
  return about.workersReady < about.minWorkers ? badge("short of workers") : badge("ready", "good");
}

const rate = (about, name) => (about.rates || {})[name];

/** The table of watched versions. */
export function modelsTable() {
  return new Table("Versions", [
    { name: "model", label: "Model", by: about => about.modelName,
      show: about => make("a", { href: hashOf("models", about.modelName, about.modelVersion) }, about.modelName) },
    { name: "version", label: "Version", by: about => about.modelVersion,
      show: about => (about.default ? `${about.modelVersion} (default)` : about.modelVersion) },
    { name: "state", label: "State", show: stateOf },
    { name: "workers", label: "Workers", isNumber: true, by: about => about.workersReady,
      show: about => `${about.workersReady} / ${about.workersAll}` },
    { name: "steps", label: "Steps/s", isNumber: true, by: about => rate(about, "stepsPerS"),
      show: about => number(rate(about, "stepsPerS")) },
    { name: "p50", label: "p50", isNumber: true, by: about => rate(about, "p50MSec"),
      show: about => duration(rate(about, "p50MSec")) },
    { name: "p99", label: "p99", isNumber: true, by: about => rate(about, "p99MSec"),
      show: about => duration(rate(about, "p99MSec")) },
    { name: "queue", label: "Queue", isNumber: true, by: about => about.jobQueueStatus.pendingRequests,
      show: about => number(about.jobQueueStatus.pendingRequests) },
    { name: "batch", label: "Batch", isNumber: true, by: about => rate(about, "batchRows"),
      show: about => number(rate(about, "batchRows")) },
    { name: "live", label: "Sequences", isNumber: true, by: about => about.liveSequences,
      show: about => (about.stateful ? number(about.liveSequences) : "–") },
    { name: "memory", label: "Memory", isNumber: true, by: about => about.workerBytes,
      show: about => bytes(about.workerBytes) },
  ], { key: about => `${about.modelName}/${about.modelVersion}`, sort: "model", empty: "no model is registered" });
}

/** The list of all models, page by page, as GET /models has it. */
function allModels() {
  const table = new Table("All models", [
    { name: "model", label: "Model", by: row => row.modelName,
      show: row => make("a", { href: hashOf("models", row.modelName) }, row.modelName) },
    { name: "url", label: "Archive", by: row => row.modelUrl, show: row => row.modelUrl },
  ], { key: row => row.modelName, sort: "model", most: PAGE });
  const status = make("span", { class: "quiet", role: "status" });
  const name = make("input", { type: "search", placeholder: "exact name" });
  let from = 0, hasNext = false;
  const back = make("button", { type: "button", onclick: () => load(Math.max(0, from - PAGE)) }, "Previous");
  const forward = make("button", { type: "button", onclick: () => load(from + PAGE) }, "Next");

  async function load(at) {
    try {
      const page = await call("GET", withQuery("models", { limit: PAGE, next_page_token: at || "" }));
      from = at;
      hasNext = Boolean(page.nextPageToken) && page.models.length === PAGE;
      table.show(page.models);
      setText(status, page.models.length ? `${at + 1} to ${at + page.models.length}` : "none");
    } catch (error) {
      setText(status, error.message);
    }
    back.disabled = from === 0;
    forward.disabled = !hasNext;
  }
  const find = make("form", { class: "row", role: "search", onsubmit: event => {
    event.preventDefault();
    if (name.value) location.hash = hashOf("models", name.value);
  } }, make("label", {}, "Open a model by its name", name), make("button", {}, "Open"));
  const element = make("section", {}, make("h2", {}, "All models"),
    make("div", { class: "card" }, find, table.element, make("div", { class: "row" }, back, forward, status)));
  return { element, load: () => load(from) };
}

function listView({ feed }) {
  const table = modelsTable();
  const all = allModels();
  const element = make("div", {}, make("h2", {}, "Models"), make("div", { class: "card" }, table.element), all.element);
  all.load();
  return {
    element,
    update() {
      const { totals, models } = feed.state;
      table.show([...models.values()].filter(about => about.modelName));
      table.setCaption(totals.versions > models.size
        ? `Watched: the ${models.size} versions with trouble or the most steps, of ${totals.versions}` : "All versions");
    },
  };
}

/** Runs a change that the server may still be doing when it answers, and says what it said. */
const change = (method, path) => async () => {
  const answer = await call(method, path);
  notify(answer.status || "done");
  return answer;
};

function workersTable(about, isReadOnly) {
  const path = index => `${modelPath(about().modelName, about().modelVersion)}/workers/${index}`;
  return new Table("Workers", [
    { name: "index", label: "Worker", by: worker => worker.index, show: worker => String(worker.index) },
    { name: "state", label: "State", by: worker => worker.state,
      show: worker => badge(worker.loading || worker.state, worker.state === "ready" ? "good" : "") },
    { name: "pid", label: "Process", isNumber: true, by: worker => worker.pid, show: worker => String(worker.pid || "–") },
    { name: "device", label: "Device", by: worker => worker.device, show: worker => worker.device || "–" },
    { name: "memory", label: "Memory", isNumber: true, by: worker => worker.memoryUsage, show: worker => bytes(worker.memoryUsage) },
    { name: "live", label: "Sequences", isNumber: true, by: worker => worker.liveSequences, show: worker => number(worker.liveSequences) },
    { name: "busy", label: "Works on", show: worker => (worker.busy ? `${worker.busy.rows} rows for ${duration(worker.busy.forMSec)}` : "–") },
    { name: "restarts", label: "Restarts", isNumber: true, by: worker => worker.restarts, show: worker => String(worker.restarts) },
    { name: "exit", label: "Last end", show: worker => worker.lastExit || "–" },
    { name: "kill", label: "", show: worker => killButton(worker, path, isReadOnly) },
  ], { key: worker => String(worker.index), sort: "index", most: 64, empty: "the model has no worker" });
}

function killButton(worker, path, isReadOnly) {
  if (isReadOnly() || !worker.pid) return "";
  return make("button", { type: "button", class: "danger", "data-text": `kill ${worker.pid}`, onclick: () => ask({
    title: `Kill worker ${worker.index}`,
    text: "The process is killed with kill -9. The server starts another one and sends the worker's steps again; no "
      + "answered step is lost.",
    button: "Kill worker", danger: true, action: change("DELETE", path(worker.index)),
  }) }, "Kill");
}

/** The buttons that change a version. */
function actionsOf(about) {
  const { modelName: name, modelVersion: version } = about;
  const path = modelPath(name, version);
  return [
    make("button", { type: "button", onclick: () => ask({
      title: `Scale ${name} ${version}`, text: "The number of workers stays between these two.", button: "Scale",
      fields: [{ name: "min_worker", label: "At least", type: "number", value: about.minWorkers },
        { name: "max_worker", label: "At most", type: "number", value: about.maxWorkers }],
      action: values => change("PUT", withQuery(path, values))(),
    }) }, "Scale"),
    make("button", { type: "button", disabled: about.default, onclick: () => ask({
      title: `Make ${version} the default of ${name}`,
      text: "Requests that name no version go to the default version. The policy says what becomes of the sequences "
        + "that the present default has.",
      button: "Set default",
      fields: [{ name: "swap_policy", label: "Sequences of the old version", options: ["", "pin", "migrate", "reset", "reject"], required: false },
        { name: "swap_deadline", label: "Seconds until the old version ends (empty: as configured)", type: "number", required: false }],
      action: values => change("PUT", withQuery(`${path}/set-default`, values))(),
    }) }, "Set default"),
    make("button", { type: "button", class: "danger", onclick: () => ask({
      title: `Unregister ${name} ${version}`,
      text: `The version's workers end, and its ${about.liveSequences} live sequences are closed.`,
      button: "Unregister", danger: true, action: change("DELETE", path),
    }) }, "Unregister"),
  ];
}

function facts(about) {
  const errors = Object.entries(about.errors || {}).map(([word, n]) => `${word} ${number(n)}`).join(", ");
  return [
    ["Archive", about.modelUrl], ["Runtime", about.runtime],
    ["Workers", `${about.workersReady} of ${about.workersAll} ready, ${about.minWorkers} to ${about.maxWorkers} wanted`],
    ["Batch", `up to ${about.batchSize} rows, waits up to ${about.maxBatchDelay} ms`],
    ["Steps", number(about.steps)], ["Mean call", duration(about.meanCallMSec)],
    ["Sequences", about.stateful ? `${number(about.liveSequences)} live of ${number(about.maxNumSequence)}, ${number(about.stored)} stored` : "stateless"],
    ["Store", about.stateStore ? `${about.stateStore.kind}, ${bytes(about.storedBytes)}` : "none"],
    ["Durability", about.durability],
    ["Sent again", `${number(about.redispatched)} steps after a worker's end; ${number(about.replayed)} answered from the record`],
    ["Errors", errors || "none"],
    ...(about.lastError ? [["Last error", about.lastError]] : []),
    ...(about.failedReload ? [["Archive cannot be loaded", about.failedReload.error]] : []),
  ];
}

function detailView(context, [name, version]) {
  const { feed, isReadOnly } = context;
  const title = make("h2", {}, name);
  const state = make("span", {});
  const buttons = make("div", { class: "buttons" });
  const versions = make("p", { class: "quiet" });
  const list = make("dl", { class: "facts" });
  const charts = makeCharts();
  const swapText = make("p", {});
  const swapBar = make("progress", { "aria-label": "sequences that have moved", max: "1", value: "0" });
  const swap = make("section", { class: "card", hidden: true }, make("h3", {}, "Swap"), swapText, swapBar);
  let about = null, shownButtons = "", most = 0;
  const workers = workersTable(() => about, isReadOnly);
  const missing = make("p", { class: "card", hidden: true }, `There is no model ${name}${version ? ` ${version}` : ""}.`);
  const rest = make("div", { hidden: true },
    make("div", { class: "cards" }, ...charts.map(chart => chart.element)),
    swap,
    make("h2", {}, "Workers"), make("div", { class: "card" }, workers.element),
    make("h2", {}, "Facts"), make("div", { class: "card" }, list));
  const element = make("div", {}, make("p", { class: "crumbs" }, make("a", { href: "#models" }, "Models"), ` › ${name}`),
    make("div", { class: "row between" }, make("div", {}, title, state), buttons), versions, missing, rest);
  feed.watch(name);

  function showSwap() {
    const of = about.swap;
    swap.hidden = !of;
    if (!of) return;
    most = Math.max(most, of.sequencesLeft);
    swapBar.max = Math.max(most, 1);
    swapBar.value = most - of.sequencesLeft;
    setText(swapText, `Version ${of.to} replaces this one (${of.policy}): ${of.sequencesLeft} sequences are left here`
      + `${of.deadline ? `, until ${time(of.deadline)}` : ""}${of.retired ? "; this version is retired" : ""}.`);
  }

  function update(event) {
    const all = [...feed.state.models.values()].filter(each => each.modelName === name);
    about = all.find(each => (version ? each.modelVersion === version : each.default)) || null;
    rest.hidden = !about;
    missing.hidden = Boolean(about) || !event.at || !feed.state.at;
    if (!about) return;
    const key = `${about.modelName}/${about.modelVersion}`;
    setText(title, `${name} ${about.modelVersion}${about.default ? " (default)" : ""}`);
    state.replaceChildren(stateOf(about));
    versions.replaceChildren(...(all.length > 1 ? ["Other versions: ", ...all.filter(each => each !== about).map(each =>
      make("a", { href: hashOf("models", name, each.modelVersion) }, ` ${each.modelVersion} `))] : []),
    ...(about.stateful ? [make("a", { href: hashOf("sequences", name, about.modelVersion) }, "Show its sequences")] : []));
    const wanted = JSON.stringify([key, about.default, about.minWorkers, about.maxWorkers, isReadOnly()]);
    if (wanted !== shownButtons) {
      shownButtons = wanted;
      buttons.replaceChildren(...(isReadOnly() ? [] : actionsOf(about)));
    }
    for (const chart of charts) chart.show(feed.points(key));
    setFacts(list, facts(about));
    workers.show(about.workers || []);
    showSwap();
  }
  return { element, update, leave: () => feed.watch("") };
}

export function modelsView(context, rest) {
  return rest.length ? detailView(context, rest) : listView(context);
}
