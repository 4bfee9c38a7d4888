// The page: brings its parts together and hands each the news that the live stream brings.

import { ask } from "./api.js";
import { byId } from "./dom.js";
import { showEpochs, showSlowest } from "./epochs.js";
import { Live, lightly } from "./live.js";
import { Plan } from "./plan.js";
import { Pulse } from "./pulse.js";
import { Read } from "./read.js";
import { Sql } from "./sql.js";
import { Views } from "./views.js";

const pulse = new Pulse();
const plan = new Plan();
const read = new Read({ onName: (name) => views.chosen(name) });
const views = new Views({
  onRead: (name) => {
    read.choose(name);
    byId("read").scrollIntoView({ block: "nearest" });
  },
  onPlan: (name) => {
    plan.filter(name);
    byId("plan").scrollIntoView();
    byId("plan-filter").focus({ preventScroll: true });
  },
});
const sql = new Sql({ onDone: () => refresh() });
const live = new Live({
  refresh,
  epoch: () => {
    lightly(epochs);
    read.follow();
  },
});

async function refresh() {
  const found = await ask("/dashboard/views");
  const short = live.named(found.url, found.version);
  byId("first-run").textContent = `viewkeep run ${live.url}`;
  byId("first").hidden = found.tables.length > 0 || found.views.length > 0;
  document.title = `${short} · viewkeep`;
  views.set(found);
  read.set(found.views, found.tables);
  plan.views(found.views.map((view) => view.name), found.total);
  sql.suggest(found.views.length ? found.views[0].name : null);
  if (plan.version !== found.plan) await plan.load();
}

const epochs = async () => {
  showEpochs(await ask("/dashboard/epochs"));
  showSlowest(await ask("/dashboard/slowest"));
};

async function begin() {
  pulse.set(await ask("/dashboard/history"));
  await refresh();
  await plan.load();
  await epochs();
  await views.watch();
}

live.start({
  begin,
  sample: (sample) => pulse.push(sample),
  figures: (figures) => plan.update(figures),
});
