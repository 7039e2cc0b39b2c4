/** The first view: the server's figures, charts, the worst findings and the last trouble. */
import { makeCharts } from "./chart.js";
import { make, setText } from "./dom.js";
import { number } from "./format.js";
import { findingsList, linesList } from "./log.js";
import { modelsTable } from "./models.js";

export function overviewView({ feed }) {
  const figures = ["models", "workers ready", "live sequences", "steps per second", "errors per second", "connections"]
    .map(name => ({ name, value: make("dd", {}, "–") }));
  const charts = makeCharts();
  const models = modelsTable();
  const findings = findingsList(3);
  const trouble = linesList("Errors and warnings", 8);
  const element = make("div", {},
    make("h2", {}, "Overview"),
    make("dl", { class: "figures" }, ...figures.map(({ name, value }) =>
      make("div", { class: "card figure" }, make("dt", {}, name), value))),
    make("div", { class: "cards" }, ...charts.map(chart => chart.element)),
    make("h2", {}, "Models"), make("div", { class: "card" }, models.element),
    make("div", { class: "split" },
      make("section", {}, make("h2", {}, "Findings"), make("div", { class: "card" }, findings.element)),
      make("section", {}, make("h2", {}, "Recent errors"), make("div", { class: "card" }, trouble.element))));

  function update() {
    const { totals, models: versions, findings: found, trouble: lines } = feed.state;
    const points = feed.points("");
    const last = points[points.length - 1] || {};
    let ready = 0, all = 0;
    for (const about of versions.values()) {
      ready += about.workersReady;
      all += about.workersAll;
    }
    const values = [number(totals.models), `${ready} of ${all}`, number(last.live), number(totals.stepsPerS),
      number(totals.errorsPerS), number(totals.connections)];
    figures.forEach((figure, i) => setText(figure.value, values[i]));
    for (const chart of charts) chart.show(points);
    models.show([...versions.values()].filter(about => about.modelName));
    models.setCaption(totals.versions > versions.size
      ? `The ${versions.size} versions with trouble or the most steps, of ${totals.versions}` : "All versions");
    findings.show(found);
    trouble.show(lines);
  }
  return { element, update };
}
