"""What names mean inside a query: the columns of its one relation.

A scope holds a plan node and, for each visible column, the expression over that node which gives
it. A derived table or a view is thereby inlined: its expressions take the place of its columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import UnknownName
from viewkeep.expr import Expr, Ref
from viewkeep.plan.nodes import Node, Source, View

Resolve: TypeAlias = Callable[[str], Source | View | None]


@dataclass(frozen=True)
class Scope:
    """The columns that a query may name, and the plan node that they stand on."""

    node: Node
    columns: Mapping[str, Expr]
    alias: str

    def column(self, tree: exp.Column) -> Expr:
        """The meaning of a column, qualified or not."""
        table, name = tree.table.lower(), tree.name.lower()
        if table and table != self.alias:
            raise UnknownName(
                f"there is no table {table} in this query",
                fragment=tree.sql("spark"),
                hint=f"Its table is called {self.alias}",
            )
        if name not in self.columns:
            near = difflib.get_close_matches(name, self.columns, 1)
            known = ", ".join(self.columns)
            hint = f"Did you mean {near[0]}?" if near else f"The columns are {known}"
            raise UnknownName(f"there is no column {name} in {self.alias}", hint=hint)
        return self.columns[name]


def scope_of(relation: Source | View, alias: str) -> Scope:
    """The scope of a table or view; a view stands for the plan below its own table."""
    if isinstance(relation, Source):
        columns = {column.name: Ref(column.name, column.type) for column in relation.columns}
        return Scope(relation, columns, alias)
    types = {column.name: column.type for column in relation.node.columns}
    shown = {outer: Ref(inner, types[inner]) for outer, inner in relation.columns}
    return Scope(relation.node.input, shown, alias)


def find(name: str, resolve: Resolve, known: Mapping[str, Scope], alias: str) -> Scope:
    """The scope of a named relation: a CTE, else a table or view of the catalog."""
    if name in known:
        return Scope(known[name].node, known[name].columns, alias)
    relation = resolve(name)
    if relation is None:
        raise UnknownName(
            f"there is no table or view {name}",
            hint="SHOW TABLES and SHOW VIEWS list what there is",
        )
    return scope_of(relation, alias)
