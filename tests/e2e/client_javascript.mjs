// What tests/e2e/test_client_javascript.py runs in Node: one JSON line for each result.
import { readFile } from "node:fs/promises";

import { Client, ContinuoError } from "../../clients/javascript/continuo.mjs";

const [what, url, ...rest] = process.argv.slice(2);
const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

const line = () => new Promise((resolve) => process.stdin.once("data", resolve));

/** Runs 32 sequences, verifies each running sum, and says each step so that the test can kill. */
async function kills(form) {
  const client = new Client(url, { timeout: Number(rest[1]) });
  const run = async (i) => {
    const sequence = client[form]("counter");
    let total = 0;
    for (let count = 1; count <= 60; count++) {
      const number = (i * 7919 + count * 104729) % 1000;
      total += number;
      const answer = await sequence.step(number);
      if (Number(answer.data) !== total || answer.step !== count)
        throw new Error(`sequence ${i}, step ${count}: ${JSON.stringify(answer)}, not ${total}`);
      say({ step: 1 });
    }
    if (form === "stream") sequence.close();
  };
  await Promise.all(Array.from({ length: 32 }, (_, i) => run(i)));
  say({ done: true });
}

async function errorsOf() {
  const caught = async (act) => {
    try {
      return { answer: await act() };
    } catch (error) {
      if (!(error instanceof ContinuoError)) throw error;
      const { word, status, type, message, help, undecided } = error;
      return { word, status, type, message, help, undecided };
    }
  };
  const client = new Client(url, { token: rest[0], timeout: Number(rest[1]) });
  const wrong = new Client(url, { token: "wrong", timeout: Number(rest[1]) });
  const nobody = new Client(rest[2], { timeout: 300 });
  const found = {};
  for (const form of ["sequence", "stream"]) {
    found[form] = {
      missing: await caught(() => client[form]("nobody").step(1)),
      token: await caught(() => wrong[form]("counter").step(1)),
      large: await caught(() => client[form]("counter").step("1".repeat(4000000))),
      failed: await caught(() => client[form]("counter").step("four")),
      away: await caught(() => nobody[form]("counter").step(1)),
    };
    const one = client[form]("counter", { id: `values-${form}` });
    const all = [];
    for (const value of ["4", new TextEncoder().encode("8"), 15])
      all.push(String((await one.step(value)).data));
    all.push(String((await one.step(1, { end: true })).data));
    all.push(String((await one.step(2, { start: true })).data));
    found[form].values = all;
    one.close?.();
  }
  say(found);
}

/** The timeout passes while the test holds the workers; then retry() decides the step. */
async function lost(form) {
  const one = new Client(url, { timeout: Number(rest[1]) })[form]("counter", { id: form });
  await one.step(4);
  say({ ready: true });
  await line(); // the workers are held
  let word = null;
  await one.step(5, { timeout: 300 }).catch((error) => { word = error.word; });
  say({ word });
  await line();
  const again = [await one.retry()].flat()[0];
  say({ data: String(again.data), step: again.step, next: String((await one.step(1)).data) });
  one.close?.();
}

/** A WebSocket that plays a server's messages. A number in the script closes the connection, and
 * "refused" is the answer to a handshake. */
function playing(script, sent, urls = []) {
  return class {
    constructor(address) {
      urls.push(address.split("?")[1] ?? "");
      setTimeout(() => {
        if (script[0] === "refused") return this.onclose({ code: 1006, reason: script.shift() });
        this.onopen();
        while (script.length) {
          const each = script.shift();
          if (typeof each === "number") return this.onclose({ code: each, reason: "" });
          this.onmessage({ data: JSON.stringify(each) });
        }
      });
    }
    send(text) { sent.push(JSON.parse(text).step); }
    close() {}
  };
}

