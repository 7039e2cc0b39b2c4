/**
 * The view of sequences: a page of a model's sequences, as the listing API has them, and one
 * sequence with its steps as they come.
 */
import { call, download, modelPath, sequencePath, withQuery } from "./api.js";
import { ask } from "./dialogs.js";
import { make, notify, setFacts, setText } from "./dom.js";
import { bytes, duration, number, time } from "./format.js";
import { hashOf } from "./models.js";
import { Table } from "./table.js";

const PAGE = 100;
// A search reads so many pages until it finds something: the server looks at some thousand sequences for each of them.
const SEARCHED = 20;
const STEPS = 50;

function listTable(name, version) {
  return new Table("Sequences", [
    { name: "sequence", label: "Sequence", by: row => row.sequence,
      show: row => make("a", { class: "mono", href: hashOf("sequences", name, version, row.sequence) }, row.sequence) },
    { name: "state", label: "State", by: row => row.state, show: row => row.state },
    { name: "step", label: "Steps", isNumber: true, by: row => row.step, show: row => number(row.step) },
    { name: "idle", label: "Idle", isNumber: true, by: row => row.idleMSec, show: row => duration(row.idleMSec) },
    { name: "bytes", label: "State size", isNumber: true, by: row => row.stateBytes, show: row => bytes(row.stateBytes) },
    { name: "backlog", label: "Waiting", isNumber: true, by: row => row.backlog, show: row => number(row.backlog) },
    { name: "worker", label: "Worker", isNumber: true, by: row => row.worker, show: row => (row.worker ? String(row.worker) : "–") },
    { name: "opened", label: "Opened", by: row => row.opened, show: row => time(row.opened) },
  ], { key: row => row.sequence, sort: "sequence", most: PAGE, empty: "no sequence fits" });
}

function listView({ feed }, [name = "", version = ""]) {
  const model = make("select", { name: "model", required: true });
  const prefix = make("input", { type: "search", name: "prefix", placeholder: "start of an id" });
  const state = make("select", { name: "state" }, ...["live", "open", "closed", "all"].map(word => make("option", {}, word)));
  const status = make("span", { class: "quiet", role: "status" });
  const holder = make("div", {});
  const tokens = [""]; // of the pages so far
  let table = null, choices = "", next = null, isLoading = false;
  const back = make("button", { type: "button", onclick: () => { tokens.pop(); load(); } }, "Previous page");
  const forward = make("button", { type: "button", onclick: () => { tokens.push(next); load(); } }, "Next page");

  function begin() {
    tokens.length = 1;
    load();
  }

  async function load() {
    if (!model.value || isLoading) return;
    isLoading = true;
    const [of, number_] = JSON.parse(model.value);
    if (!table || table.of !== model.value) {
      table = listTable(of, number_);
      table.of = model.value;
      holder.replaceChildren(table.element);
    }
    try {
      let page = null;
      next = tokens[tokens.length - 1];
      for (let read = 0; read < SEARCHED && (!page || (next && !page.sequences.length)); read++) {
        page = await call("GET", withQuery(`${modelPath(of, number_)}/sequences`,
          { prefix: prefix.value, state: state.value, limit: PAGE, next_page_token: next }));
        next = page.nextPageToken || null;
      }
      table.show(page.sequences);
      setText(status, next && !page.sequences.length ? `page ${tokens.length}: none found yet; the next page searches further`
        : `page ${tokens.length}, ${page.sequences.length} sequences; the columns sort this page`);
    } catch (error) {
      setText(status, error.message);
    }
    isLoading = false;
    back.disabled = tokens.length < 2;
    forward.disabled = !next;
  }

  function update() {
    const stateful = [...feed.state.models.values()].filter(about => about.stateful && about.modelName);
    const wanted = stateful.map(about => [about.modelName, about.modelVersion]);
    if (name && version && !wanted.some(each => each[0] === name && each[1] === version)) wanted.push([name, version]);
    const values = wanted.map(each => JSON.stringify(each)).sort();
    if (values.join() === choices) return;
    const before = model.value || (name && version ? JSON.stringify([name, version]) : "");
    choices = values.join();
    model.replaceChildren(...values.map(value => make("option", { value }, JSON.parse(value).join(" "))));
    if (values.includes(before)) model.value = before;
    if (values.length) load();
    else setText(status, "no stateful model is watched");
  }
  for (const input of [model, state]) input.addEventListener("change", begin);
  const element = make("div", {}, make("h2", {}, "Sequences"),
    make("form", { class: "row", role: "search", onsubmit: event => { event.preventDefault(); begin(); } },
      make("label", {}, "Model", model), make("label", {}, "Search", prefix), make("label", {}, "State", state),
      make("button", { class: "main" }, "Search")),
    make("div", { class: "card" }, holder, make("div", { class: "row" }, back, forward, status)));
  back.disabled = forward.disabled = true;
  return { element, update };
}

