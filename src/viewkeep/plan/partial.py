"""Partial views: the plan of a view, over the rows alone whose keys somebody wants.

Law: the rows of a partial view are those of the full view whose key is wanted. Which keys are
wanted is a table like any other, so the partial view is the full view SEMI JOIN its wanted keys,
and the operators that keep other views keep this one. The semi join stands as near to the base
tables as the key's columns go, so what lies above it has no rows of other keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from viewkeep.errors import Unsupported
from viewkeep.expr import Call, Ref
from viewkeep.plan.nodes import (
    Join,
    LeafNode,
    Match,
    Node,
    Threshold,
    WantedKeys,
    names,
    never_null,
)
from viewkeep.plan.nodes.leaves import KEY_BYTES, USED
from viewkeep.plan.passes.fragments import cut
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.matches import ordered
from viewkeep.plan.passes.prune_columns import prune_columns
from viewkeep.types import BIGINT, BINARY, BOOLEAN, Column, Schema


def wanted_keys(view: str, node: Node, by: Mapping[str, str]) -> WantedKeys:
    """The table of wanted keys of a view that is partial `by` columns of a node, as it calls them.

    The key of the view begins with these columns.
    """
    types = {column.name: column.type for column in node.columns}
    values = [
        Column(name, types[inner], not never_null(Ref(inner, types[inner]), node))
        for name, inner in by.items()
    ]
    columns, key = [*values, Column(USED, BIGINT)], tuple(by)
    if any(value.nullable for value in values):  # which the key of a table cannot be
        columns, key = [Column(KEY_BYTES, BINARY, False), *columns], (KEY_BYTES,)
    return WantedKeys(view, 0, Schema(tuple(columns), key))  # the catalog gives it a number


def restricted(node: Node, wanted: WantedKeys, by: Sequence[str], columns: Collection[str]) -> Node:
    """The rows of a node of which the columns that it is partial `by` have wanted values.

    It has the other `columns` at least. Unsupported if those of the key do not lead to base tables:
    then all rows would have to be kept, or read for each key.
    """
    made = _Restriction(wanted).of(node, tuple(by))
    # The semi joins keep rows of tables: of these only columns that are read.
    parts = cut(made).changed(columns, lambda part, needed: prune_columns(part, Goal(needed)))
    return parts.whole()


class _Restriction:
    """Makes the plan of a view one over wanted keys; what comes twice is made once."""

    def __init__(self, wanted: WantedKeys):
        self.wanted = wanted
        self._made: dict[tuple[str, tuple[str, ...]], Node] = {}

    def of(self, node: Node, columns: tuple[str, ...]) -> Node:
        """The rows of a node whose values in these columns are wanted."""
        key = (node.id, columns)
        if key not in self._made:
            self._made[key] = self._restrict(node, columns)
        return self._made[key]

    def _restrict(self, node: Node, columns: tuple[str, ...]) -> Node:
        if isinstance(node, LeafNode):
            return self._semi_join(node, columns)
        below = _columns_below(node, columns)
        if not any(below):
            raise Unsupported(
                f"its key ({', '.join(columns)}) does not lead to a base table, because of: "
                f"{node.line}",
                hint="A partial view is found by columns of tables, group keys or partitions. "
                "Leave out partial, or let the key begin with such columns",
            )
        made = [
            part if found is None else self.of(part, found)
            for part, found in zip(node.inputs, below, strict=True)
        ]
        return node.with_inputs(tuple(made))

    def _semi_join(self, node: Node, columns: tuple[str, ...]) -> Node:
        types = {column.name: column.type for column in node.columns}
        on = [
            Match(Ref(name, types[name]), Ref(value.name, value.type), value.nullable)
            for name, value in zip(columns, self.wanted.value_columns, strict=True)
        ]
        return Join("semi", node, self.wanted, ordered(on))


def _columns_below(node: Node, columns: Sequence[str]) -> list[tuple[str, ...] | None]:
    """For each input the columns that have these columns' values; None where one has not.

    Then the node over inputs restricted by those is the node restricted by these. If no input has
    them, it is not.
    """
    if not isinstance(node, Join | Threshold):
        moved = [_column_below(node, name) for name in columns]
        return [_all_of(moved)] * len(node.inputs)
    ours, theirs = names(node.inputs[0]), names(node.inputs[1])
    ends = [(match.left, match.right) for match in node.on]
    pairs = [(a.name, b.name) for a, b in ends if isinstance(a, Ref) and isinstance(b, Ref)]
    to_left = {right: left for left, right in reversed(pairs)}
    to_right = dict(reversed(pairs))
    shown = isinstance(node, Join) and node.kind == "inner"
    left = [name if name in ours else to_left.get(name) if shown else None for name in columns]
    right = [
        to_right.get(name) if name in ours else name if name in theirs and shown else None
        for name in columns
    ]
    left_columns, right_columns = _all_of(left), _all_of(right)
    if left_columns is None and not shown:
        right_columns = None  # rows without a partner would come from other keys
    return [left_columns, right_columns]


def _column_below(node: Node, name: str) -> str | None:
    """The input's column that a column is a copy of, in each row; None if there is none."""
    column = next(column for column in node.columns if column.name == name)
    moved = node.moved(Call("is_null", (Ref(name, column.type),), BOOLEAN))
    if isinstance(moved, Call) and moved.function == "is_null" and isinstance(moved.args[0], Ref):
        return moved.args[0].name
    return None


def _all_of(found: Sequence[str | None]) -> tuple[str, ...] | None:
    """The names, if all are there."""
    return tuple(name for name in found if name is not None) if None not in found else None
