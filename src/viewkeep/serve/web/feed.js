// The changes of a view as they come: its feed, as every client gets it, newest first.

import { byId, make } from "./dom.js";
import { count, plural } from "./format.js";

const SHOWN = 100; // changes
const AT_ONCE = 5_000; // rows of a view whose feed begins by itself: a feed gives them all first
const KINDS = { insert: ["+", "new"], delete: ["−", "gone"], update: ["~", "changed"] };

const told = (value) => (value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

export class FeedBox {
  constructor(name) {
    this.path = `/v1/${encodeURIComponent(name)}/changes`;
    this.source = null;
    this.begun = false; // once: whoever stops it wants it to stay so
    this.rows = 0;
    byId("feed-command").textContent = `curl -N ${location.origin}${this.path}`;
    byId("feed-switch").addEventListener("click", () => (this.source ? this.stop() : this.follow()));
    this.say("");
  }

  begin(view) {
    this.columns = view.columns.map((column) => column.name);
    if (this.begun) return;
    this.begun = true;
    if (view.held <= AT_ONCE) this.follow();
    else this.say(`it begins with all of about ${count(view.held)} rows`);
  }

  say(text) {
    byId("feed-note").textContent = text;
    byId("feed-switch").textContent = this.source ? "Stop" : "Follow";
  }

  stop(why = "stopped") {
    this.source.close();
    this.source = null;
    this.say(why);
  }

  follow() {
    this.rows = 0;
    byId("feed-out").replaceChildren(make("p", { class: "empty" }, "No change yet."));
    this.source = new EventSource(this.path);
    const take = ({ data }) => {
      const { epoch, rows } = JSON.parse(data);
      this.rows += rows.length;
      this.say(`began with ${plural(this.rows, "row")} at epoch ${count(epoch)}`);
    };
    this.source.addEventListener("rows", take);
    this.source.addEventListener("replaced", (event) => { // another view has taken the name
      this.rows = 0;
      byId("feed-out").replaceChildren(make("p", { class: "empty" }, "The view was replaced. No change since."));
      take(event);
    });
    this.source.addEventListener("changes", ({ data }) => {
      const { epoch, changes } = JSON.parse(data);
      this.show(epoch, changes);
      this.say(`live, at epoch ${count(epoch)}`);
    });
    this.source.addEventListener("error", () => {
      if (this.source?.readyState === EventSource.CLOSED) this.stop("the feed has ended");
      else this.say("not connected; trying again");
    });
    this.say("connecting");
  }

  show(epoch, changes) {
    const body = byId("feed-out").querySelector("tbody") ?? this.table();
    body.prepend(...changes.slice(-SHOWN).toReversed().map(({ old, new: now }) => this.row(epoch, old, now)));
    while (body.rows.length > SHOWN) body.lastChild.remove();
  }

  table() {
    const heads = ["epoch", "change", ...this.columns].map((name) => make("th", { scope: "col" }, name));
    const made = make("table", { class: "stacks" }, make("caption", { class: "unseen" }, "Changes, newest first"),
      make("thead", {}, make("tr", {}, ...heads)), make("tbody"));
    byId("feed-out").replaceChildren(made);
    return made.tBodies[0];
  }

  // A changed row shows what each changed value was.
  row(epoch, old, now) {
    const kind = !old ? "insert" : !now ? "delete" : "update";
    const [sign, word] = KINDS[kind];
    const cells = this.columns.map((name) => {
      const [before, after] = [old, now].map((row) => (row ? told(row[name]) : null));
      const parts = before === null || before === after ? [after ?? before]
        : after === null ? [before] : [make("del", {}, before), " ", make("ins", {}, after)];
      return make("td", { class: "cell", "data-label": name }, make("span", {}, ...parts));
    });
    return make("tr", { "data-change": kind }, make("th", { scope: "row" }, count(epoch)),
      make("td", { "data-label": "change" }, make("span", { class: "sign" }, `${sign} ${word}`)), ...cells);
  }
}