/** The buttons that change a sequence. */
function actionsOf(name, version, id, go, isReadOnly) {
  const path = sequencePath(name, version, id);
  const exported = make("button", { type: "button", onclick: async () => {
    try {
      await download(`${path}?export=true`, `${id.replace(/[^\w.-]/g, "_")}.cnseq`);
    } catch (error) {
      notify(error.message, true);
    }
  } }, "Export");
  if (isReadOnly()) return [exported];
  return [
    make("button", { type: "button", onclick: () => ask({
      title: `Fork ${id}`, text: "The copy begins with the state that the sequence has now.", button: "Fork",
      fields: [{ name: "fork_to", label: "Id of the copy", value: `${id}-copy` }],
      action: async values => {
        await call("POST", withQuery(path, values));
        notify(`The sequence ${values.fork_to} was made.`);
        location.hash = hashOf("sequences", name, version, values.fork_to);
      },
    }) }, "Fork"),
    exported,
    make("button", { type: "button", class: "danger", onclick: () => ask({
      title: `End and delete ${id}`,
      text: "The sequence ends after the step that it does now. Its state is deleted, and its next step begins anew.",
      button: "End and delete", danger: true,
      action: async () => {
        await call("DELETE", path);
        notify(`The sequence ${id} was ended and deleted.`);
        go();
      },
    }) }, "End and delete"),
  ];
}

function facts(row) {
  return [
    ["State", row.state], ["Generation", String(row.generation)], ["Steps", number(row.step)],
    ["Opened", time(row.opened)], ["Last step", time(row.lastStep)],
    ...(row.state === "closed" ? [["Closed", `${time(row.closed)}, ${row.reason}`]] : [
      ["Idle", duration(row.idleMSec)], ["Idle time left", duration(row.idleLeftMSec)], ["Lifetime left", duration(row.totalLeftMSec)],
      ["State size", `${bytes(row.stateBytes)}, schema ${row.stateSchema}`],
      ["Last answer", `${bytes(row.answerBytes)}${row.answerKept ? ", kept" : ""}`],
      ["Worker", row.worker ? String(row.worker) : "none"], ["Waiting steps", number(row.backlog)],
    ]),
  ];
}

function stepsTable() {
  return new Table(`Steps, as they are seen here (the newest ${STEPS})`, [
    { name: "step", label: "Step", isNumber: true, by: row => row.step, show: row => number(row.step) },
    { name: "time", label: "Committed", by: row => row.at, show: row => new Date(row.at).toLocaleTimeString(undefined, { hour12: false, hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 }) },
    { name: "after", label: "After the step before", isNumber: true, by: row => row.after, show: row => duration(row.after) },
    { name: "bytes", label: "State size", isNumber: true, by: row => row.bytes, show: row => bytes(row.bytes) },
  ], { key: row => String(row.step), sort: "step", descending: true, most: STEPS, empty: "no step has come since the page was opened" });
}

function detailView({ isReadOnly }, [name, version, id]) {
  const list = make("dl", { class: "facts" });
  const error = make("p", { class: "quiet", role: "status" });
  const steps = stepsTable();
  const seen = [];
  const go = () => { location.hash = hashOf("sequences", name, version); };
  const buttons = make("div", { class: "buttons" }, ...actionsOf(name, version, id, go, isReadOnly));
  const state = make("pre", { tabindex: "0", "aria-label": "state" });
  let isLoading = false;

  function note(row) {
    const last = seen[seen.length - 1];
    const at = Date.parse(row.lastStep);
    if (!at || (last && last.step === row.step)) return;
    seen.push({ step: row.step, at, after: last && last.step === row.step - 1 ? at - last.at : null, bytes: row.stateBytes });
    if (seen.length > STEPS) seen.shift();
    steps.show(seen);
  }

  async function update() {
    if (isLoading || !element.isConnected) return;
    isLoading = true;
    try {
      const row = await call("GET", `${sequencePath(name, version, id)}?show_state=true`);
      setFacts(list, facts(row));
      setText(state, JSON.stringify(row.stateValue, null, 2) ?? "not known");
      setText(error, "");
      note(row);
    } catch (caught) {
      setText(error, caught.message);
    }
    isLoading = false;
  }
  steps.show([]);
  const element = make("div", {},
    make("p", { class: "crumbs" }, make("a", { href: hashOf("sequences", name, version) }, "Sequences"), ` › ${name} ${version}`),
    make("div", { class: "row between" }, make("h2", { class: "mono" }, id), buttons), error,
    make("div", { class: "split" }, make("section", { class: "card" }, make("h3", {}, "Sequence"), list),
      make("section", { class: "card" }, steps.element)),
    make("h2", {}, "State"), make("div", { class: "card" }, state));
  setTimeout(update, 0);
  return { element, update };
}

export function sequencesView(context, rest) {
  return rest.length > 2 ? detailView(context, rest) : listView(context, rest);
}
