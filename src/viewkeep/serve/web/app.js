// The page: brings its parts together and hands each the news that the live stream brings.

import { ask, follow } from "./api.js";
import { announce, byId } from "./dom.js";
import { showEpochs } from "./epochs.js";
import { count, duration } from "./format.js";
import { Plan } from "./plan.js";
import { Pulse } from "./pulse.js";
import { Read } from "./read.js";
import { Sql } from "./sql.js";
import { Views } from "./views.js";

const pulse = new Pulse();
const plan = new Plan();
const read = new Read({ onName: (name) => views.chosen(name) });
const views = new Views({
  onRead: (name) => read.choose(name),
  onPlan: (name) => {
    plan.filter(name);
    byId("plan").scrollIntoView();
    byId("plan-filter").focus({ preventScroll: true });
  },
});
const sql = new Sql({ onDone: () => refresh() });

let last = null; // the sample before
let url = "";
let driver; // who drove when we looked last; undefined before the first look

async function refresh() {
  const found = await ask("/dashboard/views");
  url = found.url.replace(/^lmdb:/, "");
  byId("where").textContent = url.split("/").at(-1);
  byId("where").title = found.url;
  byId("version").textContent = found.version;
  byId("first-run").textContent = `viewkeep run ${url}`;
  byId("first").hidden = found.tables.length > 0 || found.views.length > 0;
  document.title = `${url.split("/").at(-1)} · viewkeep`;
  views.set(found);
  read.set(found.views, found.tables);
  plan.views(found.views.map((view) => view.name), found.total);
  sql.suggest(found.views.length ? found.views[0].name : null);
  if (plan.version !== found.plan) await plan.load();
}

async function begin() {
  pulse.set(await ask("/dashboard/history"));
  await refresh();
  await plan.load();
  showEpochs(await ask("/dashboard/epochs"));
  await views.watch();
}

// Work that a passing trouble of the server may break; the next event does it again.
const lightly = (work) => work().catch((error) => console.debug(error.message));

function stand(state, text) {
  byId("stand").dataset.state = state;
  byId("stand-text").textContent = text;
}

function told(sample) {
  const before = last;
  last = sample;
  pulse.push(sample);
  const epoch = `Epoch ${count(sample.epoch)}`;
  if (!sample.driver) stand(sample.lag ? "behind" : "idle", `${epoch} · no pipeline`);
  else if (sample.lag && sample.lag_seconds > 5) stand("behind", `${epoch} · ${duration(sample.lag_seconds)} behind`);
  else stand("fresh", `${epoch} · ${sample.lag ? "following" : "up to date"}`);
  remind(sample);
  const changed = !before || before.epoch !== sample.epoch;
  if (!before || changed || before.plan !== sample.plan || sample.loading) lightly(refresh);
  if (changed) {
    lightly(async () => showEpochs(await ask("/dashboard/epochs")));
    if (before) read.follow();
  }
}

// What somebody should know who wonders why nothing moves.
function remind(sample) {
  const notice = byId("notice");
  const idle = !sample.driver && (sample.lag > 0 || sample.loading > 0);
  const needed = idle || sample.trouble !== null;
  notice.hidden = !needed;
  const text = sample.trouble !== null ? `Views do not follow what is written: ${sample.trouble}`
    : `No pipeline runs, so views do not follow what is written. Start one: viewkeep run ${url}`;
  if (needed && notice.textContent !== text) {
    notice.dataset.kind = "driver";
    notice.textContent = text;
  }
  if (driver !== undefined && driver !== sample.driver) {
    announce(sample.driver ? `The pipeline runs: ${sample.driver}` : "The pipeline has stopped");
  }
  driver = sample.driver;
}

follow("/dashboard/live", {
  open() {
    stand("fresh", "Connected");
    if (byId("notice").dataset.kind === "lost") {
      byId("notice").hidden = true;
      announce("The server answers again");
    }
    lightly(begin);
  },
  lost() {
    const text = "The server does not answer. Trying again …";
    stand("lost", "No connection");
    const notice = byId("notice");
    notice.dataset.kind = "lost";
    notice.hidden = false;
    if (notice.textContent !== text) notice.textContent = text;
  },
  sample: told,
  figures: (figures) => plan.update(figures),
});
