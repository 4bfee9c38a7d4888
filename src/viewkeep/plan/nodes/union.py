"""UNION ALL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeep.expr import Expr, Lit, Ref
from viewkeep.plan.nodes.node import Node, names, need
from viewkeep.plan.nodes.parts import Named
from viewkeep.plan.nodes.project import copied, exactly, projected
from viewkeep.types import Column, DataType


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of all inputs, which have the same columns; `row_key` tells them all apart.

    So the row key has a column that differs between inputs, unless their rows differ already.
    """

    inputs: tuple[Node, ...]
    row_key: tuple[str, ...]

    row_by_row = True
    narrows = True

    def __post_init__(self) -> None:
        shapes = {tuple((c.name, c.type) for c in node.columns) for node in self.inputs}
        if len(shapes) != 1:
            raise ValueError("the inputs of a union differ in their columns")
        need(self.row_key, self.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.inputs[0].columns

    @property
    def line(self) -> str:
        return f"union key ({', '.join(self.row_key)})"

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Union(inputs, self.row_key)

    def over(self, inputs: tuple[Node, ...]) -> Node:
        return united(inputs, self.row_key, names(self))

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        kept = {*needed, *self.row_key, *(name for below in self.inputs for name in below.row_key)}
        return (kept & names(self),) * len(self.inputs)

    def over_pruned(self, inputs: tuple[Node, ...], needed: Collection[str]) -> Node:
        return united(inputs, self.row_key, self.reads(needed)[0])

    def moved(self, condition: Expr) -> Expr | None:
        return condition

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return frozenset.intersection(*below)


def united(branches: Iterable[Node], row_key: tuple[str, ...], columns: Iterable[str]) -> Union:
    """A union of these columns; row keys that are not among them get columns of their own."""
    shown = sorted(columns)
    made = list(branches)
    added = [
        [c for c in node.columns if c.name in node.row_key and c.name not in shown] for node in made
    ]
    slots = _slots(added, shown)
    if slots:
        made = [
            _with_slots(node, shown, extra, slots) for node, extra in zip(made, added, strict=True)
        ]
        row_key += tuple(name for name, _ in slots)
        shown = sorted([*shown, *(name for name, _ in slots)])
    return Union(tuple(exactly(node, shown) for node in made), row_key)


def _slots(added: list[list[Column]], taken: list[str]) -> list[tuple[str, DataType]]:
    """Columns, by type, that hold the added ones of each branch."""
    wanted: list[DataType] = []
    for extra in added:
        types = [column.type for column in extra]
        for type_ in types:
            wanted += [type_] * (types.count(type_) - wanted.count(type_))
    slots: list[tuple[str, DataType]] = []
    for type_ in sorted(wanted, key=str):
        used = {*taken, *(name for name, _ in slots)}
        number = next(n for n in range(len(used) + 1) if f"#key{n}" not in used)
        slots.append((f"#key{number}", type_))
    return slots


def _with_slots(
    node: Node, shown: list[str], extra: list[Column], slots: list[tuple[str, DataType]]
) -> Node:
    left = list(extra)
    outputs = list(copied(column for column in node.columns if column.name in shown))
    for name, type_ in slots:
        held = next((column for column in left if column.type == type_), None)
        if held is None:
            outputs.append(Named(name, Lit(None, type_)))
        else:
            left.remove(held)
            outputs.append(Named(name, Ref(held.name, held.type)))
    return projected(node, outputs)
