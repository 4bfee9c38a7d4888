"""What joins, TOP-K and windows read: arrangements of their inputs, grouped by what they match on.

REVERSE-JOIN is an Arrange of each side under (match columns, row key): the partners of a row are
one prefix. Where a side is an Aggregate whose keys are the match columns, its group rows are that
arrangement already, so PRE-AGGREGATION and REVERSE-JOIN are one state table. Law: both sides of a
join are grouped by values of the same types in the same order, so partners lie on one shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeep.expr import Call, Expr, Ref
from viewkeep.plan.nodes.aggregate import Aggregate
from viewkeep.plan.nodes.arrange import Arrange
from viewkeep.plan.nodes.filter import Filter
from viewkeep.plan.nodes.node import Node, PartitionNode, StatefulNode
from viewkeep.plan.nodes.nulls import never_null
from viewkeep.plan.nodes.parts import KeyPart, Match, Named
from viewkeep.plan.nodes.project import Project
from viewkeep.types import BOOLEAN


@dataclass(frozen=True)
class Side:
    """An input of a reader: the operator whose table is read, and steps for each row read.

    `group` names the columns, after the steps, that rows are found by.
    """

    node: StatefulNode
    steps: tuple[Filter | Project, ...]
    group: tuple[str, ...]


def by_partition(node: PartitionNode) -> Side:
    """The input's rows by partition, and within one in order."""
    order = [KeyPart(name) for name in node.partition]
    order += [part for part in node.order if part.name not in node.partition]
    order += [KeyPart(n) for n in node.input.row_key if n not in {part.name for part in order}]
    first = {part.name: part for part in reversed(order)}
    key = tuple(first[name] for name in dict.fromkeys(part.name for part in order))
    kept = tuple(sorted(column.name for column in node.input.columns))
    return Side(Arrange(node.input, key, kept, len(node.partition)), (), node.partition)


def strip(node: Node) -> tuple[Node, tuple[Filter | Project, ...]]:
    """The node below a node's stateless steps, and those steps in running order."""
    steps: list[Filter | Project] = []
    while isinstance(node, Filter | Project):
        steps.append(node)
        node = node.input
    return node, tuple(reversed(steps))


def traced(names: Sequence[str], steps: Sequence[Filter | Project]) -> tuple[str, ...] | None:
    """The columns before the steps that these columns are copies of; None if one is computed."""
    found = tuple(names)
    for step in reversed(steps):
        if isinstance(step, Project):
            copies = {o.name: o.expr.name for o in step.outputs if isinstance(o.expr, Ref)}
            if not copies.keys() >= set(found):
                return None
            found = tuple(copies[name] for name in found)
    return found


def join_sides(kind: str, left: Node, right: Node, on: Sequence[Match]) -> tuple[Side, Side]:
    """Both sides of a join, grouped by what is matched."""
    orders, order = _orders(left, right, on)
    on = [on[place] for place in order]
    without_nulls = [kind in ("inner", "semi"), True]
    made = []
    for place, side in enumerate((left, right)):
        exprs = [match.left if place == 0 else match.right for match in on]
        nulls_out = [m for m in on if not m.null_safe] if without_nulls[place] else []
        dropped = [match.left if place == 0 else match.right for match in nulls_out]
        if orders[place] == order and on:
            made.append(_as_it_is(side, exprs, dropped))
        else:
            made.append(_arranged(side, exprs, dropped))
    return made[0], made[1]


def in_group_order(left: Node, right: Node, on: Sequence[Match]) -> list[Match]:
    """The matches in the order in which both sides are grouped by them."""
    _, order = _orders(left, right, on)
    return [on[place] for place in order]


def _orders(
    left: Node, right: Node, on: Sequence[Match]
) -> tuple[list[list[int] | None], list[int]]:
    """The order of matches that each side has already, if any, and the one that both get."""
    orders = [merged(left, [m.left for m in on]), merged(right, [m.right for m in on])]
    same = list(range(len(on)))
    return orders, next((found for found in reversed(orders) if found is not None), same)


def merged(side: Node, exprs: Sequence[Expr]) -> list[int] | None:
    """In which order the matches are the keys of the Aggregate that a side is; None if not.

    Then its groups are the arrangement that the join needs: PRE-AGGREGATION is REVERSE-JOIN.
    """
    below, steps = strip(side)
    if not isinstance(below, Aggregate) or not all(isinstance(expr, Ref) for expr in exprs):
        return None
    columns = traced([str(expr) for expr in exprs], steps)
    if columns is None or sorted(columns) != sorted(below.row_key) or not columns:
        return None
    return [columns.index(name) for name in below.row_key]


def threshold_sides(
    rows: Node, bounds: Node, on: Sequence[Match], column: str
) -> tuple[Side, Side]:
    """Both inputs of a Threshold, grouped by what is matched; within a group rows by a column."""
    ours, theirs = join_sides("semi", rows, bounds, on)
    read = [match.left for match in on if not match.null_safe]
    compared = next(Ref(c.name, c.type) for c in rows.columns if c.name == column)
    key = dict.fromkeys((*ours.group, column, *rows.row_key))
    node = Arrange(
        _without_nulls(rows, [*read, compared]),
        tuple(KeyPart(name) for name in key),
        tuple(sorted(c.name for c in rows.columns)),
        len(ours.group),
    )
    return Side(node, (), ours.group), theirs


def _as_it_is(side: Node, exprs: Sequence[Expr], dropped: Sequence[Expr]) -> Side:
    """A side whose Aggregate is grouped by the matches."""
    filtered = _without_nulls(side, dropped)
    below, steps = strip(filtered)
    assert isinstance(below, Aggregate)
    return Side(below, steps, tuple(str(expr) for expr in exprs))


def _arranged(side: Node, exprs: Sequence[Expr], dropped: Sequence[Expr]) -> Side:
    columns = {column.name: Ref(column.name, column.type) for column in side.columns}
    outputs = dict[str, Expr](columns)
    group: list[str] = []
    for expr in exprs:
        name = str(expr)
        if not isinstance(expr, Ref) or name in group:
            while name in outputs:
                name += "'"
            outputs[name] = expr
        group.append(name)
    below = _without_nulls(side, dropped)
    if len(outputs) > len(columns):
        below = Project(below, tuple(Named(name, outputs[name]) for name in sorted(outputs)))
    key = [*group, *(name for name in side.row_key if name not in group)]
    parts = tuple(KeyPart(name) for name in dict.fromkeys(key))
    node = Arrange(below, parts, tuple(sorted(outputs)), len(group))
    return Side(node, (), tuple(group))


def _without_nulls(node: Node, exprs: Sequence[Expr]) -> Node:
    for expr in sorted((e for e in exprs if not never_null(e, node)), key=str):
        node = Filter(node, Call("is_not_null", (expr,), BOOLEAN))
    return node
