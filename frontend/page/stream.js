/**
 * The steps of one sequence over a WebSocket (docs/streams.md). If the connection breaks, it is
 * made anew, and the steps whose answers are missing are sent again from where the server says.
 */

const RETRY_MS = [200, 500, 1000, 2000];
const BACKLOG = 200; // steps that wait in the page; more are refused

export class SequenceStream {
  /**
   * @param {string} url   ws://HOST/v1/streams/MODEL/ID
   * @param {string} key   the inference key, or ""
   */
  constructor(url, key) {
    this.url = url;
    this.key = key;
    this.onAnswer = () => {}; // (message of the server)
    this.onState = () => {}; // (word, is it live)
    this.waiting = []; // steps without a final answer, the oldest first
    this.sent = 0; // how many of them have been sent on this connection
    this.credit = 1;
    this.next = 1;
    this.last = null; // the last step whose answer was seen
    this.generation = 0;
    this.tries = 0;
    this.isClosed = false;
    this.connect();
  }

  /** Without a generation the stream is not resumed, since a model without sequences refuses that. */
  connect() {
    this.resumes = this.generation > 0;
    const query = this.resumes ? `?last=${this.last}&generation=${this.generation}` : "";
    const words = this.key ? ["continuo.v1.json", `continuo.key.${this.key}`] : ["continuo.v1.json"];
    this.onState("connecting", false);
    this.socket = new WebSocket(this.url + query, words);
    this.socket.onmessage = event => this.take(JSON.parse(event.data));
    this.socket.onclose = event => this.closed(event);
  }

  closed(event) {
    this.sent = 0;
    this.isReady = false;
    if (this.isClosed || event.code === 4001 || event.code === 4004) {
      this.onState(event.reason || "closed", false);
      return;
    }
    this.onState("connecting again …", false);
    setTimeout(() => !this.isClosed && this.connect(), RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)]);
  }

  take(message) {
    if (message.type === "hello") {
      this.tries = 0;
      this.credit = message.credit;
      this.generation = message.generation || this.generation;
      if (this.last === null) this.last = message.step;
      /* The first step was done, and its answer was lost: the next connection brings it. */
      if (!this.resumes && message.step > this.last) return this.socket.close(1000);
      /* Steps that were committed before the connection broke are answered from the record. */
      this.replayed = Math.max(0, message.next - 1 - this.last);
      this.sent = Math.min(this.replayed, this.waiting.length);
      this.isReady = true;
      this.onState("live", true);
    } else if (message.type === "answer" || message.type === "error") {
      this.generation = message.generation || this.generation;
      if (message.type === "answer" && message.final) this.last = message.step;
      if (message.final !== false && message.step !== undefined) {
        this.waiting.shift();
        this.sent = Math.max(0, this.sent - 1);
      }
      this.onAnswer(message);
    }
    this.pump();
  }

  pump() {
    while (this.isReady && this.sent < this.waiting.length && this.sent < this.credit)
      this.socket.send(JSON.stringify(this.waiting[this.sent++]));
  }

  /** Gives a step: {text}, {data} or {base64}, and content_type. Returns false if too many wait. */
  step(body) {
    if (this.waiting.length >= BACKLOG) return false;
    this.waiting.push({ type: "step", ...body });
    this.pump();
    return true;
  }

  close() {
    this.isClosed = true;
    this.socket.close(1000);
  }
}
