"""A comparison with the one row of another relation, of which nothing else is read, is a THRESHOLD.

`WHERE x > (SELECT AVG(x) FROM t)` is a join with one row and a condition on the pairs. Kept as a
join, each change of the average goes through all rows twice: what was joined goes, what is joined
comes, and nearly all of it cancels out. A Threshold reads the rows between the old and the new
average, which lie side by side in an arrangement that is ordered by x.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from viewkeep.expr import Call, Expr, Ref, references, unused
from viewkeep.plan.conditions import MIRRORED, conjuncts, reads
from viewkeep.plan.nodes import (
    Filter,
    Join,
    Match,
    Named,
    Node,
    Project,
    Threshold,
    copied,
    filtered,
    names,
    over,
)
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.merge_projects import merged_project
from viewkeep.plan.passes.prune_columns import needs

ORDERED: Final = ("INT", "BIGINT", "DATE", "TIMESTAMP", "DOUBLE")
"""Types, beside DECIMAL, whose keys have one width, so that they are in order up to any length."""


def find_thresholds(node: Node, goal: Goal) -> Node:
    """Same rows, the wanted columns: no inner join is there for a comparison with one row alone."""
    return _found(node, goal.wanted)


def _found(node: Node, needed: Collection[str]) -> Node:
    if isinstance(node, Filter) and isinstance(node.input, Join):
        node = next(_thresholds(node, node.input, needed), node)
    if node.computes:
        needed = names(node)
    below = tuple(map(_found, node.inputs, needs(node, needed)))
    return over(node, below)


def _thresholds(node: Filter, join: Join, needed: Collection[str]) -> Iterator[Node]:
    """The filter and the join as a threshold, if that is what they are: in all ways there are."""
    if join.kind != "inner":
        return
    held = {*needed, *node.row_key}
    conditions = conjuncts(node.predicate)
    mirrored = tuple(Match(m.right, m.left, m.null_safe) for m in join.on)
    ways = ((join.left, join.right, join.on), (join.right, join.left, mirrored))
    for rows, bounds, on in ways:
        if held & names(bounds) or not _one_in_each_group(rows, bounds, on):
            continue
        for place, condition in enumerate(conditions):
            rest = [*conditions[:place], *conditions[place + 1 :]]
            compared = _compared(condition, rows, bounds)
            if compared and all(reads(other, names(rows)) for other in rest):
                if any(match.left == compared[0] for match in on):
                    continue  # it does not order the rows of a group, which it tells
                yield filtered(_threshold(rows, bounds, on, *compared), rest)


def _one_in_each_group(rows: Node, bounds: Node, on: tuple[Match, ...]) -> bool:
    """Whether a group has one bound, and may have many rows; groups are told by plain columns."""
    pairs = [(match.left, match.right) for match in on]
    ours = [left.name for left, _ in pairs if isinstance(left, Ref)]
    theirs = [right.name for _, right in pairs if isinstance(right, Ref)]
    if len(ours) < len(on) or len(theirs) < len(on) or len(set(ours)) < len(ours):
        return False
    return set(theirs) >= set(bounds.row_key) and not set(ours) >= set(rows.row_key)


def _compared(condition: Expr, rows: Node, bounds: Node) -> tuple[Expr, str, Expr] | None:
    """The two sides of a comparison of rows with bounds, and how the rows compare."""
    if not isinstance(condition, Call) or condition.function not in MIRRORED:
        return None
    one, other = condition.args
    compare = condition.function
    if set(references(one)) & names(bounds):
        one, other, compare = other, one, MIRRORED[compare]
    if one.type != other.type or not (one.type.name in ORDERED or one.type.is_decimal):
        return None
    both = ((one, rows), (other, bounds))
    if all(references(expr) and reads(expr, names(side)) for expr, side in both):
        return one, compare, other
    return None


def _threshold(
    rows: Node, bounds: Node, on: tuple[Match, ...], column: Expr, compare: str, bound: Expr
) -> Node:
    taken = names(rows) | names(bounds)
    rows, ours = _with_column(rows, column, taken)
    bounds, theirs = _with_column(bounds, bound, taken)
    return Threshold(rows, bounds, on, ours, compare, theirs)


def _with_column(node: Node, expr: Expr, taken: set[str]) -> tuple[Node, str]:
    """The node with a column that has an expression's value, and that column's name."""
    if isinstance(expr, Ref):
        return node, expr.name
    name = unused(str(expr), taken)
    taken.add(name)
    outputs = (*copied(node.columns), Named(name, expr))
    made = Project(node, tuple(sorted(outputs, key=lambda out: out.name)))
    return merged_project(made), name
