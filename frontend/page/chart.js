/**
 * Line charts in SVG: one or two lines over the last minutes. A chart has a heading, its latest
 * value as text, and a description for screen readers; the pointer shows older values.
 */
import { make, setText } from "./dom.js";
import { bytes, duration, number } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300, HEIGHT = 100;

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** The next round number above `value`, for the top of the axis. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 2.5, 5, 10])
    if (value <= factor * unit) return factor * unit;
  return 10 * unit;
}

function path(points, name, top) {
  let text = "", isDown = false;
  const step = WIDTH / Math.max(points.length - 1, 1);
  points.forEach((point, i) => {
    const value = point[name];
    if (value === null || value === undefined) {
      isDown = false;
      return;
    }
    text += `${isDown ? "L" : "M"}${(i * step).toFixed(1)} ${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`;
    isDown = true;
  });
  return text;
}

export class Chart {
  /**
   * @param {string} title
   * @param {{name: string, label: string}[]} lines  one or two members of the points
   * @param {(value: number) => string} [format]
   */
  constructor(title, lines, format = number) {
    this.title = title;
    this.lines = lines;
    this.format = format;
    this.points = [];
    this.hover = null;
    this.output = make("output", {});
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    for (const y of [0, 50, 100]) this.svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    this.area = shape("path", { class: "area" });
    this.svg.append(this.area);
    this.paths = lines.map((_, i) => shape("path", { class: i ? "line second" : "line" }));
    this.cursor = shape("line", { class: "grid", y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.svg.append(...this.paths, this.cursor);
    this.from = make("span");
    this.top = make("span");
    const keys = lines.length > 1
      ? lines.map((line, i) => make("span", { class: i ? "key second" : "key" }, line.label)) : [];
    this.element = make("section", { class: "card chart" },
      make("h3", {}, title, this.output), this.svg,
      make("div", { class: "axis" }, this.from, make("span", {}, ...keys), this.top));
    this.svg.addEventListener("pointermove", event => this.point(event));
    this.svg.addEventListener("pointerleave", () => {
      this.hover = null;
      this.cursor.setAttribute("visibility", "hidden");
      this.say();
    });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const share = box.width ? (event.clientX - box.left) / box.width : 0;
    this.hover = Math.max(0, Math.min(this.points.length - 1, Math.round(share * (this.points.length - 1))));
    const x = this.hover * (WIDTH / Math.max(this.points.length - 1, 1));
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.cursor.setAttribute("visibility", "visible");
    this.say();
  }

  show(points) {
    this.points = points;
    const values = this.lines.flatMap(line => points.map(point => point[line.name] || 0));
    const top = roundUp(Math.max(0, ...values));
    this.lines.forEach((line, i) => this.paths[i].setAttribute("d", path(points, line.name, top)));
    const first = path(points, this.lines[0].name, top);
    const isWhole = first.lastIndexOf("M") === 0 && first.includes("L"); // a line without a gap
    const last = first.slice(first.lastIndexOf("L") + 1).split(" ")[0];
    this.area.setAttribute("d", first && isWhole ? `${first}L${last} ${HEIGHT}L${first.slice(1).split(" ")[0]} ${HEIGHT}Z` : "");
    const seconds = points.length > 1 ? (points[points.length - 1].at - points[0].at) / 1000 : 0;
    setText(this.from, points.length > 1 ? `${Math.round(seconds)} s ago` : "waiting for data");
    setText(this.top, `top ${this.format(top)}`);
    const highest = Math.max(0, ...values);
    this.svg.setAttribute("aria-label",
      `${this.title}: ${this.text(points[points.length - 1])} now, highest ${this.format(highest)}`);
    this.say();
  }

  text(point) {
    return this.lines.map(line => this.format(point ? point[line.name] : null)).join(" / ");
  }

  say() {
    const point = this.points[this.hover ?? this.points.length - 1];
    setText(this.output, this.text(point) + (this.hover === null || !point ? "" : ` at ${new Date(point.at).toLocaleTimeString()}`));
  }
}

/** The charts of the server or of one version. */
export function makeCharts() {
  return [
    new Chart("Steps per second", [{ name: "stepsPerS", label: "steps" }]),
    new Chart("Time of a step", [{ name: "p50MSec", label: "p50" }, { name: "p99MSec", label: "p99" }], duration),
    new Chart("Queue", [{ name: "queue", label: "waiting" }, { name: "inFlight", label: "with workers" }]),
    new Chart("Rows in a batch", [{ name: "batchRows", label: "rows" }]),
    new Chart("Commits per second", [{ name: "commitsPerS", label: "commits" }]),
    new Chart("Resident memory", [{ name: "memory", label: "bytes" }], bytes),
  ];
}
