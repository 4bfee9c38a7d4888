"""Columns that nobody reads are not computed, and not kept."""

from __future__ import annotations

from collections.abc import Collection

from viewkeep.plan.nodes import Node, names, narrowed
from viewkeep.plan.passes.goal import Goal


def prune_columns(node: Node, goal: Goal) -> Node:
    """Same rows, the wanted columns: what is computed is read above, or is part of a row key.

    Inputs of joins, TopK and Window, which keep rows, have the needed columns alone. A left join
    that gives each row at most one partner of whom nothing is read goes away.
    """
    return pruned(node, goal.wanted)


def needs(node: Node, needed: Collection[str]) -> tuple[set[str], ...]:
    """The columns that a node reads of each input, to have the needed ones and its row key.

    That is at least one column: rows without columns are no rows.
    """
    return tuple(
        read if read or below.row_key else {min(names(below))}
        for below, read in zip(node.inputs, node.reads(needed), strict=True)
    )


def pruned(node: Node, needed: Collection[str]) -> Node:
    """The node with the needed columns, its row key, and maybe others that cost nothing."""
    while (lean := node.without_unused(needed)) is not node:
        node = lean
    read = needs(node, needed)
    below = tuple(map(pruned, node.inputs, read))
    if node.narrows:
        below = tuple(map(narrowed, below, read))
    return node.over_pruned(below, needed)
