"""Nodes without inputs: base tables, rows written in the query, and fences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from viewkeep.cells import CellRules, TieRule
from viewkeep.codec.tablerows import Newer, TableHistory, TableRowCodec
from viewkeep.expr import Scalar
from viewkeep.plan.nodes.node import Node, need, nodes
from viewkeep.types import Column, Schema

KEY_BYTES: Final = "#wanted"
"""The column of wanted keys that holds the bytes of a key."""

USED: Final = "#used"
"""The column of wanted keys that says at which epoch, about, a key was last read."""


class LeafNode(Node):
    """A node without inputs."""

    @property
    def title(self) -> str:
        """What it is, as a line of EXPLAIN."""
        return self.line

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return self


@dataclass(frozen=True, eq=False)
class Source(LeafNode):
    """DELTA: the changes of a base table, old row to new row per key.

    `history` tells how its rows are read if its columns were ever changed. A view has a table as
    it was when the view was made.
    """

    table: str
    number: int
    schema: Schema
    history: TableHistory | None = field(default=None, kw_only=True, metadata={"identity": False})

    @cached_property
    def rows(self) -> TableHistory:
        """The layouts that its rows have had."""
        return self.history or TableHistory.first(self.schema.columns)

    def number_of(self, column: str) -> int:
        """The number of one of its columns."""
        return dict(self.rows.columns)[column]

    def codec(self, newer: Newer | None = None) -> TableRowCodec:
        """Reads its rows of all versions, and writes the newest."""
        numbers = dict(self.rows.columns)
        columns = self.schema.columns
        return TableRowCodec(columns, [numbers[c.name] for c in columns], self.rows, newer)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.schema.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.schema.key

    @property
    def line(self) -> str:
        return f"source {self.table}"

    @property
    def title(self) -> str:
        return f"Δ DELTA {self.table} (key {', '.join(self.row_key)})  · level 0"

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return {column.name for column in self.columns if not column.nullable}


@dataclass(frozen=True, eq=False)
class CellSource(Source):
    """A base table whose log says what happened to cells, not what its rows were before."""

    ties: str  # of cells.TieRule
    versions: bool  # whether single versions of a cell may be deleted
    options: tuple[tuple[str, str], ...] = ()  # how it lies in the store: USING ... OPTIONS

    @cached_property
    def rules(self) -> CellRules:
        """How its operations are merged."""
        return CellRules(TieRule(self.ties), self.versions)

    @property
    def title(self) -> str:
        return f"operations on cells of {self.table}  · level 0"


@dataclass(frozen=True, eq=False)
class WantedKeys(Source):
    """The keys of a partial view that somebody has asked for: a hidden table, which readers write.

    `table` is the name of the view. A row is a key: its values, and when it was used. The values
    are the key of the row; where one may be NULL, the bytes of the view's key are. Views of one
    name and key share their wanted keys, whatever else of them differs, so the table's number is no
    part of what it is.
    """

    number: int = field(metadata={"identity": False})

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns that hold a key's values: as many as the view's key begins with."""
        return tuple(c for c in self.schema.columns if c.name not in (KEY_BYTES, USED))

    @property
    def has_bytes(self) -> bool:
        """Whether a row has the bytes of its key, and not its values, as its key."""
        return KEY_BYTES in self.schema

    @property
    def values(self) -> tuple[str, ...]:
        """The names of these columns, which are those of the view."""
        return tuple(column.name for column in self.value_columns)

    @property
    def line(self) -> str:
        return f"wanted keys of {self.table}"

    @property
    def title(self) -> str:
        return f"wanted keys of {self.table} ({', '.join(self.values)})  · level 0"


@dataclass(frozen=True, eq=False)
class Values(LeafNode):
    """Rows that are written in the query, and never change."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    row_key: tuple[str, ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row of values has another number of columns")
        if not self.row_key and len(self.rows) > 1:
            raise ValueError("several rows need a row key")
        need(self.row_key, self.columns)

    @property
    def line(self) -> str:
        rows = ", ".join(f"({', '.join(map(repr, row))})" for row in self.rows)
        names = ", ".join(column.name for column in self.columns)
        return f"values ({names}) {rows} key ({', '.join(self.row_key)})"

    @property
    def title(self) -> str:
        return f"VALUES, {len(self.rows)} rows"

    @property
    def has_one_row(self) -> bool:
        return len(self.rows) == 1

    def without_unused(self, needed: Collection[str]) -> Node:
        held = {*needed, *self.row_key}
        kept = [i for i, column in enumerate(self.columns) if column.name in held] or [0]
        if len(kept) == len(self.columns):
            return self
        columns = tuple(self.columns[i] for i in kept)
        return Values(
            columns, tuple(tuple(row[i] for i in kept) for row in self.rows), self.row_key
        )


@dataclass(frozen=True, eq=False)
class Fence(LeafNode):
    """A part of a plan that passes neither change nor look into, under the id of that part.

    `plan.passes.fragments` cuts large plans by fences. A finished plan has none.
    """

    node: Node

    @cached_property
    def id(self) -> str:
        return self.node.id

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.node.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.node.row_key

    @property
    def line(self) -> str:
        return f"fence {self.id}"


def sources(node: Node) -> Iterator[Source]:
    """The base tables that a node is computed from, each once."""
    return (below for below in nodes([node]) if isinstance(below, Source))
