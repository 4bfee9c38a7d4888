"""DELTA of a log that tells of cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeep.plan.nodes.leaves import CellSource
from viewkeep.plan.nodes.node import StatefulNode, TableShape, names
from viewkeep.plan.nodes.parts import KeyPart
from viewkeep.types import BIGINT, BINARY, BOOLEAN, Column


@dataclass(frozen=True, eq=False)
class Delta(StatefulNode):
    """DELTA: the rows of a base table out of the operations on its cells.

    It is spread by the keys of its base table, as rows keyed like it are. Its tables hold bytes of
    their own, under keys of their own (`engine.cells.tables`): cells under the keys of the base
    table, ranges that were deleted, and what is to be purged when.
    """

    input: CellSource

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key

    @property
    def line(self) -> str:
        return f"delta {self.input.table}"

    def title(self, local: bool) -> str:
        return f"Δ DELTA {self.input.table} (key {', '.join(self.row_key)})"

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        return (names(self),)

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return below[0]

    def tables(self, by_row_key: bool) -> tuple[TableShape, ...]:
        key, start, stop = (Column(name, BINARY) for name in ("key", "start", "stop"))
        through, at = Column("through", BIGINT), Column("at", BIGINT)
        is_segment = Column("is_segment", BOOLEAN)
        return (
            _table("cells", self.columns, *self.row_key),
            _table("deleted ranges", (start, stop, through), "start"),
            _table("due", (at, is_segment, key), "at", "is_segment", "key"),
        )

    def copied_from(self, column: str) -> str | None:
        return column


def _table(purpose: str, columns: tuple[Column, ...], *key: str) -> TableShape:
    return TableShape(purpose, columns, tuple(map(KeyPart, key)), key)
