/** Sound as pieces of 16-bit samples: from the microphone, or from a file at the speed of time. */

const PIECE_S = 0.1;

/** @param {Float32Array} samples  @returns {Int16Array} */
export function toInt16(samples) {
  return Int16Array.from(samples, sample => Math.max(-32768, Math.min(32767, Math.round(sample * 32767))));
}

export function toBase64(samples) {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** Calls onPiece(samples, rate) ten times a second until stop() of what it returns is called. */
export async function fromMicrophone(onPiece) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext();
  await context.audioWorklet.addModule(new URL("microphone.js", import.meta.url));
  const node = new AudioWorkletNode(context, "pieces", { processorOptions: { samples: Math.round(context.sampleRate * PIECE_S) } });
  node.port.onmessage = event => onPiece(event.data, context.sampleRate);
  context.createMediaStreamSource(stream).connect(node);
  return { stop: () => {
    for (const track of stream.getTracks()) track.stop();
    context.close();
  } };
}

/** Reads a file of sound, and gives its pieces as if it were spoken now. */
export async function fromFile(file, onPiece, onEnd) {
  const context = new OfflineAudioContext(1, 1, 48000);
  const sound = await context.decodeAudioData(await file.arrayBuffer());
  const samples = sound.getChannelData(0), size = Math.round(sound.sampleRate * PIECE_S);
  const begun = performance.now();
  let at = 0, timer = 0;

  function go() {
    const due = ((performance.now() - begun) / 1000 + PIECE_S) * sound.sampleRate;
    for (; at < samples.length && at < due; at += size) onPiece(samples.slice(at, at + size), sound.sampleRate);
    if (at < samples.length) timer = setTimeout(go, PIECE_S * 500);
    else onEnd();
  }
  go();
  return { stop: () => clearTimeout(timer) };
}

/** Draws the last seconds of sound on a canvas. */
export class Waveform {
  constructor(canvas) {
    this.canvas = canvas;
    this.peaks = [];
  }

  add(samples) {
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    this.peaks.push(peak);
    if (this.peaks.length > 200) this.peaks.shift();
    const { canvas, peaks } = this, pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = getComputedStyle(canvas).color;
    peaks.forEach((value, i) => {
      const height = Math.max(2, value * canvas.height);
      pen.fillRect(i * 4, (canvas.height - height) / 2, 3, height);
    });
  }
}
