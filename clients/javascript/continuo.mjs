/**
 * A client for Continuo, a model server for stateful inference. It needs nothing but `fetch` and
 * `WebSocket`: browsers have both, and so has Node from version 22 on. For an older Node, give a
 * WebSocket: `new Client(url, { WebSocket })`. docs/clients.md describes the module.
 *
 *     import { Client } from "./continuo.mjs";
 *     const s = new Client("http://127.0.0.1:8080").sequence("average");
 *     for (const number of [4, 8, 15]) console.log((await s.step(number)).data);
 *
 * @typedef {object} Answer
 * @property {any} data JSON as values, text as a string, anything else as a Uint8Array
 * @property {number} status the HTTP status
 * @property {number|null} step the step's number; null if the server did not say it
 * @property {boolean} replayed true if the step had been done before
 * @property {any[]} pieces the pieces of an answer that was streamed over a WebSocket
 *
 * @typedef {object} StepOptions
 * @property {boolean} [start] begins the sequence anew
 * @property {boolean} [end] ends the sequence with this step
 * @property {number} [timeout] milliseconds for the step with all its repetitions
 * @property {string} [contentType] the content type of the value
 */

const FIRST_PAUSE = 20; // milliseconds between two attempts without a Retry-After
const LONGEST_PAUSE = 2000;
const GIVE_UP = [1002, 1003, 1007, 1009, 4001, 4004]; // closes after which a client stays away

const HELP = {
  client_timeout: "Call retry() to send the same step again; it is not done twice.",
  connection_failed: "Check the address, the scheme (http or https) and the certificate.",
  stream_closed: "Open a new stream; the sequence goes on after its last committed step.",
  model_not_found: "Check the model's name; GET /models on the management address lists them.",
  key_required: "Give the client a valid key: new Client(url, { token }).",
  key_forbidden: "Use a key with the scope or the model that the message names.",
  certificate_refused: "Connect with a certificate that the server accepts; the message says what is wrong.",
  key_limit: "Send more slowly, or end sequences; the message names the limit of the key.",
  token_refused: "Give the client the inference key: new Client(url, { token }).",
  too_large: "Send a smaller body, or start the server with a larger --max-request-size.",
  sequence_unknown: "Begin the sequence with start: true.",
  sequence_expired: "Begin the sequence anew with start: true.",
  sequence_ended: "Begin the sequence anew with start: true.",
  step_done: "Another client may use this sequence; expectedStep is the next number.",
  step_mismatch: "Another client may use this sequence; expectedStep is the next number.",
};

/** Something failed. `word` says what, in the words of the server: `queue_full`, for example. */
export class ContinuoError extends Error {
  /**
   * @param {string} word
   * @param {string} message
   * @param {{status?: number, type?: string, retryAfter?: number|null,
   *          expectedStep?: number|null, undecided?: boolean, code?: number}} [more]
   */
  constructor(word, message, more = {}) {
    super(message);
    this.name = "ContinuoError";
    this.word = word;
    this.status = more.status ?? 0;
    this.type = more.type ?? "ContinuoError";
    this.retryAfter = more.retryAfter ?? null; // seconds
    this.expectedStep = more.expectedStep ?? null;
    this.undecided = more.undecided ?? false; // the step may have been committed
    this.code = more.code ?? 0; // of the WebSocket's close
  }

  /** True if the server says that the same request may succeed later. */
  get retryable() {
    return this.status === 429 || this.status === 503 || this.retryAfter !== null;
  }

  /** One sentence that says what a caller can do. */
  get help() {
    if (HELP[this.word]) return HELP[this.word];
    if (this.retryable) return "The client repeated the request; give it a larger timeout.";
    return this.status >= 500
      ? "Look into the server's log for the reason; the same request would fail again."
      : "Change the request as the message says; the same request would fail again.";
  }
}

const pausing = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const numberOr = (text, otherwise) =>
  text === null || text === undefined || text === "" || Number.isNaN(Number(text))
    ? otherwise : Number(text);
const timedOut = (timeout) =>
  new ContinuoError("client_timeout", `no answer within ${timeout} ms`, { undecided: true });

function isBytes(value) {
  return value instanceof ArrayBuffer || ArrayBuffer.isView(value);
}

