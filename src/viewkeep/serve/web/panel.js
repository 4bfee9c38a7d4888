// The panel beside the plan: what a node is, whose it is, the SQL behind it, and some of its rows.

import { query } from "./api.js";
import { byId, make, table, viewLink } from "./dom.js";
import { count, percent, plural, rate, size } from "./format.js";
import { kindOf } from "./kinds.js";
import { colored } from "./sqltext.js";

const SHOWN_SQL = 3;

export class Panel {
  constructor({ onClose }) {
    this.element = byId("panel");
    this.onClose = onClose;
    this.node = null;
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  async open(node, { focus = true } = {}) {
    this.node = node;
    const title = make("h2", { id: "panel-title", tabindex: "-1" }, node.title);
    const sql = make("div");
    const rows = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sample rows" });
    this.element.replaceChildren(
      make("header", {},
        make("div", {}, title, node.what === node.title ? null : make("p", { class: "what" }, node.what)),
        make("button", { type: "button", "aria-label": "Close the panel", onclick: () => this.close() }, "Close")),
      facts(node),
      ...this.users(node),
      ...states(node),
      sql,
      make("h3", {}, "Sample rows"),
      rows,
    );
    this.element.hidden = false;
    byId("plan-body").classList.add("open");
    if (focus) title.focus({ preventScroll: true });
    await Promise.all([this.loadRows(node, rows), this.loadSql(node, sql)]);
  }

  close() {
    if (!this.node) return;
    const { id } = this.node;
    this.node = null;
    this.element.hidden = true;
    byId("plan-body").classList.remove("open");
    this.onClose(id);
  }

  users(node) {
    if (!node.users.length) return [];
    const more = node.shared - node.users.length;
    return [
      make("h3", {}, node.shared > 1 ? `${count(node.shared)} views stand on it` : "View that stands on it"),
      make("div", { class: "names" },
        ...node.users.map(viewLink),
        more > 0 ? `and ${count(more)} more` : null),
    ];
  }

  async loadRows(node, host) {
    host.replaceChildren(make("p", { class: "empty" }, "…"));
    try {
      const found = await query("/dashboard/sample", { node: node.id });
      if (found.note) host.replaceChildren(make("p", { class: "empty" }, found.note));
      else if (!found.rows.length) host.replaceChildren(make("p", { class: "empty" }, "no rows"));
      else host.replaceChildren(table(`Sample rows of ${node.title}`, found.columns, found.rows));
    } catch (error) {
      host.replaceChildren(make("p", { class: "message bad" }, error.message));
    }
  }

  async loadSql(node, host) {
    const names = (node.results.length ? node.results : node.users).slice(0, SHOWN_SQL);
    if (!names.length) return;
    const found = await query("/dashboard/sql", { view: names });
    host.className = "";
    for (const [name, text] of Object.entries(found)) {
      host.append(make("h3", {}, `SQL of ${name}`), make("pre", { tabindex: "0" }, ...colored(text)));
    }
  }
}

function facts(node) {
  const pairs = [["kind", kindOf(node).name + (kindOf(node).does && `: ${kindOf(node).does}`)], ["level", String(node.level)]];
  if (node.kind !== "table" && node.kind !== "values") {
    pairs.push(["zone", node.columns.length ? `by ${node.columns.join(", ")}` : "all rows on one shard"]);
  }
  if (node.bytes !== null) {
    pairs.push(["holds", `${plural(node.rows, "row")}, ${size(node.bytes)}, deleted ones until they are swept among them`]);
    if (node.cost !== null) pairs.push(["cost", `${percent(node.cost)} of the processor time`]);
    pairs.push(["changes", node.rate === null ? "not known yet" : `${rate(node.rate)} rows/s`]);
  }
  return make("dl", {}, ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function states(node) {
  if (node.tables.length < 2) return [];
  const columns = [{ name: "state" }, { name: "key" }, { name: "rows", number: true }, { name: "size", number: true }];
  const rows = node.tables.map((t) => [
    `${t.number} ${t.purpose}`, t.key.join(", ") || "–", count(t.rows), size(t.bytes),
  ]);
  return [make("h3", {}, "State tables"), make("div", { class: "scroll", tabindex: "0", role: "region",
    "aria-label": "State tables" }, table("State tables of this node", columns, rows))];
}
