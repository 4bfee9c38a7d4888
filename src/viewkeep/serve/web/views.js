// The views: how they stand, how far those are that load, and whether they are right.

import { announce, byId, make, table, viewLink } from "./dom.js";
import { ask, send } from "./api.js";
import { count, duration, percent, plural, size } from "./format.js";
import { costOf, problems, rowsOf, standing } from "./standing.js";

const POLL = 700; // ms between looks at a verification that runs

export class Views {
  constructor({ onRead, onPlan }) {
    Object.assign(this, { onRead, onPlan });
    this.views = [];
    this.verdicts = new Map();
    this.running = null;
    this.known = new Map(); // how each view stood when it was last looked at
    byId("verify-all").addEventListener("click", () => this.verify([]));
    byId("verify-stop").addEventListener("click", () => this.stop());
  }

  // `total` and `ready` count all views; of very many only some are listed.
  set({ views, total, ready, failed }) {
    for (const view of views) {
      if (view.state === "ready" && this.known.get(view.name) === "loading") announce(`View ${view.name} is loaded`);
      this.known.set(view.name, view.state);
    }
    this.views = views;
    const listed = total > views.length ? `; ${count(views.length)} are listed` : "";
    const lost = failed ? `, ${count(failed)} failed` : "";
    const stand = ready === total ? `${plural(ready, "view")}, all ready` : `${count(ready)} of ${plural(total, "view")} ready${lost}`;
    byId("views-note").textContent = total ? stand + listed : "";
    this.render();
  }

  chosen(name) {
    this.name = name;
    for (const row of byId("views-list").querySelectorAll("tbody tr")) {
      row.setAttribute("aria-current", String(row.dataset.name === name));
    }
  }

  render() {
    const host = byId("views-list");
    const focused = document.activeElement?.dataset?.focus;
    byId("verify-all").disabled = this.running !== null || !this.views.length;
    byId("verify-stop").hidden = this.running === null;
    byId("rows-note").hidden = this.views.every((view) => view.rows !== null || !view.held);
    if (!this.views.length) {
      host.replaceChildren(make("p", { class: "empty" }, "No views yet. CREATE VIEW in the SQL box makes one."));
      return;
    }
    const columns = ["view", "state", "rows", "size", "processor", "verdict", "actions"]
      .map((name, at) => ({ name, number: at === 2 || at === 3 }));
    const made = table("Views with their state, size, cost and verdict", columns, this.views.map((view) => this.row(view)), { heads: true, stacks: true });
    made.querySelectorAll("tbody tr").forEach((row, at) => {
      row.dataset.name = this.views[at].name;
      row.setAttribute("aria-current", String(this.views[at].name === this.name));
    });
    host.replaceChildren(made);
    if (focused) host.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  row(view) {
    const button = (what, text, onclick, disabled = false) => make("button",
      { type: "button", class: "link", onclick, disabled, "data-focus": `${what} ${view.name}`, "aria-label": `${what} ${view.name}` }, text);
    return [
      viewLink(view.name),
      make("span", { class: "stand-cell" }, standing(view), ...problems(view).map((text) => make("span", { class: "problem" }, text))),
      rowsOf(view),
      size(view.bytes),
      costOf(view),
      this.verdict(view),
      make("span", { class: "actions" },
        button("Read", "Read", () => this.onRead(view.name), view.state !== "ready"),
        button("Plan of", "Plan", () => this.onPlan(view.name)),
        button("Verify", "Verify", () => this.verify([view.name]), this.running !== null || view.state !== "ready")),
    ];
  }

  verdict(view) {
    if (this.running && (!this.running.length || this.running.includes(view.name))) {
      return make("span", { class: "note" }, "checking …");
    }
    const found = this.verdicts.get(view.name);
    if (!found) return "–";
    const text = found.ok ? `✓ right at epoch ${count(found.epoch)}`
      : found.problem ? `✗ ${found.problem}` : `✗ ${count(found.missing)} missing, ${count(found.extra)} extra`;
    return make("span", { class: "verdict", "data-ok": String(found.ok), title: `${plural(found.rows, "row")} compared` }, text);
  }

  // -- verification ------------------------------------------------------------------------------

  async verify(names) {
    try {
      await send("/dashboard/verify", { views: names });
      announce(names.length ? `Verifying ${names.join(", ")}` : "Verifying all views");
      await this.watch();
    } catch (error) {
      byId("verify-note").textContent = error.message;
    }
  }

  async stop() {
    await ask("/dashboard/verify", { method: "DELETE" });
  }

  // Follows a verification to its end; also one that another page has started.
  async watch() {
    for (;;) {
      const run = await ask("/dashboard/verify");
      const note = byId("verify-note");
      if (run.state === "running") {
        this.running = run.views;
        note.textContent = `Spark SQL recomputes ${run.views.join(", ") || "every view"} from the base tables … ${duration(run.seconds)}`;
        this.render();
        await new Promise((done) => setTimeout(done, POLL));
        continue;
      }
      const watched = this.running !== null;
      this.running = null;
      for (const verdict of run.verdicts || []) this.verdicts.set(verdict.view, verdict);
      if (run.state !== "idle") note.textContent = this.conclusion(run);
      if (watched) announce(note.textContent);
      this.render();
      return;
    }
  }

  conclusion(run) {
    if (run.state === "stopped") return "The verification was stopped.";
    if (run.state === "failed") return `The verification failed: ${run.problem}`;
    const wrong = run.verdicts.filter((verdict) => !verdict.ok);
    if (wrong.length) return `${plural(wrong.length, "view")} differ: ${wrong.map((v) => v.view).join(", ")}. To rebuild: viewkeep verify --repair`;
    return `${plural(run.verdicts.length, "view")} verified in ${duration(run.seconds)}: every row is what Spark SQL recomputes from the base tables.`;
  }
}
