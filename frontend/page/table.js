/**
 * A table whose rows are kept by key: when its data change, cells get new text, and the focus
 * stays where it was. It never has more rows than it is given room for.
 */
import { make, setText } from "./dom.js";

/**
 * @typedef {Object} Column
 * @property {string} name     also the key by which rows are sorted
 * @property {string} label
 * @property {(row: Object) => (string|Node)} show
 * @property {(row: Object) => *} [by]  the value to sort by; without it the column cannot be sorted
 * @property {boolean} [isNumber]
 */
export class Table {
  /**
   * @param {string} caption
   * @param {Column[]} columns
   * @param {{key: (row: Object) => string, sort?: string, descending?: boolean, most?: number, empty?: string}} options
   */
  constructor(caption, columns, options) {
    this.columns = columns;
    this.options = { most: 100, empty: "nothing to show", ...options };
    this.sort = options.sort || null;
    this.descending = options.descending || false;
    this.rows = [];
    this.elements = new Map();
    this.heads = columns.map(column => make("th", { scope: "col", class: column.isNumber ? "number" : null },
      column.by ? make("button", { type: "button", class: "sort", onclick: () => this.sortBy(column.name) }, column.label)
        : column.label));
    this.caption = make("caption", {}, caption);
    this.body = make("tbody");
    this.element = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      make("table", {}, this.caption, make("thead", {}, make("tr", {}, ...this.heads)), this.body));
    this.showOrder();
  }

  sortBy(name) {
    this.descending = this.sort === name ? !this.descending : false;
    this.sort = name;
    this.showOrder();
    this.show(this.rows);
  }

  showOrder() {
    this.columns.forEach((column, i) => {
      if (!column.by) return;
      this.heads[i].setAttribute("aria-sort",
        column.name !== this.sort ? "none" : this.descending ? "descending" : "ascending");
    });
  }

  sorted() {
    const column = this.columns.find(each => each.name === this.sort);
    if (!column) return this.rows;
    const sign = this.descending ? -1 : 1;
    return [...this.rows].sort((a, b) => {
      const x = column.by(a) ?? -1, y = column.by(b) ?? -1;
      return sign * (typeof x === "string" || typeof y === "string"
        ? String(x).localeCompare(String(y), undefined, { numeric: true }) : x - y);
    });
  }

  setCaption(text) {
    setText(this.caption, text);
  }

  show(rows) {
    this.rows = rows;
    const shown = this.sorted().slice(0, this.options.most);
    const wanted = shown.map(row => this.element_of(row));
    const keys = new Set(shown.map(row => this.options.key(row)));
    for (const key of this.elements.keys()) if (!keys.has(key)) this.elements.delete(key);
    if (wanted.length === 0)
      wanted.push(make("tr", {}, make("td", { class: "empty", colspan: this.columns.length }, this.options.empty)));
    /* Rows that stand in the right place stay there: moving one would take away its focus. */
    wanted.forEach((element, i) => {
      if (this.body.children[i] !== element) this.body.insertBefore(element, this.body.children[i] || null);
    });
    while (this.body.children.length > wanted.length) this.body.lastChild.remove();
  }

  element_of(row) {
    const key = this.options.key(row);
    let kept = this.elements.get(key);
    if (!kept) {
      kept = { element: make("tr"), cells: [] };
      kept.cells = this.columns.map((column, i) => make(i ? "td" : "th",
        { class: column.isNumber ? "number" : null, scope: i ? null : "row" }));
      kept.element.append(...kept.cells);
      kept.texts = [];
      this.elements.set(key, kept);
    }
    this.columns.forEach((column, i) => {
      const value = column.show(row);
      const text = typeof value === "string" ? value : value.dataset.text ?? value.outerHTML;
      if (kept.texts[i] === text) return;
      kept.texts[i] = text;
      kept.cells[i].replaceChildren(value);
    });
    return kept.element;
  }
}
