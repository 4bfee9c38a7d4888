// How a view stands, in the same words wherever it is shown: its state, what replaces it, its rows,
// and its part of the processor time.

import { draw, make } from "./dom.js";
import { count, duration, percent, plural } from "./format.js";

const BAR = 48; // pixels that stand for all of the processor time

function tag(name, { state, share, loaded, problem }, said = state) {
  if (state !== "loading") return make("span", { class: "tag", "data-state": state, title: problem }, said);
  const text = `about ${percent(share)}`;
  return make("span", { class: "tag", "data-state": "loading", title: `${plural(loaded, "row")} in` },
    make("progress", { max: 1, value: share, "aria-label": `Loading ${name}` }, text), text);
}

export const problems = (view) => [view.problem, view.replacement?.problem].filter(Boolean);

// The state of a view, with how far its replacement is.
export function standing(view) {
  const next = view.replacement;
  return make("span", { class: "standing" },
    tag(view.name, view),
    next ? make("span", { class: "next" },
      next.state === "failed" ? "replacement " : "being replaced ", tag(`${view.name} (new)`, next)) : null);
}

// Its rows; of a large view what is held, which has deleted rows among it.
export function rowsOf(view) {
  if (view.state === "failed") return "–";
  return view.rows === null ? `${view.held ? "≤ " : ""}${count(view.held)}` : count(view.rows);
}

export function costOf(view) {
  if (view.cost === null || view.state === "failed") return "–";
  return make("span", { class: "cost", title: `${duration(view.seconds)} so far, with its part of what views share` },
    draw("svg", { viewBox: `0 0 ${BAR} 8`, width: BAR, height: 8, "aria-hidden": "true" },
      draw("rect", { class: "of", width: BAR, height: 8, rx: 2 }),
      draw("rect", { class: "part", width: Math.max(1, BAR * view.cost), height: 8, rx: 2 })),
    percent(view.cost));
}
