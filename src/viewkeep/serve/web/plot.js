// A plot of the last minutes: one area, perhaps a second line, a readout under the pointer. Drawn as
// SVG out of the samples that are kept; a table of the same figures is in `pulse.js`.

import { draw, make } from "./dom.js";
import { clock, duration } from "./format.js";

export const WINDOW = 300; // seconds
const HEIGHT = 83;
const TOP = 12;
const BOTTOM = 14;

const LEAST_WINDOW = 60; // while there are few samples yet

// The next round number at or above a value, by the unit that it is read in.
const power = (base, value) => base ** Math.floor(Math.log(value) / Math.log(base) + 1e-9);
export const ROUND = {
  count: (value) => [1, 1.5, 2, 3, 5, 7.5, 10].map((step) => step * power(10, value)).find((top) => top >= value),
  bytes: (value) => 2 ** Math.ceil(Math.log2(value)),
  seconds: (value) =>
    value > 60
      ? [2, 5, 10, 30, 60, 120, 360, 720, 1440].map((m) => m * 60).find((top) => top >= value) || value
      : value > 10 ? [20, 30, 60].find((top) => top >= value) : ROUND.count(value),
};

export class Plot {
  // `first` and `second` take a sample and give a number or null; `show` makes a text of it.
  constructor({ title, hue, first, second = null, show, least, round }) {
    Object.assign(this, { title, first, second, show, least, round });
    this.samples = [];
    this.pointer = null;
    this.svg = draw("svg", { class: `plot hue-${hue}`, role: "img", "aria-label": title });
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.render()).observe(this.svg);
  }

  set(samples) {
    this.samples = samples;
    this.render();
  }

  point(x) {
    this.pointer = x;
    this.render();
  }

  render() {
    const width = this.svg.clientWidth;
    if (!width) return;
    const end = this.samples.length ? this.samples.at(-1).at : Date.now() / 1000;
    const span = end - (this.samples.length ? this.samples[0].at : end);
    const window = Math.min(WINDOW, Math.max(LEAST_WINDOW, span));
    const seen = this.samples.filter((sample) => sample.at >= end - window);
    const values = [this.first, this.second].flatMap((of) => (of ? seen.map(of) : []));
    const top = this.round(Math.max(this.least, ...values.filter((value) => value !== null)));
    const x = (at) => width * (1 - (end - at) / window);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const base = y(0);
    const parts = [
      draw("line", { class: "grid", x1: 0, x2: width, y1: base, y2: base }),
      draw("line", { class: "grid", x1: 0, x2: width, y1: y(top), y2: y(top) }),
      draw("text", { x: 0, y: y(top) - 3 }, this.show(top)),
      draw("text", { x: 0, y: HEIGHT - 2 }, `${duration(window)} ago`),
      draw("text", { x: width, y: HEIGHT - 2, "text-anchor": "end" }, "now"),
    ];
    for (const [of, kind] of [[this.first, ""], [this.second, " other"]]) {
      if (!of) continue;
      const points = seen.filter((sample) => of(sample) !== null)
        .map((sample) => `${x(sample.at).toFixed(1)},${y(of(sample)).toFixed(1)}`);
      if (points.length < 2) continue;
      if (!kind) {
        const [from, to] = [points[0], points.at(-1)].map((point) => point.split(",")[0]);
        parts.push(draw("path", { class: "area", d: `M${from},${base}L${points.join("L")}L${to},${base}Z` }));
      }
      parts.push(draw("path", { class: `line${kind}`, d: `M${points.join("L")}` }));
    }
    parts.push(...this.readout(seen, width, x, y));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    const last = seen.length ? this.first(seen.at(-1)) : null;
    const told = last === null ? "no figures yet" : `now ${this.show(last)}, the plot ends at ${this.show(top)}`;
    this.svg.setAttribute("aria-label", `${this.title}, the last ${duration(window)}: ${told}`);
  }

  readout(seen, width, x, y) {
    if (this.pointer === null || !seen.length) return [];
    const near = seen.reduce((best, sample) =>
      Math.abs(x(sample.at) - this.pointer) < Math.abs(x(best.at) - this.pointer) ? sample : best);
    const value = this.first(near);
    if (value === null) return [];
    const at = x(near.at);
    const anchor = at > width - 90 ? "end" : at < 90 ? "start" : "middle";
    return [
      draw("line", { class: "mark", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
      draw("circle", { class: "dot", cx: at, cy: y(value), r: 3 }),
      draw("text", { x: at, y: TOP - 3, "text-anchor": anchor }, `${this.show(value)} · ${clock(near.at)}`),
    ];
  }
}

// A tile: what is plotted, how it stands now, and the plot.
export function tile(plot) {
  const now = make("p", { class: "now" }, "–");
  const also = make("p", { class: "also" });
  const element = make("article", { class: "tile" }, make("h3", {}, plot.title), now, also, plot.svg);
  return {
    element,
    say([figure, unit], ...words) {
      now.replaceChildren(figure, make("small", {}, unit));
      also.replaceChildren(...words);
    },
  };
}
