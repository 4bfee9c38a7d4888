// The section of the plan: the drawing, the filter, the table that says the same, and the panel.

import { Refused, query } from "./api.js";
import { byId, draw, make, table } from "./dom.js";
import { count, percent, plural, rate, size } from "./format.js";
import { Graph } from "./graph.js";
import { KINDS } from "./kinds.js";
import { Panel } from "./panel.js";

export class Plan {
  constructor() {
    this.version = null;
    this.names = new Set();
    this.graph = new Graph(byId("plan-graph"), { onOpen: (node) => this.panel.open(node) });
    this.panel = new Panel({
      onClose: (id) => {
        this.graph.choose(null);
        if (!byId("plan-graph").hidden) this.graph.focus(id);
      },
      onView: (name) => this.filter(name),
    });
    this.legend();
    byId("zoom-in").addEventListener("click", () => this.graph.zoom(1.25));
    byId("zoom-out").addEventListener("click", () => this.graph.zoom(0.8));
    byId("zoom-fit").addEventListener("click", () => this.graph.fit());
    byId("plan-table-switch").addEventListener("click", () => this.switch());
    byId("plan-filter").addEventListener("change", () => this.load());
    byId("plan-filter").addEventListener("input", (event) => {
      const text = event.target.value.trim();
      if (!text || this.names.has(text)) this.load();
    });
    byId("plan-graph").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.panel.close();
    });
  }

  legend() {
    const line = (moved) => draw("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" },
      draw("path", { class: moved ? "edge moved" : "edge", d: "M0,4H28" }));
    byId("legend").replaceChildren(
      ...["table", "arrangement", "view", "aggregate", "join", "topk", "window"].map((kind) =>
        make("li", { class: `kind-${kind}` }, make("b", { "aria-hidden": "true" }, KINDS[kind].sign), KINDS[kind].name)),
      make("li", {}, line(false), "within a zone"),
      make("li", {}, line(true), "re-distributed"),
      make("li", {}, "×2: shared by two views"),
      make("li", {}, make("span", { class: "swatch some" }), "10 % of the processor time"),
      make("li", {}, make("span", { class: "swatch high" }), "30 % or more"),
    );
  }

  // Names to offer; of very many views any other can be typed.
  views(names, total) {
    const same = names.length === this.names.size && names.every((name) => this.names.has(name));
    this.all = names.length === total;
    if (same) return; // a list that is open would close
    this.names = new Set(names);
    byId("plan-views").replaceChildren(...names.map((name) => make("option", { value: name })));
  }

  filter(name) {
    byId("plan-filter").value = name || "";
    return this.load();
  }

  async load() {
    const wanted = byId("plan-filter").value.trim();
    const turn = (this.turn = (this.turn || 0) + 1);
    let found;
    try {
      if (wanted && this.all && !this.names.has(wanted)) throw new Refused(`there is no view ${wanted}`);
      found = await query("/dashboard/graph", { view: wanted || null });
    } catch (error) {
      if (turn === this.turn) byId("plan-note").textContent = error.message;
      return;
    }
    if (turn !== this.turn) return; // another part was asked for meanwhile
    this.version = found.plan;
    this.found = found;
    this.graph.show(found);
    const empty = byId("plan-graph").querySelector(".empty");
    if (empty) empty.remove();
    if (!found.nodes.length) {
      byId("plan-graph").append(make("p", { class: "empty" }, "No tables yet: the plan is drawn as soon as there are some."));
    }
    const shared = found.nodes.filter((node) => node.kind !== "table" && node.shared > 1).length;
    const parts = [plural(found.nodes.length, "node"), plural(found.levels, "level")];
    if (shared) parts.push(`${count(shared)} shared`);
    if (found.left_out) parts.push(`${plural(found.left_out, "view")} more: choose one to see it`);
    byId("plan-note").textContent = parts.join(" · ");
    this.tabulate();
    if (this.panel.node) {
      const node = this.graph.byId.get(this.panel.node.id);
      if (node) this.graph.choose(node.id);
      else this.panel.close();
    }
  }

  update(figures) {
    this.graph.update(figures);
    this.tabulate();
  }

  switch() {
    const shown = byId("plan-table").hidden;
    byId("plan-table").hidden = !shown;
    byId("plan-graph").hidden = shown;
    byId("plan-table-switch").setAttribute("aria-pressed", String(shown));
    for (const id of ["zoom-in", "zoom-out", "zoom-fit"]) byId(id).disabled = shown;
    this.tabulate();
    if (!shown) this.graph.fit();
  }

  tabulate() {
    const host = byId("plan-table");
    // Drawn anew only when nothing in it has the focus: that would be lost.
    if (host.hidden || !this.graph.placed || host.contains(document.activeElement)) return;
    const columns = ["node", "kind", "level", "zone", "rows", "size", "rows/s", "cost", "views"]
      .map((name, at) => ({ name, number: [2, 4, 5, 6, 7, 8].includes(at) }));
    const rows = this.graph.placed.nodes.map((node) => [
      make("button", { type: "button", class: "link", onclick: () => { this.graph.choose(node.id); this.panel.open(node); } }, node.title),
      KINDS[node.kind].name, String(node.level), node.columns.join(", ") || "–",
      count(node.rows), node.bytes === null ? "–" : size(node.bytes), rate(node.rate),
      node.cost === null ? "–" : percent(node.cost), count(node.shared),
    ]);
    host.replaceChildren(table("Nodes of the plan", columns, rows, { heads: true }));
  }
}
