// The last epochs: when, how many operations, how long, how fast that was, and where the time went.

import { byId, make, table } from "./dom.js";
import { clock, count, duration, rate } from "./format.js";

const COLUMNS = ["epoch", "published", "operations", "took", "operations/s", "rows loaded", "longest task of each level"]
  .map((name, at) => ({ name, number: at !== 1 }));
const SHOWN = 60;

export function showEpochs(epochs) {
  const host = byId("epochs-list");
  if (!epochs.length) {
    host.replaceChildren(make("p", { class: "empty" }, "No epoch yet: the pipeline makes one as soon as it runs and has something to do."));
    return;
  }
  const rows = epochs.slice(0, SHOWN).map((epoch) => [
    count(epoch.epoch), clock(epoch.at), count(epoch.operations), duration(epoch.seconds),
    epoch.seconds > 0 && epoch.operations ? rate(epoch.operations / epoch.seconds) : "–",
    epoch.loaded ? count(epoch.loaded) : "–",
    epoch.levels.map(duration).join(" · ") || "–",
  ]);
  host.replaceChildren(table("Recent epochs, newest first", COLUMNS, rows));
}
