// The four plots (throughput, freshness, lag, memory), and the same figures as a table.

import { byId, make, table } from "./dom.js";
import { clock, count, duration, lasting, rate, size, sized } from "./format.js";
import { Plot, ROUND, WINDOW, tile } from "./plot.js";

const TABLE_STEP = 10; // seconds between rows of the table
const KEPT = 1200;
const RECENT = 10; // seconds over which freshness is told

const dashed = (text) => [make("i", { "aria-hidden": "true" }), text];

export class Pulse {
  constructor() {
    this.samples = [];
    const plots = {
      throughput: new Plot({
        title: "Throughput", hue: "blue", least: 10, round: ROUND.count,
        first: (s) => s.kept_per_second, second: (s) => s.written_per_second,
        show: (value) => `${rate(value)}/s`,
      }),
      freshness: new Plot({
        title: "Freshness", hue: "green", least: 1, round: ROUND.seconds, first: (s) => s.lag_seconds, show: duration,
      }),
      lag: new Plot({
        title: "Lag", hue: "orange", least: 10, round: ROUND.count, first: (s) => s.lag, show: count,
      }),
      memory: new Plot({
        title: "Memory", hue: "purple", least: 2 ** 26, round: ROUND.bytes, show: size,
        first: (s) => (s.server_bytes === null ? null : s.server_bytes + (s.driver_bytes || 0)),
        second: (s) => s.server_bytes,
      }),
    };
    this.plots = plots;
    this.tiles = Object.fromEntries(Object.entries(plots).map(([name, plot]) => [name, tile(plot)]));
    byId("tiles").replaceChildren(...Object.values(this.tiles).map((made) => made.element));
    byId("figures").addEventListener("toggle", () => this.tabulate());
  }

  set(samples) {
    this.samples = samples.slice(-KEPT);
    this.render();
  }

  push(sample) {
    const last = this.samples.at(-1);
    if (last && sample.at <= last.at) return;
    this.samples.push(sample);
    if (this.samples.length > KEPT) this.samples.shift();
    this.render();
  }

  render() {
    for (const plot of Object.values(this.plots)) plot.set(this.samples);
    const now = this.samples.at(-1);
    if (!now) return;
    const { throughput, freshness, lag, memory } = this.tiles;
    throughput.say(
      [rate(now.kept_per_second), "operations/s"],
      ...dashed(`written ${rate(now.written_per_second)}/s`),
    );
    freshness.say(
      lasting(this.worst(now)),
      now.epoch ? `at worst in ${RECENT} s · last epoch took ${duration(now.epoch_seconds)}` : "no epoch yet",
    );
    lag.say(
      [count(now.lag), now.lag === 1 ? "operation behind" : "operations behind"],
      `disk: base ${size(now.base_bytes)}, state ${size(now.state_bytes)}`,
    );
    const total = now.server_bytes === null ? null : now.server_bytes + (now.driver_bytes || 0);
    memory.say(
      sized(total),
      ...dashed(`server ${size(now.server_bytes)}` +
        (now.driver_bytes === null ? "" : `, pipeline ${size(now.driver_bytes)}`)),
    );
    if (byId("figures").open) this.tabulate();
  }

  // The age of the oldest write that was missing in the views, lately.
  worst(now) {
    const recent = this.samples.filter((sample) => sample.at > now.at - RECENT);
    return Math.max(...recent.map((sample) => sample.lag_seconds || 0));
  }

  tabulate() {
    if (!byId("figures").open) return;
    const rows = [];
    let next = Infinity;
    for (const s of this.samples.toReversed()) {
      if (s.at > next || rows.length > WINDOW / TABLE_STEP) continue;
      next = s.at - TABLE_STEP;
      rows.push([
        clock(s.at), count(s.epoch), rate(s.kept_per_second), rate(s.written_per_second),
        duration(s.lag_seconds), count(s.lag), size(s.server_bytes), size(s.driver_bytes),
        size(s.base_bytes), size(s.state_bytes),
      ]);
    }
    const names = ["time", "epoch", "kept/s", "written/s", "freshness", "operations behind",
      "server memory", "pipeline memory", "base on disk", "state on disk"];
    const columns = names.map((name, at) => ({ name, number: at > 0 }));
    byId("figures-table").replaceChildren(table("Figures of the plots, newest first", columns, rows));
  }
}
