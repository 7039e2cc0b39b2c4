/** Runs on the browser's audio thread: collects samples into pieces and passes them on. */
class Pieces extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.piece = new Float32Array(processorOptions.samples);
    this.length = 0;
  }

  process([[samples]]) {
    for (const sample of samples || []) {
      this.piece[this.length++] = sample;
      if (this.length === this.piece.length) {
        this.port.postMessage(this.piece.slice());
        this.length = 0;
      }
    }
    return true;
  }
}
registerProcessor("pieces", Pieces);