/** What the client makes of messages that a server seldom sends. */
async function scripts() {
  const hello = { type: "hello", generation: 0, step: 0, next: 1, credit: 4 };
  const away = { type: "error", status: 503, error: "no_worker", message: "no worker runs" };
  const failed = { type: "error", step: 1, status: 500, error: "handler_failed", message: "no" };
  const answer = (step, data, final = true) => ({ type: "answer", step, data, final });
  const sent = [];
  const stream = (...script) =>
    new Client(url, { timeout: Number(rest[0]), WebSocket: playing(script, sent) }).stream("echo");
  const found = {};

  const late = await stream(hello, 1006, away, 1013, hello, answer(1, "4")).step(4);
  found.late = { data: late?.data, sent: [...sent] };
  const halved = stream(hello, answer(1, "half", false), failed, answer(1, "whole"));
  await halved.step(4).catch(() => {});
  found.pieces = (await halved.step(4)).pieces;
  const word = await stream(hello, failed, answer(2, "b"), answer(3, "c")).steps(["a", "b", "c"])
    .catch((error) => error.word);
  say({ ...found, word });
}

/** The answer of the first step is lost, and a proxy refuses the next handshake with 502. */
async function behindProxy() {
  const hello = (step, generation) =>
    ({ type: "hello", generation, step, next: step + 1, credit: 1 });
  const answer = { type: "answer", step: 1, data: "4", final: true, replayed: true };
  const script = [hello(0, 0), 1006, "refused", hello(1, 5), 1000, hello(1, 5), answer];
  const sent = [], urls = [];
  globalThis.fetch = async () => new Response("bad gateway", { status: 502 });
  const WebSocket = playing(script, sent, urls);
  const stream = new Client(url, { timeout: Number(rest[0]), WebSocket }).stream("counter");
  say({ data: (await stream.step(4)).data, sent, urls });
}

/** What a proxy answers to a step: 301 and 502. */
async function proxied() {
  const replies = [new Response("", { status: 301, headers: { location: "https://there/" } }),
    new Response("bad gateway", { status: 502 }), new Response("4", { status: 200 })];
  const modes = [];
  globalThis.fetch = async (_, { redirect }) => { modes.push(redirect); return replies.shift(); };
  const one = new Client(url, { timeout: Number(rest[0]) }).sequence("counter");
  const found = [];
  await one.step(4, { contentType: "text/\u20ac" }).catch(({ name }) => found.push(name));
  for (let i = 0; i < 2; i++)
    await one.step(4).catch(({ status, message, undecided }) =>
      found.push([status, message, undecided]));
  await one.step(5).catch(({ message }) => found.push(message));
  say({ found, count: [(await one.retry()).status, one.count], modes });
}

/** The addresses to which the page's stream connects. Each script is one connection. */
async function page(scripts) {
  const text = await readFile(new URL("../../frontend/page/stream.js", import.meta.url), "utf8");
  const { SequenceStream } = await import(`data:text/javascript,${encodeURIComponent(text)}`);
  const urls = [];
  globalThis.WebSocket = class {
    constructor(address) {
      urls.push(address.replace("ws://host", ""));
      const script = scripts.shift();
      setTimeout(() => {
        for (const each of script) this.onmessage({ data: JSON.stringify(each) });
        if (scripts.length) this.close();
      });
    }
    send() {}
    close() {
      this.close = () => {};
      setTimeout(() => this.onclose({ code: 1006, reason: "" }));
    }
  };
  const stream = new SequenceStream("ws://host", "");
  const answered = new Promise((resolve) => { stream.onAnswer = resolve; });
  stream.step({ data: 4 });
  return { data: (await answered).data, urls };
}

async function pages() {
  const hello = (step, generation) =>
    ({ type: "hello", generation, step, next: step + 1, credit: 1 });
  const answer = { type: "answer", step: 1, final: true, data: "4" };
  say({ none: await page([[hello(0, 0)], [hello(0, 0), answer]]),
    lost: await page([[hello(0, 0)], [hello(1, 5)], [hello(1, 5), answer]]) });
}

await {
  scripts, pages, proxy: behindProxy, proxied, kills: () => kills(rest[0]), errors: errorsOf,
  lost: () => lost(rest[0]),
}[what]();
process.exit(0);
