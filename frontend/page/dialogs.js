/** Questions to the user: a confirmation with fields, and the key. */
import { make } from "./dom.js";

/**
 * Asks before something is changed, and does it. The dialog stays open with the server's words if
 * the change is refused.
 * @param {Object} question
 * @param {string} question.title
 * @param {string} question.text      what will happen
 * @param {string} question.button    what the button says: the action
 * @param {boolean} [question.danger]
 * @param {{name: string, label: string, value?: *, type?: string, options?: string[], required?: boolean}[]} [question.fields]
 * @param {(values: Object<string, string>) => Promise<*>} question.action
 * @returns {Promise<*>}  what the action returned; null if the user cancelled
 */
export function ask({ title, text, button, danger = false, fields = [], action }) {
  return new Promise(resolve => {
    const inputs = fields.map(field => {
      const input = field.options
        ? make("select", { name: field.name }, ...field.options.map(option => make("option", {}, option)))
        : make("input", { name: field.name, type: field.type || "text", required: field.required !== false,
          min: field.type === "number" ? 0 : null, autocomplete: "off" });
      if (field.type === "checkbox") input.required = false;
      else if (field.value !== undefined) input.value = field.value;
      return { field, input };
    });
    const error = make("p", { class: "error", role: "alert" });
    const confirm = make("button", { class: danger ? "danger" : "main" }, button);
    const form = make("form", { method: "dialog" },
      make("p", {}, text),
      ...inputs.map(({ field, input }) => make("label", { class: field.type === "checkbox" ? "inline" : null },
        ...(field.type === "checkbox" ? [input, field.label] : [field.label, input]))),
      error,
      make("div", { class: "buttons" },
        make("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), confirm));
    const dialog = make("dialog", { "aria-labelledby": "dialog-title" }, make("h2", { id: "dialog-title" }, title), form);
    let result = null;
    form.addEventListener("submit", async event => {
      event.preventDefault();
      const values = Object.fromEntries(inputs.map(({ field, input }) =>
        [field.name, field.type === "checkbox" ? input.checked : input.value]));
      confirm.disabled = true;
      error.textContent = "";
      try {
        result = await action(values) ?? true;
        dialog.close();
      } catch (caught) {
        error.textContent = caught.message;
        confirm.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0]?.input || (danger ? form.querySelector("button[type=button]") : confirm)).focus();
  });
}
