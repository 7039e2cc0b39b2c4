/** The views of the doctor and of the log, and the lists that the overview shows of both. */
import { make, setText } from "./dom.js";

/** A list of findings; `most`: how many are shown. */
export function findingsList(most) {
  const element = make("div", {});
  let shown = "";

  const finding = each => make("li", { class: each.severity },
    make("h3", {}, `${each.severity === "problem" ? "Problem: " : "Note: "}${each.what}`),
    each.why ? make("p", {}, make("strong", {}, "Why: "), each.why) : null,
    each.do ? make("p", {}, make("strong", {}, "What to do: "), each.do) : null);

  function show(findings) {
    const text = JSON.stringify(findings);
    if (text === shown) return;
    shown = text;
    const sorted = [...findings].sort((a, b) => (a.severity === "note") - (b.severity === "note"));
    element.replaceChildren(sorted.length === 0 ? make("p", {}, "The doctor finds nothing wrong.")
      : make("ul", { class: "findings" }, ...sorted.slice(0, most).map(finding)),
    ...(sorted.length > most ? [make("p", {}, make("a", { href: "#doctor" }, `and ${sorted.length - most} more`))] : []));
  }
  return { element, show };
}

/** A list of log lines, the newest last; `most`: how many are shown. */
export function linesList(label, most) {
  const list = make("ol", { class: "lines", tabindex: "0", "aria-label": label });
  const none = make("p", { class: "quiet" }, "none so far");
  let shown = "";

  function show(lines) {
    const last = lines.slice(-most);
    const text = `${last.length} ${last.map(line => line[0]).join()}`;
    if (text === shown) return;
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
    shown = text;
    list.replaceChildren(...last.map(([, level, words]) => make("li", { class: level }, words)));
    none.hidden = last.length > 0;
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }
  return { element: make("div", {}, none, list), show };
}

export function doctorView({ feed }) {
  const list = findingsList(200);
  const scope = make("p", { class: "quiet" });
  return {
    element: make("div", {}, make("h2", {}, "Doctor"), scope, make("div", { class: "card", "aria-live": "polite" }, list.element)),
    update() {
      const { totals, models, findings } = feed.state;
      setText(scope, totals.versions > models.size
        ? `The findings are about the server and the ${models.size} versions that the page watches. continuo-ctl doctor looks at all ${totals.versions}.`
        : "The same rules as continuo-ctl doctor look at the server and all its models every few seconds.");
      list.show(findings);
    },
  };
}

export function logView({ feed }) {
  const level = make("select", { name: "level" }, ...["all lines", "errors and warnings"].map(text => make("option", {}, text)));
  const words = make("input", { type: "search", name: "words", placeholder: "model=asr" });
  const pause = make("button", { type: "button", "aria-pressed": "false", onclick: () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    setText(pause, isPaused ? "Go on" : "Pause");
    update();
  } }, "Pause");
  const list = linesList("Log", 300);
  let isPaused = false;
  level.addEventListener("change", () => update());
  words.addEventListener("input", () => update());

  function update() {
    if (isPaused) return;
    const lines = level.selectedIndex === 0 ? feed.state.log : feed.state.trouble;
    list.show(words.value ? lines.filter(line => line[2].includes(words.value)) : lines);
  }
  return {
    element: make("div", {}, make("h2", {}, "Log"),
      make("div", { class: "row" }, make("label", {}, "Show", level), make("label", {}, "Only lines with", words), pause),
      make("div", { class: "card" }, list.element)),
    update,
  };
}
