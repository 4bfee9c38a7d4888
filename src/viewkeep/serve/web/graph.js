// The plan as a drawing: one tab stop, arrows go from node to node, Enter or a click opens one.
// Dragging moves it, Ctrl and the wheel (or + and −) zoom; the wheel alone scrolls the page.

import { draw } from "./dom.js";
import { count, percent, plural, rate, size } from "./format.js";
import { called, calledFar, deed, kindOf } from "./kinds.js";
import { isReader, place } from "./placing.js";

const MARGIN = 24;
const NEAREST = 2.5; // pixels per unit
const READABLE = 0.3; // a plan that would be smaller begins at its left, and `Fit` shows all of it
const LARGEST = 1.1;
const DISTANT = 0.8; // below it nodes say less, in larger letters
const EMPTY_HEIGHT = 140;
const HEIGHTS = [180, 640]; // of the drawing, as its content needs; the most on a screen of usual width
const TALLEST = 0.42; // of its width, on a wider one
const clip = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

export class Graph {
  constructor(host, { onOpen }) {
    this.host = host;
    this.onOpen = onOpen;
    this.svg = draw("svg", { role: "group", "aria-label": "Plan of all views. Arrow keys move between nodes." });
    this.world = draw("g");
    this.svg.append(this.world);
    host.append(this.svg);
    this.placed = null;
    this.chosen = null;
    this.view = { x: 0, y: 0, scale: 1 };
    this.moved = false; // whether someone has panned or zoomed since the last fit
    this.listen();
    new ResizeObserver(() => {
      if (!this.moved) this.fit();
      const chosen = this.byId?.get(this.chosen);
      if (chosen) this.reveal(chosen);
    }).observe(host);
  }

  show(graph) {
    this.placed = place(graph);
    this.edges = graph.edges;
    this.byId = new Map(this.placed.nodes.map((node) => [node.id, node]));
    this.largest = Math.max(1, ...this.placed.nodes.map((node) => node.bytes || 0));
    const parts = [
      ...this.placed.levels.flatMap((level) => this.drawLevel(level)),
      ...graph.edges.map((edge) => this.drawEdge(edge)).filter((edge) => edge),
    ];
    this.groups = new Map(this.placed.nodes.map((node) => [node.id, this.drawNode(node)]));
    this.world.replaceChildren(...parts, ...this.groups.values());
    const first = this.placed.nodes[0];
    if (first) this.groups.get(first.id).setAttribute("tabindex", "0");
    if (this.chosen && !this.byId.has(this.chosen)) this.chosen = null;
    this.light();
    this.fit();
  }

  // New figures for the nodes that are drawn.
  update(figures) {
    if (!this.placed) return;
    for (const [id, [rows, bytes, rowsPerSecond, cost]] of Object.entries(figures)) {
      const node = this.byId.get(id);
      if (!node) continue;
      Object.assign(node, { rows, bytes, rate: rowsPerSecond, cost });
    }
    this.largest = Math.max(1, ...this.placed.nodes.map((node) => node.bytes || 0));
    for (const node of this.placed.nodes) this.drawFigures(node, this.groups.get(node.id));
  }

  // -- drawing -----------------------------------------------------------------------------------

  drawLevel(level) {
    const parts = [
      draw("text", { class: "level-name", x: level.x, y: 12 },
        level.level ? `Level ${level.level}` : "Base tables"),
    ];
    for (const zone of level.zones) {
      if (!zone.boxed) continue;
      parts.push(draw("g", { class: "zone" },
        draw("rect", { x: zone.x, y: zone.y, width: zone.width, height: zone.height, rx: 10 }),
        draw("text", { x: zone.x + 12, y: zone.y + 16 },
          clip(zone.label, Math.floor(zone.width / 6)),
          draw("title", {}, `Zone: rows lie ${zone.label}`))));
    }
    return parts;
  }

  drawEdge(edge) {
    const [from, to] = [this.byId.get(edge.from), this.byId.get(edge.to)];
    if (!from || !to) return null;
    const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
    const [x2, y2] = [to.x, to.y + to.height / 2];
    const bend = Math.max(30, Math.min(150, (x2 - x1) / 2));
    edge.path = draw("path", {
      class: edge.moved ? "edge moved" : "edge",
      d: `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`,
    });
    return edge.path;
  }

