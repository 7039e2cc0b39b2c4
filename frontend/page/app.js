/** The page: its views, the link to the server, and the key. */
import { hasKey, setKey } from "./api.js";
import { ask } from "./dialogs.js";
import { make, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { doctorView, logView } from "./log.js";
import { modelsView } from "./models.js";
import { overviewView } from "./overview.js";
import { sequencesView } from "./sequences.js";

const VIEWS = { overview: overviewView, models: modelsView, sequences: sequencesView, doctor: doctorView, log: logView };
const THEMES = ["", "light", "dark"];
const THEME_NAMES = { "": "as the system", light: "light", dark: "dark" };

const feed = new Feed();
const main = document.getElementById("main");
let view = null;
let isAsking = false;

/** The address's part after #, decoded: the view's name and its arguments. */
function place() {
  const [name, ...rest] = location.hash.slice(1).split("/").map(decodeURIComponent);
  return VIEWS[name] ? [name, ...rest] : ["overview"];
}

function show() {
  const [name, ...rest] = place();
  if (view && view.name === name && view.go) {
    if (view.go(rest)) return;
  }
  view?.leave?.();
  view = VIEWS[name]({ feed, isReadOnly: () => Boolean(feed.state.server.readOnly) }, rest);
  view.name = name;
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} – Continuo`;
  main.replaceChildren(view.element);
  view.update?.({});
}

/** Changes the head of the page, and the view that is open. */
function update(event) {
  const { server, totals, findings } = feed.state;
  const problems = findings.filter(finding => finding.severity === "problem").length;
  const health = document.getElementById("health");
  const count = document.getElementById("problem-count");
  setText(document.getElementById("version"), server.version || "");
  setText(health, totals.healthy === undefined ? "connecting" : totals.healthy ? "healthy" : "unhealthy");
  health.className = totals.healthy ? "badge good" : "badge bad";
  document.getElementById("read-only").hidden = !server.readOnly;
  count.hidden = problems === 0;
  setText(count, String(problems));
  count.setAttribute("aria-label", `${problems} problems`);
  if (document.visibilityState === "visible") view?.update?.(event);
}

async function askKey(message) {
  if (isAsking) return;
  isAsking = true;
  await ask({
    title: "Key of this server",
    text: `${message} The management key is in the server's key file (--token-file).`,
    button: "Sign in",
    fields: [{ name: "key", label: "Management key", type: "password" },
      { name: "keep", label: "Keep it until this tab is closed", type: "checkbox" }],
    action: async ({ key, keep }) => {
      const answer = await fetch("models?limit=1", { headers: { Authorization: `Bearer ${key.trim()}` } });
      if (!answer.ok) throw new Error("The server refused this key: it is wrong, or has expired.");
      setKey(key, keep);
    },
  });
  isAsking = false;
  document.getElementById("sign-out").hidden = !hasKey();
  feed.watch();
}

function showLink(isConnected, error) {
  const link = document.getElementById("link");
  document.body.dataset.link = isConnected ? "live" : "lost";
  if (isConnected) {
    setText(link, "live");
    return;
  }
  setText(link, "connecting again …");
  link.title = error ? error.message : "";
  if (error && (error.word === "token_refused" || error.word === "key_required"))
    askKey(hasKey() ? "The server no longer accepts your key." : "This server requires a key.");
  else if (error && error.status)
    setText(link, error.message);
}

function setTheme(theme) {
  const button = document.getElementById("theme");
  document.documentElement.dataset.theme = theme;
  button.setAttribute("aria-label", `Colours: ${THEME_NAMES[theme]}`);
  button.title = `Colours: ${THEME_NAMES[theme]}`;
  localStorage.setItem("continuo-theme", theme);
}

document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
document.getElementById("sign-out").addEventListener("click", () => {
  setKey("", false);
  location.reload();
});
document.getElementById("sign-out").hidden = !hasKey();
setTheme(THEMES.includes(localStorage.getItem("continuo-theme")) ? localStorage.getItem("continuo-theme") : "");

main.append(make("p", { class: "quiet" }, "Connecting to the server …"));
feed.onChange = update;
feed.onLink = showLink;
window.addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => update({}));
show();
feed.watch();
globalThis.continuoFeed = feed; // for the page's tests and for curious people
