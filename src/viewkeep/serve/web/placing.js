// Where the nodes of the plan stand: levels from left to right, and in a level one box per zone, in
// which rows that are handed on in memory go to the right. Law: no two boxes overlap, and a node
// stands to the right of everything that it is made of. A function of the graph alone.

const HOLDER = { width: 184, height: 62 }; // a node with rows of its own
const TABLE = { width: 148, height: 46 }; // a base table, of which the plan keeps nothing
const READER = { width: 116, height: 34 }; // a join, TOP-K or window: it reads others' rows
const GAP = { column: 22, row: 12, zone: 14, level: 44 };
const PAD = { side: 10, top: 24, bottom: 10 };
const HEAD = 28; // for the names of levels
const SWEEPS = 8;
const ROWS = 12; // nodes of a zone that stand in one column, in a plan of usual size

export const isReader = (node) => ["join", "topk", "window", "threshold"].includes(node.kind);
const sizeOf = (node) => (node.kind === "table" ? TABLE : isReader(node) ? READER : HOLDER);

export function place(graph) {
  const nodes = new Map(graph.nodes.map((node) =>
    [node.id, { ...node, ...sizeOf(node), from: [], to: [] }]));
  for (const { from, to } of graph.edges) {
    if (!nodes.has(from) || !nodes.has(to)) continue;
    nodes.get(from).to.push(nodes.get(to));
    nodes.get(to).from.push(nodes.get(from));
  }
  const levels = gather(nodes);
  columns(levels, Math.max(ROWS, Math.ceil(1.2 * Math.sqrt(nodes.size))));
  for (const level of levels) pile(level, 0);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    for (const level of forth ? levels : levels.toReversed()) arrange(level, forth ? "from" : "to");
  }
  const zones = levels.flatMap((level) => level.zones);
  const top = Math.min(...zones.map((zone) => zone.y));
  const bottom = Math.max(...zones.map((zone) => zone.y + zone.height));
  for (const level of levels) pile(level, level.zones[0].y - top + HEAD);
  const last = levels.at(-1);
  return {
    nodes: [...nodes.values()],
    levels,
    width: last ? last.x + last.width : 0,
    height: last ? bottom - top + HEAD : 0,
  };
}

// Levels with their zones; in a zone each node knows its column.
function gather(nodes) {
  const levels = new Map();
  for (const node of nodes.values()) {
    const level = levels.get(node.level) || { level: node.level, zones: new Map() };
    levels.set(node.level, level);
    const zone = level.zones.get(node.zone) || { boxed: node.zone !== null, nodes: [] };
    level.zones.set(node.zone, zone);
    zone.nodes.push(node);
    node.group = zone.nodes; // one and the same for all of the zone
  }
  // Producers come first in the list, so one pass is enough.
  for (const node of nodes.values()) {
    const before = node.from.filter((other) => other.level === node.level);
    node.column = Math.max(-1, ...before.map((other) => other.column)) + 1;
  }
  return [...levels.values()]
    .sort((a, b) => a.level - b.level)
    .map((level) => ({ ...level, zones: [...level.zones.values()].map(named) }));
}

function named(zone) {
  const names = [...new Set(zone.nodes.map((node) => node.columns.join(", ")))];
  const shown = names.filter((name) => name).join(" = ");
  return { ...zone, label: shown ? `by ${shown}` : "on one shard" };
}

// A column of a level is as wide as the widest node in it; where a zone has more nodes in a column
// than `rows`, they stand in several lanes.
function columns(levels, rows) {
  let x = 0;
  for (const level of levels) {
    const widths = [];
    for (const zone of level.zones) {
      zone.rows = rows;
      for (const members of byColumn(zone)) {
        const { column, width } = members[0];
        const lanes = Math.ceil(members.length / rows);
        const wide = Math.max(...members.map((node) => node.width), width);
        widths[column] = Math.max(widths[column] || 0, lanes * (wide + GAP.column) - GAP.column);
      }
    }
    const starts = [];
    let at = x + PAD.side;
    for (const width of widths) {
      starts.push(at);
      at += width + GAP.column;
    }
    level.x = x;
    level.width = at - GAP.column + PAD.side - x;
    for (const zone of level.zones) Object.assign(zone, { x, starts });
    x += level.width + GAP.level;
  }
}

// The nodes of a zone by their columns, from the left.
function byColumn(zone) {
  const found = new Map();
  for (const node of zone.nodes) {
    if (!found.has(node.column)) found.set(node.column, []);
    found.get(node.column).push(node);
  }
  return [...found.entries()].sort(([a], [b]) => a - b).map(([, members]) => members);
}

// The zones of a level, one under the other, from y on.
function pile(level, y) {
  for (const zone of level.zones) {
    zone.y = y;
    settle(zone);
    y += zone.height + GAP.zone;
  }
}

// The nodes of a zone, column by column, in the order that they have: beside what they are made of
// where there is room, in lanes where there are many.
function settle(zone) {
  const top = zone.boxed ? PAD.top : 0;
  let [bottom, right] = [0, 0];
  for (const members of byColumn(zone)) {
    const lanes = Math.ceil(members.length / zone.rows);
    const rows = Math.ceil(members.length / lanes);
    const wide = Math.max(...members.map((node) => node.width));
    let next = top;
    members.forEach((node, place) => {
      if (place % rows === 0) next = top;
      const near = lanes > 1 ? [] : node.from.filter((other) => other.group === node.group);
      const middle = near.length ? mean(near.map((other) => other.dy + other.height / 2)) : 0;
      node.dy = Math.max(next, middle - node.height / 2);
      node.x = zone.starts[node.column] + Math.floor(place / rows) * (wide + GAP.column);
      next = node.dy + node.height + GAP.row;
      bottom = Math.max(bottom, next - GAP.row);
      right = Math.max(right, node.x + node.width);
    });
  }
  zone.width = right + PAD.side - zone.x;
  zone.height = bottom + (zone.boxed ? PAD.bottom : 0);
  for (const node of zone.nodes) node.y = zone.y + node.dy;
}

// Orders a level by where its neighbours stand, and brings it as a whole as near to them as it can.
function arrange(level, side) {
  const wish = (node) => {
    const near = node[side].filter((other) => other.level !== node.level);
    return near.length ? mean(near.map((other) => other.y)) : null;
  };
  for (const zone of level.zones) {
    const wishes = new Map(zone.nodes.map((node) => [node, wish(node) ?? node.y]));
    zone.nodes.sort((a, b) => a.column - b.column || wishes.get(a) - wishes.get(b));
    zone.wish = mean([...wishes.values()]);
  }
  level.zones.sort((a, b) => a.wish - b.wish);
  pile(level, 0);
  const nodes = level.zones.flatMap((zone) => zone.nodes);
  const off = nodes.map((node) => [node.y, wish(node)]).filter(([, at]) => at !== null);
  pile(level, off.length ? mean(off.map(([y, at]) => at - y)) : 0);
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