  drawNode(node) {
    const { width, height } = node;
    const kind = kindOf(node);
    const result = node.results.length > 0;
    const reader = isReader(node);
    const shared = node.shared > 1 && node.kind !== "table" && !reader;
    const room = width - 34 - (shared ? 34 : 0);
    const classes = ["node", `kind-${node.kind}`, result && "result", node.kind === "table" && "table"];
    const group = draw("g", {
      class: classes.filter(Boolean).join(" "),
      transform: `translate(${node.x} ${node.y})`,
      role: "button",
      tabindex: "-1",
      "data-id": node.id,
    },
    draw("rect", { class: "ring", x: -4, y: -4, width: width + 8, height: height + 8, rx: 10 }),
    draw("rect", { class: "box", width, height, rx: 6 }),
    draw("text", { class: "sign", x: 10, y: 20 }, kind.sign),
    draw("text", { class: "name", x: 28, y: 20 }, clip(called(node), Math.floor(room / 7))),
    draw("text", { class: "name far", x: 30, y: 23 }, clip(calledFar(node), Math.floor(room / 8.8))),
    reader ? null : draw("text", { class: "what", x: 10, y: 35 }, clip(deed(node), Math.floor((width - 20) / 6.1))),
    draw("title", {}, node.what === node.title ? node.title : `${node.title}\n${node.what}`));
    if (!reader && node.kind !== "table") {
      group.append(
        draw("text", { class: "size", x: 10, y: 51 }),
        draw("text", { class: "rate", x: width - 10, y: 51 }),
        draw("rect", { class: "share", x: 1, y: height - 4, height: 3, rx: 1.5 }),
      );
    }
    if (shared) {
      group.append(
        draw("rect", { class: "badge", x: width - 38, y: 8, width: 30, height: 16, rx: 8 }),
        draw("text", { class: "badge-text", x: width - 23, y: 20 }, `×${node.shared}`),
      );
    }
    this.drawFigures(node, group);
    return group;
  }

  drawFigures(node, group) {
    group.setAttribute("aria-label", label(node));
    group.setAttribute("data-cost", node.cost >= 0.3 ? "high" : node.cost >= 0.1 ? "some" : "low");
    if (!group.querySelector(".share")) return; // it keeps no rows
    const [sizeText, rateText, share] = [".size", ".rate", ".share"].map((s) => group.querySelector(s));
    const held = node.bytes !== null;
    const part = held ? Math.sqrt(node.bytes / this.largest) : 0;
    sizeText.replaceChildren(
      node.rows === null ? "" : plural(node.rows, "row"),
      held ? draw("tspan", {}, ` · ${size(node.bytes)}`) : "",
    );
    rateText.textContent = node.rate ? `${rate(node.rate)}/s` : "";
    share.setAttribute("width", held ? Math.max(2, part * (node.width - 2)) : 0);
  }

  // Marks the chosen node, and all that it is made of or that is made of it.
  light() {
    const lit = new Set();
    const edges = new Set();
    const start = this.byId && this.byId.get(this.chosen);
    for (const side of start ? ["from", "to"] : []) {
      const seen = new Set([start]);
      for (const node of seen) { // a Set is walked through while it grows
        lit.add(node.id);
        for (const next of node[side]) {
          edges.add(side === "from" ? `${next.id} ${node.id}` : `${node.id} ${next.id}`);
          seen.add(next);
        }
      }
    }
    this.world.classList.toggle("dimmed", Boolean(start));
    for (const [id, group] of this.groups || []) {
      group.classList.toggle("lit", lit.has(id));
      group.classList.toggle("chosen", id === this.chosen);
      group.setAttribute("aria-pressed", String(id === this.chosen));
    }
    for (const edge of this.edges || []) {
      if (edge.path) edge.path.classList.toggle("lit", edges.has(`${edge.from} ${edge.to}`));
    }
  }

  choose(id) {
    this.chosen = id;
    this.light();
  }

  focus(id) {
    const group = this.groups.get(id);
    if (!group) return;
    for (const other of this.groups.values()) other.setAttribute("tabindex", "-1");
    group.setAttribute("tabindex", "0");
    group.focus({ preventScroll: true });
    this.reveal(this.byId.get(id));
  }

  // -- moving ------------------------------------------------------------------------------------

  // The whole plan; with `readable` only as much as stays so. The height is as the content needs it.
  fit({ readable = true } = {}) {
    this.moved = !readable;
    this.svg.classList.remove("free");
    const wide = this.host.clientWidth;
    if (!this.placed || !wide) return;
    if (!this.placed.nodes.length) {
      this.host.style.height = `${EMPTY_HEIGHT}px`;
      return;
    }
    const { width, height } = this.placed;
    const low = HEIGHTS[0];
    const most = Math.max(HEIGHTS[1], TALLEST * wide);
    const whole = Math.min(LARGEST, (wide - 2 * MARGIN) / width, (most - 2 * MARGIN) / height);
    const scale = readable ? Math.max(READABLE, whole) : whole;
    const high = Math.min(most, Math.max(low, Math.ceil(height * scale) + 2 * MARGIN));
    if (this.host.clientHeight !== high) this.host.style.height = `${high}px`;
    const spare = (room, need) => Math.max(MARGIN, (room - need * scale) / 2);
    this.view = { scale, x: spare(wide, width), y: spare(high, height) };
    this.apply();
  }

