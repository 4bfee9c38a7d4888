// The kinds of nodes: their signs (those that EXPLAIN prints) and their names.

export const KINDS = {
  table: { sign: "Δ", name: "Base table" },
  delta: { sign: "Δ", name: "Cells" },
  values: { sign: "=", name: "Values" },
  view: { sign: "▤", name: "Index" },
  arrangement: { sign: "▥", name: "Arrangement" },
  aggregate: { sign: "γ", name: "Aggregate" },
  join: { sign: "⋈", name: "Join" },
  topk: { sign: "⊤", name: "Top rows" },
  window: { sign: "⊞", name: "Window" },
  threshold: { sign: "≷", name: "Threshold" },
};

// What a node does, without the sign and the word that stand beside it anyway.
export function deed(node) {
  return node.what
    .replace(/^[^\w(]\s*/u, "")
    .replace(/^(VIEW|INDEX|ARRANGEMENT) /, "")
    .replace(/REVERSE-JOIN/, "join");
}
