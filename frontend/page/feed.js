/**
 * The one stream by which the page learns everything that changes (GET /events). Each event has
 * what changed since the last one; the first has everything. fetch() is used rather than
 * EventSource, which cannot send a key.
 */
import { check, headers, withQuery } from "./api.js";

const HISTORY = 300; // points of the charts
const LINES = 300;
const RETRY_MS = [500, 1000, 2000, 5000];

export class Feed {
  constructor() {
    /** What the server last said. `models` has its versions by "name/version". */
    this.state = { server: {}, totals: {}, models: new Map(), findings: [], log: [], trouble: [], at: 0 };
    /** Figures of the last minutes: of the server under "", and of each watched version. */
    this.history = new Map();
    this.onChange = () => {};
    this.onLink = () => {}; // (is connected, error or null)
    this.model = "";
    this.bytes = 0; // received; the page's tests read it
    this.tries = 0;
    this.abort = null;
    this.generation = 0;
  }

  /** Begins, or begins anew, to watch. The versions of `model` are among those that are shown. */
  watch(model = this.model) {
    this.model = model;
    this.generation++;
    if (this.abort) this.abort.abort();
    clearTimeout(this.timer);
    this.run(this.generation);
  }

  async run(generation) {
    this.abort = new AbortController();
    let error = null;
    try {
      const answer = await fetch(withQuery("events", { model: this.model }),
        { headers: headers(), signal: this.abort.signal, cache: "no-store" });
      await check(answer);
      this.tries = 0;
      await this.read(answer.body.getReader(), generation);
    } catch (caught) {
      error = caught;
    }
    if (generation !== this.generation) return;
    this.onLink(false, error);
    const needsKey = error && (error.word === "token_refused" || error.word === "key_required");
    if (needsKey) return; // the user must give a key first
    const delay = RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)];
    this.timer = setTimeout(() => generation === this.generation && this.run(generation), delay);
  }

  async read(reader, generation) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || generation !== this.generation) return;
      this.bytes += value.length;
      text += decoder.decode(value, { stream: true });
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const event = text.slice(0, end);
        text = text.slice(end + 2);
        if (event.startsWith("data: ")) this.take(JSON.parse(event.slice(6)));
      }
      this.onLink(true, null);
    }
  }

  take(event) {
    const state = this.state;
    if (event.full) {
      state.models = new Map();
      state.log = [];
      state.trouble = [];
    }
    for (const name of ["server", "totals", "findings"])
      if (event[name]) state[name] = event[name];
    state.at = event.at;
    for (const [key, changes] of Object.entries(event.models || {})) {
      const about = state.models.get(key) || {};
      for (const [member, value] of Object.entries(changes)) about[member] = value;
      state.models.set(key, about);
    }
    for (const key of event.gone || []) {
      state.models.delete(key);
      this.history.delete(key);
    }
    state.log = [...state.log, ...(event.log || [])].slice(-LINES);
    state.trouble = [...state.trouble, ...(event.trouble || [])].slice(-LINES);
    this.note(event);
    this.onChange(event);
  }

  /** Adds a point to the charts. */
  note(event) {
    const totals = this.state.totals;
    let queue = 0, inFlight = 0, live = 0, workerBytes = 0;
    for (const [key, about] of this.state.models) {
      const jobs = about.jobQueueStatus || {};
      const point = {
        at: event.at, ...about.rates, queue: jobs.pendingRequests, inFlight: jobs.inFlight,
        live: about.liveSequences, memory: about.workerBytes,
        commitsPerS: about.stateful ? (about.rates || {}).callsPerS : 0,
      };
      queue += point.queue || 0;
      inFlight += point.inFlight || 0;
      live += point.live || 0;
      workerBytes += point.memory || 0;
      this.add(key, point);
    }
    let commits = 0;
    for (const about of this.state.models.values())
      if (about.stateful && about.rates) commits += about.rates.callsPerS || 0;
    this.add("", { at: event.at, ...totals, queue, inFlight, live, commitsPerS: commits, workerBytes,
      memory: workerBytes + (totals.serverBytes || 0) });
  }

  add(key, point) {
    const points = this.history.get(key) || [];
    points.push(point);
    if (points.length > HISTORY) points.shift();
    this.history.set(key, points);
  }

  /** The points of a version ("name/version"), or of the server (""). */
  points(key) {
    return this.history.get(key) || [];
  }
}