function bytesOf(value) {
  return value instanceof ArrayBuffer ? new Uint8Array(value)
    : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function encoded(value) {
  if (isBytes(value)) return [bytesOf(value), "application/octet-stream"];
  if (typeof value === "string") return [value, "text/plain"];
  return [JSON.stringify(value), "application/json"];
}

function decoded(bytes, contentType) {
  const kind = (contentType ?? "").split(";")[0].trim().toLowerCase();
  const text = new TextDecoder().decode(bytes);
  if (kind.startsWith("text/")) return text;
  if (kind !== "application/json" && !kind.endsWith("+json")) return bytes;
  try {
    return JSON.parse(text);
  } catch {
    return bytes; // the handler's content type does not fit
  }
}

function toBase64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function errorOf(status, headers, text) {
  let members = {};
  try {
    members = JSON.parse(text) ?? {};
  } catch { /* a proxy may answer with HTML */ }
  return new ContinuoError(headers.get("continuo-error") ?? "",
    String(members.message ?? members.error ?? (text.trim() || `status ${status}`)), {
      status, type: members.type, retryAfter: numberOr(headers.get("retry-after"), null),
      expectedStep: numberOr(headers.get("continuo-expected-step") ?? members.expectedStep, null),
    });
}

const isRedirect = (reply) =>
  reply.type === "opaqueredirect" || (reply.status >= 300 && reply.status < 400);
// The server's own errors have a type. Pages of other origins do not see the header of the word.
const isOfProxy = (error) => error.status >= 500 && !error.word && error.type === "ContinuoError";

/** Sends a request until the server answers it for good, as Retry-After and the status say. */
async function repeated(url, init, timeout) {
  const deadline = Date.now() + timeout;
  let pause = FIRST_PAUSE;
  let undecided = false;
  for (;;) {
    let error;
    try {
      const signal = AbortSignal.timeout(Math.max(1, deadline - Date.now()));
      const reply = await fetch(url, { ...init, signal, redirect: "manual" }); // 301 makes it a GET
      const bytes = new Uint8Array(await reply.arrayBuffer());
      if (reply.ok) return { reply, bytes };
      error = errorOf(reply.status, reply.headers, isRedirect(reply)
        ? `redirected to ${reply.headers.get("location") ?? "another address"}; use that one`
        : new TextDecoder().decode(bytes));
      const unknown = isOfProxy(error); // which may have lost the server while it did the step
      undecided ||= unknown || error.word === "store_unreachable"; // refused, but maybe saved
      if (!error.retryable) {
        error.undecided = unknown;
        throw error;
      }
    } catch (failed) {
      if (failed instanceof ContinuoError) throw failed;
      if (failed.name === "TimeoutError" || failed.name === "AbortError") throw timedOut(timeout);
      error = new ContinuoError("connection_failed", String(failed.cause ?? failed));
      undecided = true;
    }
    const wait = Math.max((error.retryAfter ?? 0) * 1000, pause);
    if (Date.now() + wait >= deadline) {
      error.undecided = undecided;
      throw error;
    }
    await pausing(wait);
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }
}

function answerOf({ reply, bytes }) {
  return {
    data: decoded(bytes, reply.headers.get("content-type")), status: reply.status,
    step: numberOr(reply.headers.get("continuo-sequence-step"), null),
    replayed: reply.headers.get("continuo-replayed") === "true", pieces: [],
  };
}

/** A client of one server. */
export class Client {
  /**
   * @param {string} url the inference address
   * @param {{token?: string, timeout?: number, WebSocket?: any}} [options] token: the inference
   *   key of a server with --token-auth; timeout: milliseconds for one step with all its
   *   repetitions; WebSocket: a class to use instead of the global one
   */
  constructor(url, { token, timeout = 30000, WebSocket = globalThis.WebSocket } = {}) {
    if (!/^https?:\/\//.test(url))
      throw new TypeError(`the address "${url}" is not one like http://127.0.0.1:8080`);
    this.url = url.replace(/\/+$/, "");
    this.token = token;
    this.timeout = timeout;
    this.WebSocket = WebSocket;
  }

  /** @returns {Record<string, string>} */
  _headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  _path(prefix, ...parts) {
    return this.url + prefix + parts.filter(Boolean).map(encodeURIComponent).join("/");
  }

  /**
   * Sends one request to a model without sequences.
   * @param {string} model
   * @param {any} value bytes, a string, or anything that JSON can express
   * @param {{version?: string, timeout?: number, contentType?: string}} [options]
   * @returns {Promise<Answer>}
   */
  async predict(model, value, { version, timeout = this.timeout, contentType } = {}) {
    const [body, kind] = encoded(value);
    const headers = { ...this._headers(), "Content-Type": contentType ?? kind };
    const init = { method: "POST", headers: new Headers(headers), body }; // refuses line ends
    return answerOf(await repeated(this._path("/predictions/", model, version), init, timeout));
  }

  /**
   * Returns a sequence whose steps go over HTTP. Without an id it is a new one.
   * @param {string} model
   * @param {{id?: string, version?: string, numbered?: boolean}} [options] numbered: false if
   *   several clients step this sequence in turn
   */
  sequence(model, options = {}) {
    return new Sequence(this, model, options);
  }

  /**
   * Returns a sequence whose steps go over a WebSocket.
   * @param {string} model
   * @param {{id?: string, version?: string}} [options]
   */
  stream(model, options = {}) {
    return new Stream(this, model, options);
  }
}

/** One sequence over HTTP: each step has a key, so it is done once however often it is sent. */
export class Sequence {
  constructor(client, model, { id, version, numbered = true }) {
    this.id = id ?? `client-${randomName()}`;
    /** The number of committed steps; null before the first answer of an existing sequence. */
    this.count = id ? null : 0;
    this._client = client;
    this._url = client._path("/predictions/", model, version);
    this._numbered = numbered;
    this._key = randomName();
    this._sent = 0;
    this._pending = null;
  }

  /**
   * Does one step. It is repeated until the timeout, and is done once.
   * @param {any} value bytes, a string, or anything that JSON can express
   * @param {StepOptions} [options]
   * @returns {Promise<Answer>}
   */
  async step(value, { start = false, end = false, timeout, contentType } = {}) {
    if (this._pending) throw new Error("the last step is not decided: await it, or call retry()");
    const [body, kind] = encoded(value);
    const headers = {
      ...this._client._headers(), "Content-Type": contentType ?? kind,
      "Continuo-Sequence": headerText(this.id), "Idempotency-Key": `${this._key}-${this._sent++}`,
    };
    const number = start ? 1 : this.count === null ? null : this.count + 1;
    if (number && this._numbered) headers["Continuo-Sequence-Step"] = String(number);
    if (start) headers["ts-request-sequence-start"] = "true";
    if (end) headers["ts-request-sequence-end"] = "true";
    // Headers refuses line ends while nothing is sent: later the step would stay undecided.
    this._pending = { init: { method: "POST", headers: new Headers(headers), body }, start };
    return this.retry({ timeout });
  }

  /**
   * Sends the last step again, after an error that left open whether it was done.
   * @param {{timeout?: number}} [options]
   * @returns {Promise<Answer>}
   */
  async retry({ timeout = this._client.timeout } = {}) {
    if (!this._pending) throw new Error("the last step was answered: there is nothing to repeat");
    const { init, start } = this._pending;
    try {
      const answer = answerOf(await repeated(this._url, init, timeout));
      if (answer.step !== null) this.count = answer.step;
      else if (this.count !== null) this.count = start ? 1 : this.count + 1;
      this._pending = null;
      return answer;
    } catch (error) {
      if (!error.undecided) this._pending = null;
      if (error.expectedStep) this.count = error.expectedStep - 1;
      else if (["answer_not_kept", "key_superseded"].includes(error.word)) this.count = null;
      throw error;
    }
  }
}

const randomName = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0")).join("");
const headerText = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** A connection whose messages are awaited one by one. */
class Wire {
  constructor(WebSocket, url, protocols) {
    this._messages = [];
    this._wake = () => {};
    this._closed = null;
    this._open = false;
    this._socket = new WebSocket(url, protocols);
    this._socket.onopen = () => this._then(() => { this._open = true; });
    this._socket.onmessage = ({ data }) => this._then(() => this._messages.push(JSON.parse(data)));
    // Some versions of Node report a refused handshake without a close.
    this._socket.onerror = () => this._then(() => {
      this._closed ??= { code: 1006, reason: "", refused: !this._open };
    });
    this._socket.onclose = ({ code, reason }) => this._then(() => {
      this._closed ??= { code, reason, refused: !this._open };
    });
  }

  _then(change) {
    change();
    this._wake();
  }

  send(message) {
    if (!this._closed) this._socket.send(JSON.stringify(message));
  }

  /** Returns the next message, or throws what closed the connection. */
  async next(deadline, timeout) {
    while (!this._messages.length) {
      if (this._closed) throw { closed: this._closed };
      const left = deadline - Date.now();
      if (left <= 0) throw timedOut(timeout);
      let timer;
      await new Promise((resolve) => {
        this._wake = resolve;
        timer = setTimeout(resolve, left);
      });
      clearTimeout(timer);
    }
    return this._messages.shift();
  }

  close() {
    this._closed ??= { code: 1000, reason: "", refused: false };
    this._socket.close();
  }
}

function bodyOf(message) {
  if ("data" in message) return message.data;
  if ("text" in message) return message.text;
  const bytes = Uint8Array.from(atob(message.base64 ?? ""), (each) => each.charCodeAt(0));
  return decoded(bytes, message.content_type);
}

function errorOfMessage(message) {
  return new ContinuoError(message.error, message.message, {
    status: message.status, type: message.exception, retryAfter: message.retry_after,
    expectedStep: message.expected_step,
  });
}

/** One sequence over a WebSocket, which is opened again and resumed when it breaks. */
export class Stream {
  constructor(client, model, { id, version }) {
    this.id = id ?? `client-${randomName()}`;
    this._client = client;
    this._model = model;
    this._url = client._path("/v1/streams/", model, version, this.id).replace(/^http/, "ws");
    this._wire = null;
    this._known = false; // a first hello has come
    this._resumable = true; // false: a model without sequences
    this._last = 0;
    this._generation = 0;
    this._credit = 1;
    this._unanswered = [];
    this._pieces = [];
    this._busy = false;
  }

  /**
   * Does one step, as Sequence.step does.
   * @param {any} value
   * @param {StepOptions} [options]
   * @returns {Promise<Answer>}
   */
  async step(value, { timeout, ...options } = {}) {
    return (await this._begin([stepOf(value, options)], timeout))[0];
  }

  /**
   * Does many steps, and sends as many before their answers as the server allows.
   * @param {Iterable<any>} values
   * @param {{timeout?: number}} [options] timeout: milliseconds for each step
   * @returns {Promise<Answer[]>}
   */
  async steps(values, { timeout } = {}) {
    return this._begin(Array.from(values, (value) => stepOf(value, {})), timeout);
  }

  /**
   * Goes on with steps after an error that left open whether they were done.
   * @param {{timeout?: number}} [options]
   * @returns {Promise<Answer[]>}
   */
  async retry({ timeout } = {}) {
    return this._until([], timeout ?? this._client.timeout);
  }

  /** Closes the connection. The sequence stays on the server. */
  close() {
    this._wire?.close();
    this._wire = null;
  }

  async _begin(waiting, timeout) {
    if (this._busy || this._unanswered.length)
      throw new Error("the last step is not decided: await it, or call retry()");
    return this._until(waiting, timeout ?? this._client.timeout);
  }

  async _until(waiting, timeout) {
    this._busy = true;
    try {
      return await this._steps(waiting, timeout);
    } catch (error) {
      if (error.undecided) this.close();
      throw error;
    } finally {
      this._busy = false;
    }
  }

  async _steps(waiting, timeout) {
    const answers = [];
    let deadline = Date.now() + timeout;
    let pause = FIRST_PAUSE;
    while (waiting.length || this._unanswered.length) {
      let error;
      try {
        if (!this._wire) await this._open(deadline, timeout);
        this._fill(waiting);
        if (await this._one(answers, deadline, timeout)) {
          deadline = Date.now() + timeout; // the timeout is that of one step
          pause = FIRST_PAUSE;
        }
        continue;
      } catch (failed) {
        error = failed.closed ? await this._broken(failed.closed, deadline) : failed;
        if (!(error instanceof ContinuoError) || !(error.retryable || failed.closed)) throw error;
      }
      const wait = Math.max((error.retryAfter ?? 0) * 1000, pause);
      if (Date.now() + wait >= deadline) {
        error.undecided = this._unanswered.length > 0;
        throw error;
      }
      await pausing(wait);
      pause = Math.min(2 * pause, LONGEST_PAUSE);
      if (this._wire) for (const each of this._unanswered) this._wire.send(each);
    }
    return answers;
  }

  /** Connects once, reads the hello, and sends again what the server does not have. */
  async _open(deadline, timeout) {
    const barrier = this._unanswered.some((each) => each.start || each.end);
    const resumes = this._known && this._resumable && !barrier;
    const query = !resumes ? "" : `?last=${this._last}`
      + (this._generation ? `&generation=${this._generation}` : "");
    const protocols = ["continuo.v1.json"];
    if (this._client.token) protocols.push(`continuo.key.${this._client.token}`);
    this._pieces = [];
    const wire = new Wire(this._client.WebSocket, this._url + query, protocols);
    let hello;
    try {
      do {
        hello = await wire.next(deadline, timeout);
        if (hello.type === "error") {
          const error = errorOfMessage(hello); // a stream that cannot be served now loses nothing
          throw error.retryable ? error : this._lost(hello);
        }
      } while (hello.type !== "hello");
    } catch (error) {
      wire.close();
      throw error;
    }
    if (!this._resumable && hello.generation) { // it has sequences: `last` was not the reason
      this._resumable = true;
      wire.close();
      return this._open(deadline, timeout);
    }
    this._wire = wire;
    this._credit = hello.credit;
    if (!resumes) {
      if (!this._unanswered.length || !this._resumable) this._last = hello.step;
      this._generation = hello.generation;
    } else if (hello.generation) {
      this._generation = hello.generation;
    }
    if (!this._known || !this._resumable)
      this._unanswered.forEach((each, i) => { each.step = each.start ? 1 : hello.next + i; });
    this._known = true;
    for (const each of this._unanswered)
      if (!resumes || each.step >= hello.next) wire.send(each);
  }

  /** The stream cannot be resumed. The next step goes on behind what is missing. */
  _lost(message) {
    this.close();
    this._unanswered = [];
    if (message.expected_step) this._last = message.expected_step - 1;
    else this._known = false;
    return errorOfMessage(message);
  }

  /** Returns the error of a connection that broke, or throws it if trying again is useless. */
  async _broken({ code, reason, refused }, deadline) {
    this._wire = null;
    if (refused) await this._whyRefused(deadline);
    const text = `the stream broke: ${code} ${reason}`.trim();
    if (!GIVE_UP.includes(code)) return new ContinuoError("connection_failed", text, { code });
    this._unanswered = [];
    if (code === 1009)
      throw new ContinuoError("too_large", reason || "the message is too large",
        { status: 413, type: "RequestEntityTooLargeException", code });
    throw new ContinuoError("stream_closed", `${code} ${reason}`.trim(), { code });
  }

  /** A WebSocket hides the answer to a refused handshake, so ordinary requests ask for it. */
  async _whyRefused(deadline) {
    for (const url of [this._url.replace(/^ws/, "http"),
      this._client._path("/v1/models/", this._model)]) {
      let error;
      try {
        const reply = await fetch(url, {
          headers: this._client._headers(),
          signal: AbortSignal.timeout(Math.max(1, deadline - Date.now())),
        });
        const text = await reply.text();
        if (reply.ok) continue;
        error = errorOf(reply.status, reply.headers, text);
      } catch {
        return; // the server is away
      }
      // The first request is no handshake, which is a bad request if nothing else is wrong.
      if (error.word !== "bad_request" && !error.retryable && error.status < 500) throw error;
    }
    if (this._known && !this._generation) this._resumable = false;
  }

  /** Sends as many further steps as the credit allows. START and END go alone. */
  _fill(waiting) {
    while (waiting.length && this._unanswered.length < this._credit) {
      const before = this._unanswered.at(-1);
      if (before && (waiting[0].start || waiting[0].end || before.start || before.end)) return;
      const step = waiting.shift();
      step.step = step.start ? 1 : this._last + this._unanswered.length + 1;
      this._unanswered.push(step);
      this._wire.send(step);
    }
  }

  /** Reads one message and does what it says. Returns true after a final answer. */
  async _one(answers, deadline, timeout) {
    const message = await this._wire.next(deadline, timeout);
    if (message.type === "error") await this._failed(message, deadline, timeout);
    if (message.type !== "answer" || !this._unanswered.length) return false;
    if (message.step !== this._unanswered[0].step)
      throw new ContinuoError("stream_closed", `the answer of step ${message.step} came, but that `
        + `of step ${this._unanswered[0].step} was due`);
    this._pieces.push(bodyOf(message));
    if (!message.final) return false;
    this._unanswered.shift();
    this._last = message.step;
    this._generation = message.generation ?? this._generation;
    answers.push({
      data: this._pieces.at(-1), status: message.status ?? 200, step: message.step,
      replayed: message.replayed ?? false, pieces: this._pieces,
    });
    this._pieces = [];
    return true;
  }

  async _failed(message, deadline, timeout) {
    if (message.error === "answer_not_kept") throw this._lost(message);
    const error = errorOfMessage(message);
    this._pieces = [];
    // Those behind it are refused, too, or answered if the model has no sequences.
    for (let left = this._unanswered.length - 1; left > 0;) {
      const { type, final } = await this._wire.next(deadline, timeout);
      if (type === "error" || final) left--;
    }
    if (error.retryable) throw error;
    if (error.expectedStep) this._last = error.expectedStep - 1;
    this._unanswered = [];
    throw error;
  }
}

function stepOf(value, { start = false, end = false, contentType }) {
  const step = { type: "step", step: 0 };
  if (isBytes(value)) step.base64 = toBase64(bytesOf(value));
  else if (typeof value === "string") step.text = value;
  else step.data = value;
  if (contentType) step.content_type = contentType;
  if (start) step.start = true;
  if (end) step.end = true;
  return step;
}
