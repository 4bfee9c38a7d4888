// The read box: a key gives a row, the start of a key gives pages of rows.

import { query } from "./api.js";
import { announce, byId, make, table } from "./dom.js";
import { count, plural } from "./format.js";
import { bad } from "./told.js";

const PAGE = 25;

export class Read {
  constructor({ onName }) {
    this.onName = onName;
    this.relations = new Map();
    this.shape = null; // of the key fields that are drawn
    this.next = null;
    this.asked = null;
    byId("read-name").addEventListener("change", () => this.choose(byId("read-name").value));
    byId("read-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.read();
    });
    byId("read-next").addEventListener("click", () => this.read(this.next));
  }

  set(views, tables) {
    this.relations = new Map([...views, ...tables].map((one) => [one.name, one]));
    const select = byId("read-name");
    const before = select.value;
    const group = (label, all) => make("optgroup", { label }, ...all.map((one) => make("option", { value: one.name }, one.name)));
    const text = [...this.relations.keys()].join("\n");
    if (text !== this.listed) {
      this.listed = text;
      select.replaceChildren(...[["Views", views], ["Tables", tables]].filter(([, all]) => all.length).map(([name, all]) => group(name, all)));
      if (this.relations.has(before)) select.value = before;
    }
    const dropped = this.asked && !this.relations.has(this.asked.name) ? this.asked.name : null;
    if (dropped) this.asked = null;
    byId("read-form").hidden = !this.relations.size;
    if (!this.relations.size) byId("read-out").replaceChildren(make("p", { class: "empty" }, "Nothing to read yet."));
    else {
      if (this.fields() && this.asked) this.read(); // it was replaced by one of another shape
      const first = views.find((view) => view.state === "ready") || tables[0];
      if (!this.asked && first) this.choose(first.name); // something to see at once
      if (dropped) announce(`${dropped} was dropped`);
    }
  }

  // Opens a table or view and shows its first rows.
  choose(name) {
    byId("read-name").value = name;
    this.fields();
    this.onName(name);
    return this.read();
  }

  // Draws the fields of the key, unless they are drawn already; whether it did.
  fields() {
    const relation = this.relations.get(byId("read-name").value);
    if (!relation) return false;
    const shape = JSON.stringify([relation.name, relation.key, relation.columns]);
    if (shape === this.shape) return false;
    this.shape = shape;
    byId("read-keys").replaceChildren(...relation.key.map((column, at) => make("div", { class: "field" },
      make("label", { for: `read-key-${at}` }, make("b", {}, column.name), ` ${column.type}`),
      make("input", { id: `read-key-${at}`, spellcheck: "false", autocapitalize: "off" }))));
    byId("read-hint").textContent = relation.key.length
      ? "A whole key gives its row, its first columns all rows that start so." : "One row, without a key.";
    return true;
  }

  keys() {
    const texts = [...byId("read-keys").querySelectorAll("input")].map((input) => input.value);
    while (texts.length && texts.at(-1) === "") texts.pop();
    return texts;
  }

  // At a new epoch: the page that is shown, read again.
  follow() {
    if (byId("read-follow").checked && this.asked) this.read(this.asked.after, { quiet: true });
  }

  async read(after = null, { quiet = false } = {}) {
    const name = byId("read-name").value;
    const out = byId("read-out");
    if (!name) return;
    const asked = { name, key: this.keys(), after };
    this.asked = asked;
    try {
      const found = await query("/dashboard/read", { ...asked, limit: PAGE });
      if (this.asked !== asked) return; // another read was begun meanwhile
      this.show(found, quiet);
    } catch (error) {
      this.next = null;
      byId("read-note").textContent = "";
      out.replaceChildren(bad(error));
    }
    byId("read-next").hidden = this.next === null;
  }

  show(found, quiet) {
    const out = byId("read-out");
    this.next = found.next;
    const where = found.epoch === null ? "as it is now" : `at epoch ${count(found.epoch)}`;
    const told = !found.rows.length ? `${found.name} has no such row ${where}`
      : `${found.name}: ${plural(found.rows.length, "row")}${found.next ? " and more" : ""} ${where}`;
    if (!found.rows.length) out.replaceChildren(make("p", { class: "empty" }, told));
    else out.replaceChildren(table(told, found.columns, found.rows, { stacks: found.columns.length > 3 }));
    byId("read-note").textContent = told;
    if (!quiet && document.activeElement !== document.body) announce(told);
  }
}
