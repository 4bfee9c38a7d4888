"""Passes: plan nodes to better plan nodes with the same rows, each in its own file.

Law of each pass: the same rows, with at least the wanted columns, under their names. The row key
may become another one, as unique as the old. Passes run in the order of `PASSES` until none
changes anything, so queries that mean the same tend to become the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from viewkeep import interrupts
from viewkeep.plan.nodes import Node
from viewkeep.plan.passes.aggregate_first import aggregate_first
from viewkeep.plan.passes.compute_matches import compute_matches
from viewkeep.plan.passes.find_thresholds import find_thresholds
from viewkeep.plan.passes.fragments import cut
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.merge_projects import merge_projects
from viewkeep.plan.passes.order_joins import order_joins
from viewkeep.plan.passes.prune_columns import prune_columns
from viewkeep.plan.passes.push_filters import push_filters

Pass: TypeAlias = Callable[[Node, Goal], Node]

PASSES: tuple[Pass, ...] = (
    merge_projects,
    push_filters,
    prune_columns,
    order_joins,
    push_filters,
    prune_columns,
    merge_projects,
    compute_matches,
    find_thresholds,
    aggregate_first,
)

# A later pass may give an earlier one something to do; this has not been seen more than twice.
_MOST_ROUNDS = 5


def optimise(
    node: Node,
    wanted: Collection[str],
    existing: Collection[str] = (),
    aggregate_first: bool | None = None,
) -> Node:
    """A plan with the same rows that has at least the `wanted` columns.

    `existing` are the ids of joins that are kept already, for this or another view: where the order
    of joins is free, these are preferred. `aggregate_first` is what a hint says of that pass.
    """
    joins = frozenset(existing)

    def once(part: Node, needed: frozenset[str]) -> Node:
        for change in PASSES:
            interrupts.check()
            part = change(part, Goal(needed, joins, aggregate_first))
        return part

    fragments = cut(node)
    for _ in range(_MOST_ROUNDS):
        before = fragments.root
        fragments = fragments.changed(wanted, once)
        if fragments.root == before:
            break
    return fragments.whole()
