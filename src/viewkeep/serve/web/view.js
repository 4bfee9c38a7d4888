// The page of one view: how it stands, its SQL and columns, its plan, its rows and its changes.

import { ask, query, send } from "./api.js";
import { announce, byId, make, table } from "./dom.js";
import { FeedBox } from "./feed.js";
import { count, duration, percent, plural, rate, size } from "./format.js";
import { Live } from "./live.js";
import { Plan } from "./plan.js";
import { Read } from "./read.js";
import { run } from "./sql.js";
import { colored } from "./sqltext.js";
import { problems, rowsOf, standing } from "./standing.js";

const name = decodeURIComponent(location.pathname.split("/").at(-1));
const plan = new Plan({ view: name });
const read = new Read({ onName: () => {} });
const feed = new FeedBox(name);
const live = new Live({ refresh, epoch: () => read.follow() });

const unread = {
  failed: "The view has failed, so it has no rows to read.",
  loading: "Its rows can be read as soon as all are loaded.",
  waiting: "It waits for the pipeline, which loads its rows.",
};
let found = null; // the view as it was last looked at
let verdict = null;

async function refresh() {
  try {
    found = await query("/dashboard/view", { name });
  } catch (error) {
    gone(error.message);
    return;
  }
  live.named(found.url, found.version);
  document.title = `${name} · viewkeep`;
  byId("about-state").replaceChildren(standing(found));
  byId("about-problem").replaceChildren(...problems(found).map((text) => make("span", { class: "problem" }, text)));
  byId("verify").disabled = found.state !== "ready";
  byId("text").replaceChildren(...colored(found.sql ?? "its definition cannot be read"));
  byId("new-text").hidden = found.new_sql === null;
  if (found.new_sql !== null) {
    byId("new-text").replaceChildren(make("h3", {}, "What will replace it"), make("pre", { tabindex: "0" }, ...colored(found.new_sql)));
  }
  columns();
  cards();
  if (found.state === "ready") {
    read.set([found], []);
    feed.begin(found);
  } else {
    byId("read-out").replaceChildren(make("p", { class: "empty" }, unread[found.state]));
  }
  byId("read-form").hidden = found.state !== "ready";
  byId("feed-switch").disabled = found.state !== "ready";
  if (plan.version !== found.plan) await plan.load();
}

function gone(message) {
  byId("about-state").replaceChildren(make("span", { class: "problem" }, message));
  for (const button of document.querySelectorAll("main button")) button.disabled = true;
}

function columns() {
  const key = found.key.map((column) => column.name);
  const rows = found.columns.map(({ name: column, type }) =>
    [column, type, key.includes(column) ? `${key.indexOf(column) + 1}` : ""]);
  byId("columns").replaceChildren(table("Columns of the view", ["column", "type", "place in the key"].map((n) => ({ name: n })), rows, { heads: true }));
  byId("columns-note").textContent = key.length ? `key (${key.join(", ")})` : "one row, without a key";
}

function cards() {
  const now = live.last;
  const ready = found.state === "ready";
  const rows = !ready ? "" : found.rows === null ? "held, deleted ones until they are swept among them"
    : found.held > found.rows ? `${count(found.held)} held, old ones until they are swept` : "at the published epoch";
  const speed = changing();
  const pairs = [
    ["Rows", rowsOf(found), rows],
    ["Size", size(found.bytes), "of its own rows on disk; the plan has what it is made of"],
    ["Behind", !ready || now === null ? "–" : duration(now.lag_seconds ?? 0), !ready || now === null ? "" : now.lag ? `${plural(now.lag, "operation")} not in it yet, at epoch ${count(now.epoch)}` : `every write is in it, at epoch ${count(now.epoch)}`],
    ["Processor", found.cost === null ? "–" : percent(found.cost), `${duration(found.seconds)} so far, with its part of what views share`],
    ["Changes", found.changed === undefined ? "–" : count(found.changed), `rows its operators have changed${speed === null ? "" : `; now ${rate(speed)}/s in its own`}`],
    ["Shares work with", found.shared.length ? plural(found.shared.length, "view") : "no view", found.shared.slice(0, 4).join(", ") + (found.shared.length > 4 ? " …" : "")],
  ];
  byId("cards").replaceChildren(...pairs.map(([title, figure, more]) =>
    make("div", {}, make("dt", {}, title), make("dd", {}, figure), make("dd", { class: "note" }, more))));
}

// Rows a second of the view's own table, as the plan has it.
const changing = () => plan.graph.placed?.nodes.find((node) => node.results.includes(name))?.rate ?? null;

async function verify() {
  const note = byId("verify-note");
  byId("verify").disabled = true;
  try {
    await send("/dashboard/verify", { views: [name] });
    for (;;) {
      verdict = await ask("/dashboard/verify");
      if (verdict.state !== "running") break;
      note.textContent = `Spark SQL recomputes ${name} from the base tables … ${duration(verdict.seconds)}`;
      await new Promise((done) => setTimeout(done, 700));
    }
    const own = (verdict.verdicts || []).find((one) => one.view === name);
    note.textContent = !own ? `The verification ended: ${verdict.problem ?? verdict.state}`
      : own.ok ? `✓ right at epoch ${count(own.epoch)}: ${plural(own.rows, "row")}, each as Spark SQL computes it`
        : `✗ ${own.problem ?? `${count(own.missing)} rows missing, ${count(own.extra)} too many`}. To rebuild: viewkeep verify --repair`;
    announce(note.textContent);
  } catch (error) {
    note.textContent = error.message;
  }
  byId("verify").disabled = false;
}

byId("about-title").textContent = name;
byId("verify").addEventListener("click", verify);
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(found?.sql ?? "");
  announce("The SQL is copied");
  byId("copy").textContent = "Copied";
});
byId("drop").addEventListener("click", async () => {
  try {
    if ((await run(`DROP VIEW \`${name.replaceAll("`", "``")}\``)) !== null) location.assign("/");
  } catch (error) {
    byId("verify-note").textContent = [error.message, error.hint].filter(Boolean).join(". ");
  }
});
live.start({ begin: refresh, sample: () => found && cards(), figures: (figures) => { plan.update(figures); if (found) cards(); } });
