/** Builds and changes elements. Text is never read as HTML. */

/**
 * Makes an element. Members of `attributes` that begin with "on" are listeners; `class` and the
 * rest are attributes; true means an empty attribute, and false or null none.
 * @param {string} tag
 * @param {Object<string, *>} [attributes]
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** Sets an element's text if it is another one, so that nothing is laid out in vain. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Puts a dl of names and values into `list`; values are texts or nodes. */
export function setFacts(list, facts) {
  list.replaceChildren(...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

/** Shows a message for a while in the page's status region. */
export function notify(text, isBad = false) {
  const notice = make("p", { class: isBad ? "notice bad" : "notice" }, text);
  const notices = document.getElementById("notices");
  notices.append(notice);
  while (notices.children.length > 5) notices.firstChild.remove();
  setTimeout(() => notice.remove(), isBad ? 15000 : 7000);
}
