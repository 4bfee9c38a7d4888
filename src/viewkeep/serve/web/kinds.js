// The kinds of nodes: their signs (those that EXPLAIN prints), their names, and what they do in plain
// words. A test holds this list against the operators that there are.

export const KINDS = {
  table: { sign: "Δ", name: "Base table", does: "rows that applications write" },
  delta: { sign: "Δ", name: "Cells", does: "the newest cell of each column, by timestamp" },
  values: { sign: "=", name: "Values", does: "rows that a query writes itself" },
  arrangement: { sign: "▥", name: "Arrangement", does: "rows kept in the order that the next step looks them up" },
  aggregate: { sign: "γ", name: "Aggregate", does: "one row for each group" },
  join: { sign: "⋈", name: "Join", does: "finds the partners of a row; keeps no rows" },
  threshold: { sign: "≷", name: "Threshold", does: "compares a column with a figure of its group; keeps no rows" },
  topk: { sign: "⊤", name: "Top rows", does: "the first rows of each group; keeps no rows" },
  window: { sign: "⊞", name: "Window", does: "adds figures of the rows around; keeps no rows" },
  view: { sign: "▤", name: "Index", does: "the rows of a view, in the order of its key" },
};
const UNKNOWN = { sign: "◦", name: "Operator", does: "" };

export const kindOf = (node) => KINDS[node.kind] || { ...UNKNOWN, name: node.kind };

// What a node does, without the sign and the word that stand beside it anyway.
export function deed(node) {
  return node.what
    .replace(/^[^\w(]\s*/u, "")
    .replace(/^(VIEW|INDEX|ARRANGEMENT|WINDOW|THRESHOLD|DELTA) /, "")
    .replace(/^base table, /, "")
    .replace(/REVERSE-JOIN/, "join");
}

// What a node is called in the drawing: the view or table it is, else what it is.
export function called(node) {
  if (node.results.length || node.kind === "table") return node.title;
  const words = deed(node);
  if (node.kind === "join") return { LEFT: "Left join", RIGHT: "Right join", FULL: "Full join" }[words.split(" ")[0]] || "Join";
  const first = node.kind === "topk" && words.match(/^TOP-K (\d+)/);
  return first ? `Top ${first[1]}` : kindOf(node).name;
}

// The same from afar, where the line below it is not shown: by what an inner node keeps its rows.
export function calledFar(node) {
  const by = ["arrangement", "aggregate"].includes(node.kind) && deed(node).match(/by \(?([^()]+)\)?$/);
  return by && !node.results.length ? `by ${by[1]}` : called(node);
}
