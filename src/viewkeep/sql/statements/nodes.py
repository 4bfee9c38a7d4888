"""Statements after analysis: names resolved, types known, everything unsupported refused.

A statement is a value that says what to do; running it is the business of the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from viewkeep.expr import Expr, Scalar
from viewkeep.plan.alterations import Alteration, DropColumn
from viewkeep.plan.nodes import KeyPart, Node, View
from viewkeep.types import Schema


@dataclass(frozen=True)
class Query:
    """A SELECT: the plan that gives its rows, what its columns are called, order and limit.

    `columns` pairs each visible name with a column of `node`; `order` names columns of `node`.
    """

    node: Node
    columns: tuple[tuple[str, str], ...]
    order: tuple[KeyPart, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class CreateTable:
    name: str
    schema: Schema
    if_not_exists: bool = False
    options: tuple[tuple[str, str], ...] = ()  # with USING as `using`
    defaults: tuple[tuple[str, Scalar], ...] = ()


@dataclass(frozen=True)
class AlterTable:
    """Changes of a table, one after another, all or none."""

    name: str
    alterations: tuple[Alteration, ...]

    @property
    def drops_columns(self) -> bool:
        return any(isinstance(one, DropColumn) for one in self.alterations)

    @property
    def cascades(self) -> bool:
        """Whether views that cannot go on are dropped."""
        return any(isinstance(one, DropColumn) and one.cascade for one in self.alterations)


@dataclass(frozen=True)
class DropTable:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW, CREATE MATERIALIZED VIEW (the same here) and CREATE INDEX."""

    view: View
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True)
class DropView:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Insert:
    """Rows for a table: constants of the columns' types, or the rows of a query.

    `columns` are the table's columns that get a value, in the order of the values. With `replace`,
    rows whose key exists are replaced; otherwise they are refused.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...] = ()
    query: Query | None = None
    replace: bool = False


@dataclass(frozen=True)
class Update:
    table: str
    assignments: tuple[tuple[str, Expr], ...]
    predicate: Expr | None = None


@dataclass(frozen=True)
class Delete:
    table: str
    predicate: Expr | None = None


@dataclass(frozen=True)
class Select:
    query: Query


@dataclass(frozen=True)
class Explain:
    statement: Statement


@dataclass(frozen=True)
class ShowTables:
    """SHOW TABLES or SHOW VIEWS."""

    views: bool = False


@dataclass(frozen=True)
class ShowCreate:
    """SHOW CREATE TABLE or SHOW CREATE VIEW."""

    name: str


@dataclass(frozen=True)
class Describe:
    name: str


Statement: TypeAlias = (
    CreateTable
    | AlterTable
    | DropTable
    | CreateView
    | DropView
    | Insert
    | Update
    | Delete
    | Select
    | Explain
    | ShowTables
    | ShowCreate
    | Describe
)
