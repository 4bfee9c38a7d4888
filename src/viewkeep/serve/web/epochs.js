// The last epochs: when, how many operations, how long, how fast that was, and where the time went.

import { byId, draw, make, table } from "./dom.js";
import { clock, count, duration, percent, plural, rate } from "./format.js";

const COLUMNS = ["epoch", "published", "operations", "took", "operations/s", "rows loaded", "longest task of each level"]
  .map((name, at) => ({ name, number: at !== 1 && at !== 6 }));
const SHOWN = 60;
const WIDTH = 240; // of the bar of the slowest epoch

export function showEpochs(epochs) {
  const host = byId("epochs-list");
  if (!epochs.length) {
    host.replaceChildren(make("p", { class: "empty" }, "No epoch yet: the pipeline makes one as soon as it runs and has something to do."));
    return;
  }
  const shown = epochs.slice(0, SHOWN);
  const longest = Math.max(...shown.map((epoch) => sum(epoch.levels)));
  const rows = shown.map((epoch) => [
    count(epoch.epoch), clock(epoch.at), count(epoch.operations), duration(epoch.seconds),
    epoch.seconds > 0 && epoch.operations ? rate(epoch.operations / epoch.seconds) : "–",
    epoch.loaded ? count(epoch.loaded) : "–",
    epoch.levels.length ? bar(epoch.levels, longest) : "–",
  ]);
  host.replaceChildren(table("Recent epochs, newest first", COLUMNS, rows, { stacks: true }));
}

const SLOW = ["epoch", "published", "operations", "took", "processor", "most of it went to"]
  .map((name, at) => ({ name, number: at !== 1 && at !== 5 }));

// The slowest epochs lately, and what they took so long for.
export function showSlowest(epochs) {
  byId("slow-box").hidden = !epochs.length;
  const rows = epochs.map((epoch) => [
    count(epoch.epoch), clock(epoch.at), count(epoch.operations), duration(epoch.seconds), duration(epoch.processor),
    make("span", { class: "spent" }, ...epoch.operators.slice(0, 3).map((one) => make("span", {},
      make("b", {}, percent(epoch.processor ? Math.min(1, one.seconds / epoch.processor) : 0)), ` ${one.what}, ${plural(one.rows, "row")}`,
      one.views.length ? make("span", { class: "note" }, ` for ${one.views.join(", ")}${one.more ? ` and ${count(one.more)} more` : ""}`) : null))),
  ]);
  byId("slow-list").replaceChildren(table("Slowest epochs, the slowest first", SLOW, rows, { stacks: true }));
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

// A bar with a part for each level; the figures under the pointer, and for those who cannot see it.
function bar(levels, longest) {
  const told = levels.map((seconds, level) => `level ${level}: ${duration(seconds)}`).join(", ");
  let x = 0;
  const parts = levels.map((seconds, level) => {
    const width = (WIDTH * seconds) / longest;
    const part = draw("rect", { class: `level-${level % 2}`, x, width: Math.max(0.5, width - 1), height: 9 });
    x += width;
    return part;
  });
  return draw("svg", { class: "levels", viewBox: `0 0 ${WIDTH} 9`, preserveAspectRatio: "none", role: "img", "aria-label": told },
    draw("title", {}, told), ...parts);
}
