/** The page /try/{model}: steps of one sequence from a form, the microphone or a file. */
import { make, notify, setText } from "./dom.js";
import { fromFile, fromMicrophone, toBase64, toInt16, Waveform } from "./sound.js";
import { SequenceStream } from "./stream.js";

const SHOWN = 200;
const model = decodeURIComponent(location.pathname.replace(/\/+$/, "").split("/").pop());
const base = location.pathname.replace(/\/try\/[^/]*\/*$/, "");
const main = document.getElementById("main");
const link = document.getElementById("link");
let stream = null, source = null, windows = 0;

const id = make("input", { value: `try-${Math.random().toString(36).slice(2, 8)}`, autocomplete: "off" });
const key = make("input", { type: "password", autocomplete: "off" });
const management = make("input", { value: localStorage.getItem("continuo-management") || `${location.protocol}//${location.hostname}:8081/` });
const body = make("textarea", { rows: 4, cols: 60 });
const type = make("select", {}, make("option", {}, "text/plain"), make("option", {}, "application/json"));
const command = make("pre", { "aria-label": "the same with curl" });
const answers = make("ol", { class: "lines", tabindex: "0", "aria-label": "Answers", "aria-live": "polite" });
const canvas = make("canvas", { width: 800, height: 90, role: "img", "aria-label": "waveform of the sound that was sent", class: "wave" });
const wave = new Waveform(canvas);
const count = make("p", { class: "quiet" });
const file = make("input", { type: "file", accept: "audio/*,.wav" });
const stop = make("button", { type: "button", disabled: true, onclick: () => end() }, "Stop");

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

function showCommand() {
  setText(command, `curl ${quoted(`${location.origin}${base}/predictions/${encodeURIComponent(model)}`)} \\
  -H ${quoted(`ts-request-sequence-id: ${id.value}`)} -H ${quoted(`Content-Type: ${type.value}`)} \\${key.value ? "\n  -H \"Authorization: Bearer $KEY\" \\" : ""}
  -d ${quoted(body.value)}`);
}

/** A step of a stream of sound is answered with a list, one answer for each window. Those that report an event are shown. */
function show(message) {
  if (message.type === "answer" && Array.isArray(message.data)) {
    const events = message.data.filter(each => each && each.event);
    windows += message.data.length;
    setText(count, `${windows} windows, step ${message.step}`);
    for (const each of events) showLine({ ...message, data: each });
    return;
  }
  showLine(message);
}

function showLine(message) {
  const value = message.text ?? (message.data !== undefined ? JSON.stringify(message.data) : message.message ?? message.base64 ?? "");
  answers.append(make("li", { class: message.type === "error" ? "error" : null },
    `${message.step ?? ""} ${message.type === "error" ? `${message.error}: ` : ""}${value}`));
  while (answers.children.length > SHOWN) answers.firstChild.remove();
  answers.scrollTop = answers.scrollHeight;
}

function open() {
  if (stream && stream.of === id.value) return stream;
  stream?.close();
  const url = `${location.origin.replace(/^http/, "ws")}${base}/v1/streams/${encodeURIComponent(model)}/${encodeURIComponent(id.value)}`;
  stream = new SequenceStream(url, key.value.trim());
  stream.of = id.value;
  stream.onAnswer = show;
  stream.onState = (word, isLive) => {
    setText(link, word);
    link.className = isLive ? "badge good" : "badge";
  };
  return stream;
}

function piece(samples, rate) {
  wave.add(samples);
  const isTaken = open().step({ base64: toBase64(toInt16(samples)),
    content_type: `audio/x-pcm; rate=${Math.round(rate)}; encoding=pcm_s16le; channels=1` });
  if (!isTaken) {
    end();
    notify("The model is slower than the sound: 200 pieces wait for their answers.", true);
  }
}

function end() {
  source?.stop();
  source = null;
  stop.disabled = true;
}

async function begin(start) {
  end();
  try {
    source = await start();
    stop.disabled = false;
  } catch (error) {
    notify(`The sound cannot be read: ${error.message}`, true);
  }
}

/** The fields of a model that declares its tensors, as GET /v2/models/{model} has them. */
function tensorFields(inputs) {
  return inputs.map(input => ({
    input,
    shape: make("input", { value: input.shape.map(dim => Math.max(dim, 1)).join(", "), autocomplete: "off" }),
    data: make("textarea", { rows: 3, cols: 40, placeholder: "0.1, 0.2, ..." }),
  }));
}

/** The body of a v2 request; texts are taken as they are, one a line. */
function tensorRequest(fields) {
  const numbers = text => text.split(/[\s,]+/).filter(Boolean).map(Number);
  return {
    parameters: { sequence_id: id.value },
    inputs: fields.map(({ input, shape, data }) => ({
      name: input.name, datatype: input.datatype, shape: numbers(shape.value),
      data: input.datatype === "BYTES" ? data.value.split("\n") : input.datatype === "BOOL"
        ? numbers(data.value).map(Boolean) : numbers(data.value),
    })),
  };
}

/** Replaces the form of a body by one with a field for each tensor. */
async function describe() {
  const auth = () => (key.value ? { Authorization: `Bearer ${key.value}` } : {});
  const path = `${base}/v2/models/${encodeURIComponent(model)}`;
  const answer = await fetch(path, { headers: auth() });
  const inputs = answer.ok ? (await answer.json()).inputs || [] : [];
  if (!inputs.length) return;
  const fields = tensorFields(inputs);

  const say = () => setText(command, `curl ${quoted(`${location.origin}${path}/infer`)} -d ${quoted(JSON.stringify(tensorRequest(fields)))}`);
  const send = async event => {
    event.preventDefault();
    const got = await fetch(`${path}/infer`, { method: "POST", headers: { ...auth(), "Content-Type": "application/json" },
      body: JSON.stringify(tensorRequest(fields)) });
    const value = await got.json();
    show(got.ok ? { type: "answer", data: value.outputs.map(each => ({ name: each.name, shape: each.shape, data: each.data, event: true })) }
      : { type: "error", error: String(got.status), message: value.error });
  };
  for (const { shape, data } of fields) for (const each of [shape, data]) each.addEventListener("input", say);
  document.getElementById("step").replaceWith(make("form", { id: "step", onsubmit: send, oninput: say },
    ...fields.map(({ input, shape, data }) => make("fieldset", {}, make("legend", {}, `${input.name} ${input.datatype} [${input.shape.join(", ")}]`),
      make("div", { class: "row" }, make("label", {}, "Shape", shape), make("label", {}, "Values", data)))),
    make("button", { class: "main" }, "Send step")));
  say();
}

for (const input of [id, body, type, key]) input.addEventListener("input", showCommand);
document.title = `Try ${model} – Continuo`;
main.append(
  make("h2", {}, `Try ${model}`),
  make("div", { class: "row" }, make("label", {}, "Sequence", id), make("label", {}, "Inference key, if needed", key)),
  make("div", { class: "split" },
    make("section", { class: "card" }, make("h3", {}, "A step"),
      make("form", { id: "step", onsubmit: event => {
        event.preventDefault();
        if (!open().step({ text: body.value, content_type: type.value })) notify("200 steps wait for their answers.", true);
      } }, make("div", { class: "row" }, make("label", {}, "Body", body), make("label", {}, "Content type", type)),
      make("button", { class: "main" }, "Send step")),
      make("h3", {}, "The same with curl"), command),
    make("section", { class: "card" }, make("h3", {}, "Sound"),
      make("div", { class: "row" },
        make("button", { type: "button", onclick: () => begin(() => fromMicrophone(piece)) }, "Microphone"),
        make("label", {}, "or a WAV file", file), stop), canvas, count)),
  make("h2", {}, "Answers"), make("div", { class: "card" }, answers),
  make("h2", {}, "Kill its worker"),
  make("div", { class: "card" }, make("p", {}, "The management page has a button that kills a worker of this model. Its sequences go on: watch the answers here."),
    make("form", { class: "row", onsubmit: event => {
      event.preventDefault();
      localStorage.setItem("continuo-management", management.value);
      window.open(`${management.value.replace(/#.*$/, "")}#models/${encodeURIComponent(model)}`, "continuo-management", "noopener");
    } }, make("label", {}, "Management address", management), make("button", { class: "danger" }, "Open its workers"))));
file.addEventListener("change", () => file.files[0] && begin(() => fromFile(file.files[0], piece, () => { stop.disabled = true; })));
showCommand();
describe();
