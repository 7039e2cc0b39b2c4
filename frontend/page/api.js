/**
 * Calls of the management API. The key is kept in memory, or in the tab's sessionStorage if the
 * user wants that, and travels as a header only.
 */

const KEY = "continuo-management-key";
let key = sessionStorage.getItem(KEY) || "";

export const hasKey = () => key !== "";

/** Uses a key from now on; `keep`: also after a reload of this tab. */
export function setKey(text, keep) {
  key = text.trim().replace(/^Bearer\s+/i, "");
  if (key && keep) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** An answer of the server that reports an error, in its words. */
export class ApiError extends Error {
  constructor(status, word, message) {
    super(message);
    this.status = status;
    this.word = word; // of errors.def, such as "token_refused"
  }
}

export const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});

/** The path of a model or of one of its versions. */
export const modelPath = (name, version) =>
  `models/${encodeURIComponent(name)}${version ? `/${encodeURIComponent(version)}` : ""}`;

export const sequencePath = (name, version, id) => `${modelPath(name, version)}/sequences/${encodeURIComponent(id)}`;

/** Adds parameters to a path; those that are null or empty are left out. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== null && value !== undefined && value !== "") query.append(name, value);
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** Throws the ApiError of an answer that is not a success. */
export async function check(answer) {
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = text.slice(0, 500);
  try {
    message = JSON.parse(text).message || message;
  } catch {
    /* not JSON: a proxy answered */
  }
  throw new ApiError(answer.status, answer.headers.get("Continuo-Error") || "", message || `status ${answer.status}`);
}

/** Sends a request and returns the answer's JSON. */
export async function call(method, path, options = {}) {
  const answer = await fetch(path, { method, headers: headers(), cache: "no-store", ...options });
  return (await check(answer)).json();
}

/** Saves the answer of a GET as a file. */
export async function download(path, name) {
  const answer = await check(await fetch(path, { headers: headers(), cache: "no-store" }));
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
