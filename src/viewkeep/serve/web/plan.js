// The section of the plan: the drawing, the table that says the same, the legend, and the panel. On the
// page of one view it shows that view's part; elsewhere a filter chooses.

import { Refused, query } from "./api.js";
import { byId, draw, make, table } from "./dom.js";
import { count, percent, plural, rate, size } from "./format.js";
import { Graph } from "./graph.js";
import { KINDS, deed, kindOf } from "./kinds.js";
import { Panel } from "./panel.js";

const NARROW = matchMedia("(max-width: 44rem)");

export class Plan {
  constructor({ view = null } = {}) {
    this.view = view;
    this.version = null;
    this.names = new Set();
    this.graph = new Graph(byId("plan-graph"), { onOpen: (node) => this.panel.open(node) });
    this.panel = new Panel({
      onClose: (id) => {
        this.graph.choose(null);
        if (!byId("plan-graph").hidden) this.graph.focus(id);
      },
    });
    byId("zoom-in").addEventListener("click", () => this.graph.zoom(1.25));
    byId("zoom-out").addEventListener("click", () => this.graph.zoom(0.8));
    byId("zoom-fit").addEventListener("click", () => this.graph.fit({ readable: false }));
    byId("plan-table-switch").addEventListener("click", () => this.tell(byId("plan-table").hidden));
    byId("plan-graph").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.panel.close();
    });
    byId("legend-box").open = !NARROW.matches;
    this.tell(NARROW.matches);
    if (view !== null) return;
    byId("plan-filter").addEventListener("change", () => this.load());
    byId("plan-filter").addEventListener("input", (event) => {
      const text = event.target.value.trim();
      if (!text || this.names.has(text)) this.load();
    });
  }

  // What the signs, lines and colours of this plan mean, and of no others.
  legend(found) {
    const shown = (is) => found.nodes.some(is);
    const line = (moved) => draw("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" },
      draw("path", { class: moved ? "edge moved" : "edge", d: "M0,4H28" }));
    const item = (sign, text, kind) => make("li", { class: kind }, sign, make("span", {}, ...text));
    const swatch = (kind) => make("i", { class: `swatch ${kind}`, "aria-hidden": "true" });
    const kinds = Object.keys(KINDS).filter((kind) => shown((node) => node.kind === kind));
    const items = [
      ...kinds.map((kind) => item(make("b", { "aria-hidden": "true" }, KINDS[kind].sign),
        [make("strong", {}, KINDS[kind].name), `: ${KINDS[kind].does}`], `kind-${kind}`)),
      item(line(false), [make("strong", {}, "Solid line"), ": rows stay on their shard"]),
      item(line(true), [make("strong", {}, "Dashed line"), ": rows are sent to another shard"]),
      item(swatch("held"), [make("strong", {}, "Bar"), ": size on disk, compared with the largest"]),
    ];
    if (shown((node) => node.results.length)) items.push(item(swatch("result"), [make("strong", {}, "Thick frame"), ": its rows are a view's rows"]));
    if (shown((node) => node.shared > 1 && node.kind !== "table")) items.push(item(make("b", { class: "times" }, "×2"), ["two views use it, and it is kept once"]));
    if (shown((node) => node.cost >= 0.1)) {
      items.push(item(swatch("some"), ["10 % of the processor time or more"]));
      items.push(item(swatch("high"), ["30 % or more"]));
    }
    byId("legend").replaceChildren(...items);
  }

  // Names to offer; of very many views any other can be typed.
  views(names, total) {
    const same = names.length === this.names.size && names.every((name) => this.names.has(name));
    const chosen = byId("plan-filter").value.trim();
    const dropped = this.names.has(chosen) && total === names.length && !names.includes(chosen);
    this.all = names.length === total;
    if (same) return; // a list that is open would close
    this.names = new Set(names);
    byId("plan-views").replaceChildren(...names.map((name) => make("option", { value: name })));
    if (dropped) this.filter(null);
  }

  filter(name) {
    byId("plan-filter").value = name || "";
    return this.load();
  }

  async load() {
    const wanted = this.view ?? byId("plan-filter").value.trim();
    const turn = (this.turn = (this.turn || 0) + 1);
    let found;
    try {
      if (this.view === null && wanted && this.all && !this.names.has(wanted)) throw new Refused(`there is no view ${wanted}`);
      found = await query("/dashboard/graph", { view: wanted || null });
    } catch (error) {
      if (turn === this.turn) byId("plan-note").textContent = error.message;
      return;
    }
    if (turn !== this.turn) return; // another part was asked for meanwhile
    this.version = found.plan;
    this.found = found;
    this.graph.show(found);
    this.legend(found);
    const empty = byId("plan-graph").querySelector(".empty");
    if (empty) empty.remove();
    if (!found.nodes.length) {
      byId("plan-graph").append(make("p", { class: "empty" }, 
        this.view === null ? "No tables yet: the plan is drawn as soon as there are some." : "No plan: this view is not kept."));
    }
    const shared = found.nodes.filter((node) => node.kind !== "table" && node.shared > 1).length;
    const parts = [plural(found.nodes.length, "node"), plural(new Set(found.nodes.map((node) => node.level)).size, "level")];
    if (shared) parts.push(`${count(shared)} used by several views`);
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

  // Shows the table instead of the drawing, or the drawing again.
  tell(tabled) {
    byId("plan-table").hidden = !tabled;
    byId("plan-graph").hidden = tabled;
    byId("plan-table-switch").setAttribute("aria-pressed", String(tabled));
    byId("zoom").hidden = tabled;
    this.tabulate();
    if (!tabled) this.graph.fit();
  }

  tabulate() {
    const host = byId("plan-table");
    // Drawn anew only when nothing in it has the focus: that would be lost.
    if (host.hidden || !this.graph.placed || host.contains(document.activeElement)) return;
    const columns = ["node", "kind", "what", "level", "rows", "size", "rows/s", "cost", "views"]
      .map((name, at) => ({ name, number: at > 2 }));
    const open = (node) => {
      this.graph.choose(node.id);
      this.panel.open(node);
      byId("panel").scrollIntoView({ block: "nearest" });
    };
    const rows = this.graph.placed.nodes.map((node) => [
      make("button", { type: "button", class: "link", onclick: () => open(node) },
        node.results.length || node.kind === "table" ? node.title : kindOf(node).name),
      make("span", { class: `kind-${node.kind} signed` }, make("b", { "aria-hidden": "true" }, kindOf(node).sign), kindOf(node).name),
      deed(node), String(node.level), count(node.rows), node.bytes === null ? "–" : size(node.bytes), rate(node.rate),
      node.cost === null ? "–" : percent(node.cost), count(node.shared),
    ]);
    host.replaceChildren(table("Nodes of the plan", columns, rows, { heads: true, stacks: true }));
  }
}
