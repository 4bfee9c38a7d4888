"""THRESHOLD."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from viewkeep.expr import Call, Expr, Ref
from viewkeep.plan.nodes.arrangements import Side, threshold_sides
from viewkeep.plan.nodes.join import joined
from viewkeep.plan.nodes.node import Node, ReaderNode, columns_read, names, need
from viewkeep.plan.nodes.parts import Match
from viewkeep.types import BOOLEAN, Column

SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""The comparisons, and how they are written."""


@dataclass(frozen=True, eq=False)
class Threshold(ReaderNode):
    """THRESHOLD: the rows of `input` whose `column` is below, or above, the `bound` of their group.

    `bounds` has at most one row for each group, which `on` matches; without matches there is one
    group. Columns of both inputs differ in name. It is an inner join with a comparison, of which
    nobody reads the other side; so a bound that moves concerns the rows that it passes, alone.
    """

    input: Node
    bounds: Node
    on: tuple[Match, ...]
    column: str
    compare: str
    bound: str

    computes = False

    def __post_init__(self) -> None:
        if self.compare not in SIGNS:
            raise ValueError(f"no such comparison: {self.compare}")
        if both := names(self.input) & names(self.bounds):
            raise ValueError(f"{sorted(both)} are columns of both inputs")
        need([self.column, *columns_read(m.left for m in self.on)], self.input.columns)
        need([self.bound, *columns_read(m.right for m in self.on)], self.bounds.columns)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.bounds)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key

    @cached_property
    def predicate(self) -> Expr:
        """The comparison, over the columns of both inputs."""
        types = {c.name: c.type for c in (*self.input.columns, *self.bounds.columns)}
        refs = tuple(Ref(name, types[name]) for name in (self.column, self.bound))
        return Call(self.compare, refs, BOOLEAN)

    @property
    def _shown(self) -> str:
        on = ", ".join(map(str, self.on))
        return f"{self.column} {SIGNS[self.compare]} {self.bound}" + (f" on {on}" if on else "")

    @property
    def line(self) -> str:
        return f"threshold {self._shown}"

    def title(self, local: bool) -> str:
        return f"≷ THRESHOLD {self._shown}"

    def expressions(self) -> Iterator[Expr]:
        return (side for match in self.on for side in (match.left, match.right))

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0], bounds=inputs[1])

    def over(self, inputs: tuple[Node, ...]) -> Node:
        made = joined("inner", inputs[0], inputs[1], self.on, ours=names(self.input))
        return self.with_inputs((made.left, made.right))

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        rows = {*needed, *self.row_key, self.column, *columns_read(m.left for m in self.on)}
        return rows, {self.bound, *columns_read(m.right for m in self.on)}

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return below[0] | {self.column}

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        return below[0]

    def sides(self) -> tuple[Side, ...]:
        return threshold_sides(self.input, self.bounds, self.on, self.column)
