"""What names mean inside a query: the columns of its one relation.

A scope holds a plan node and, for each visible column, the expression over that node which gives
it. A derived table or a view is thereby inlined: its expressions take the place of its columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import UnknownName, Unsupported
from viewkeep.expr import Expr, Ref
from viewkeep.plan.nodes import Node, Source, View
from viewkeep.sql.parse import text_of

Resolve: TypeAlias = Callable[[str], Source | View | None]


@dataclass(frozen=True)
class Scope:
    """The columns that a query may name, and the plan node that they stand on."""

    node: Node
    columns: Mapping[str, Expr]
    alias: str

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of a column; None for any other syntax."""
        return self.column(tree) if isinstance(tree, exp.Column) else None

    def column(self, tree: exp.Column) -> Expr:
        """The meaning of a column, qualified or not."""
        self.check_table(tree)
        name = tree.name.lower()
        if name not in self.columns:
            near = difflib.get_close_matches(name, self.columns, 1)
            known = ", ".join(self.columns)
            hint = f"Did you mean {near[0]}?" if near else f"The columns are {known}"
            where = f" in {self.alias}" if self.alias else ""
            raise UnknownName(f"there is no column {name}{where}", fragment=name, hint=hint)
        return self.columns[name]

    def check_table(self, tree: exp.Column) -> None:
        """Refuse a column, or a star, of another table than this query's."""
        table = tree.table.lower()
        if table and table != self.alias:
            called = f"called {self.alias}" if self.alias else "without a name"
            raise UnknownName(
                f"there is no table {table} in this query",
                fragment=text_of(tree),
                hint=f"Its table is {called}",
            )

    def has(self, tree: exp.Expr) -> bool:
        """Whether a syntax tree is a column of this relation."""
        if not isinstance(tree, exp.Column) or tree.name.lower() not in self.columns:
            return False
        return tree.table.lower() in ("", self.alias)

    def renamed(self, alias: str, names: Sequence[str] = ()) -> Scope:
        """The same columns under another table name and, if given, other column names."""
        if not names:
            return Scope(self.node, self.columns, alias)
        if len(names) != len(self.columns):
            raise Unsupported(f"{alias} names {len(names)} columns but has {len(self.columns)}")
        refuse_duplicates(names)
        columns = dict(zip(names, self.columns.values(), strict=True))
        return Scope(self.node, columns, alias)


def scope_of(relation: Source | View, alias: str) -> Scope:
    """The scope of a table or view; a view stands for the plan below its own table."""
    if isinstance(relation, Source):
        columns = {column.name: Ref(column.name, column.type) for column in relation.columns}
        return Scope(relation, columns, alias)
    types = {column.name: column.type for column in relation.node.columns}
    shown = {outer: Ref(inner, types[inner]) for outer, inner in relation.columns}
    return Scope(relation.node.input, shown, alias)


def find(name: str, resolve: Resolve, known: Mapping[str, Scope]) -> Scope:
    """The scope of a named relation: a CTE, else a table or view of the catalog."""
    if name in known:
        return known[name]
    relation = resolve(name)
    if relation is None:
        raise UnknownName(
            f"there is no table or view {name}",
            hint="SHOW TABLES and SHOW VIEWS list what there is",
        )
    return scope_of(relation, name)


def refuse_duplicates(names: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    for name in names:
        if names.count(name) > 1:
            raise Unsupported(f"two columns are called {name}", hint="Give one an alias with AS")
