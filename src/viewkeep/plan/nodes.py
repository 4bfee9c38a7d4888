"""Logical plan nodes: frozen, self-validating, with ids derived from their content.

Every node says its output `columns` and its `row_key`: columns that identify an output row. Output
columns are named by the canonical text of what they compute, never by an alias, so two queries
that compute the same thing are the same node. Aliases live in `View` alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from viewkeep.expr import Expr, Ref
from viewkeep.types import Column, DataType, Schema


@dataclass(frozen=True)
class Named:
    """An expression and the output column that it computes."""

    name: str
    expr: Expr

    @property
    def column(self) -> Column:
        return Column(self.name, self.expr.type)


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function over the rows of a group.

    `function` is one of AGGREGATES. `argument` is None for `count_star` alone. A FILTER clause has
    become a CASE inside the argument.
    """

    name: str
    function: str
    argument: Expr | None
    type: DataType

    def __post_init__(self) -> None:
        if self.function not in AGGREGATES:
            raise ValueError(f"no such aggregate: {self.function}")
        if (self.argument is None) != (self.function == "count_star"):
            raise ValueError(f"{self.function} has the wrong number of arguments")


AGGREGATES = (
    "count_star",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "count_distinct",
    "sum_distinct",
    "avg_distinct",
)


@dataclass(frozen=True)
class KeyPart:
    """A column of a state table's key and its direction."""

    name: str
    descending: bool = False


class _Identified:
    """Gives a node its content-derived id."""

    @cached_property
    def id(self) -> str:
        """Equal for equal plans, in every process and version of a database."""
        return hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Source(_Identified):
    """DELTA: the changes of a base table, old row to new row per key."""

    table: str
    number: int
    schema: Schema

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.schema.columns

    @property
    def row_key(self) -> tuple[str, ...]:
        return self.schema.key


@dataclass(frozen=True)
class Filter(_Identified):
    """SELECTION: the rows for which `predicate` is true."""

    input: Node
    predicate: Expr

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key


@dataclass(frozen=True)
class Project(_Identified):
    """PROJECTION: computed columns. Keeps the input's row key among its outputs, unrenamed."""

    input: Node
    outputs: tuple[Named, ...]

    def __post_init__(self) -> None:
        kept = {out.name for out in self.outputs if out.expr == Ref(out.name, out.expr.type)}
        if lost := set(self.input.row_key) - kept:
            raise ValueError(f"a projection must keep the row key; {sorted(lost)} is lost")

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(out.column for out in self.outputs)

    @property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key


@dataclass(frozen=True)
class Aggregate(_Identified):
    """COUNT, SUM, MIN ... of the input's rows per group. No keys: one row, even of no input."""

    input: Node
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        made = tuple(Column(call.name, call.type) for call in self.aggregates)
        return tuple(key.column for key in self.keys) + made

    @property
    def row_key(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True)
class Arrange(_Identified):
    """A state table of the input's rows (the `kept` columns), under a key that starts as asked.

    INDEX is an Arrange whose key starts with other columns than the row key. The row key's columns
    are always part of the key, last, so that the key is unique.
    """

    input: Node
    key: tuple[KeyPart, ...]
    kept: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.key]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate column in key {names}")
        if missing := set(self.input.row_key) - set(names):
            raise ValueError(f"the key lacks {sorted(missing)} of the row key")
        if missing := (set(names) | set(self.kept)) - {c.name for c in self.input.columns}:
            raise ValueError(f"{sorted(missing)} is not computed by the input")

    @property
    def columns(self) -> tuple[Column, ...]:
        wanted = set(self.kept) | {part.name for part in self.key}
        return tuple(column for column in self.input.columns if column.name in wanted)

    @property
    def row_key(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.key)


Node: TypeAlias = Source | Filter | Project | Aggregate | Arrange


@dataclass(frozen=True)
class View:
    """A named view: its SQL, the Arrange node that keeps it, and what its columns are called.

    `columns` pairs each visible name with a column of `node`, in order; a node column that is only
    part of the key is hidden. `reads` names the tables and views that the SQL is written over; the
    plan itself stands on base tables alone.
    """

    name: str
    sql: str
    node: Arrange
    columns: tuple[tuple[str, str], ...]
    reads: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """The visible columns, then the hidden key columns, under their shown names."""
        types = {column.name: column.type for column in self.node.columns}
        shown = {inner: outer for outer, inner in reversed(self.columns)}
        columns = [Column(outer, types[inner]) for outer, inner in self.columns]
        taken = set(self.visible)
        for part in self.node.key:
            if part.name not in shown:
                name = part.name
                while name in taken:  # an alias may be called as a hidden column is
                    name = f"#{name}"
                taken.add(name)
                shown[part.name] = name
                columns.append(Column(name, types[part.name]))
        return Schema(tuple(columns), tuple(shown[part.name] for part in self.node.key))

    @property
    def visible(self) -> tuple[str, ...]:
        return tuple(outer for outer, _ in self.columns)