  zoom(factor, x = this.host.clientWidth / 2, y = this.host.clientHeight / 2) {
    const least = Math.min(READABLE, (this.host.clientWidth / (this.placed?.width || 1)) * 0.8);
    const scale = Math.min(NEAREST, Math.max(least, this.view.scale * factor));
    const real = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * real, y: y - (y - this.view.y) * real };
    this.moved = true;
    this.svg.classList.add("free"); // a finger moves the drawing from now on, and not the page
    this.apply();
  }

  // Brings a node into sight, if it is not.
  reveal(node) {
    const { scale } = this.view;
    const [x, y] = [this.view.x + node.x * scale, this.view.y + node.y * scale];
    const into = (at, length, room) =>
      at < MARGIN ? MARGIN - at : Math.min(0, room - MARGIN - length - at);
    this.view.x += into(x, node.width * scale, this.host.clientWidth);
    this.view.y += into(y, node.height * scale, this.host.clientHeight);
    this.apply();
  }

  apply() {
    const { x, y, scale } = this.view;
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    this.svg.classList.toggle("distant", scale < DISTANT);
  }

  listen() {
    const { svg } = this;
    let drag = null;
    const fingers = new Map(); // two of them zoom
    svg.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event);
      if (event.button === 0) drag = { x: event.clientX, y: event.clientY, far: fingers.size > 1 };
    });
    svg.addEventListener("pointermove", (event) => {
      if (!drag) return;
      if (fingers.size === 2) {
        this.pinch(fingers, event);
        return;
      }
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.far && Math.hypot(dx, dy) < 4) return;
      if (!drag.far) svg.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, y: event.clientY, far: true };
      this.view.x += dx;
      this.view.y += dy;
      this.moved = true;
      this.apply();
    });
    const end = (event) => {
      fingers.delete(event.pointerId);
      setTimeout(() => { drag = null; });
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("click", (event) => {
      const group = event.target.closest(".node");
      if (group && !(drag && drag.far)) this.open(group.dataset.id);
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0025), event.offsetX, event.offsetY);
    }, { passive: false });
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  // One of two fingers has moved: what was under their middle stays there.
  pinch(fingers, event) {
    const apart = () => {
      const [one, other] = [...fingers.values()];
      return Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    };
    const before = apart();
    fingers.set(event.pointerId, event);
    const [one, other] = [...fingers.values()];
    const box = this.host.getBoundingClientRect();
    const middle = [(one.clientX + other.clientX) / 2 - box.left, (one.clientY + other.clientY) / 2 - box.top];
    if (before > 0) this.zoom(apart() / before, ...middle);
  }

  open(id) {
    this.choose(id);
    this.focus(id);
    this.onOpen(this.byId.get(id));
  }

  key(event) {
    const group = event.target.closest(".node");
    if (!group || event.ctrlKey || event.metaKey || event.altKey) return;
    const node = this.byId.get(group.dataset.id);
    const turns = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };
    if (event.key === "Enter" || event.key === " ") this.open(node.id);
    else if (turns[event.key]) this.step(node, turns[event.key]);
    else if (event.key === "Home") this.focus(this.placed.nodes[0].id);
    else if (event.key === "End") this.focus(this.placed.nodes.at(-1).id);
    else if (zooms[event.key]) this.zoom(zooms[event.key]);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  // To the nearest node that lies in a direction; what lies off to the side counts as farther.
  step(node, [dx, dy]) {
    let [best, least] = [null, Infinity];
    for (const other of this.placed.nodes) {
      const [x, y] = [other.x - node.x, other.y - node.y];
      const along = x * dx + y * dy;
      const across = Math.abs(x * dy) + Math.abs(y * dx);
      if (along <= 1) continue;
      const cost = along + across * (dx ? 1.5 : 3);
      if (cost < least) [best, least] = [other, cost];
    }
    if (best) this.focus(best.id);
  }
}

// A node in words, for those who do not see it.
export function label(node) {
  const parts = [`${kindOf(node).name} ${node.title}`];
  if (node.kind !== "table") parts.push(`level ${node.level}`);
  if (node.bytes !== null) parts.push(plural(node.rows, "row"), size(node.bytes));
  if (node.rate) parts.push(`${rate(node.rate)} rows a second`);
  if (node.cost >= 0.01) parts.push(`${percent(node.cost)} of the processor time`);
  if (node.shared > 1) parts.push(`shared by ${count(node.shared)} views`);
  return parts.join(", ");
}
