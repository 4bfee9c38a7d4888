"""What names mean inside a query: the columns of its relations, then those of the query around it.

A scope holds a plan node and, for each relation of FROM and each column of it, the expression over
that node which gives it. A derived table or a view is thereby inlined: its expressions take the
place of its columns. A name that no relation has is looked for in the outer query's scope.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import UnknownName, Unsupported
from viewkeep.expr import Expr, Ref
from viewkeep.plan.nodes import Node, Source, View
from viewkeep.sql.expressions.outer_references import outward
from viewkeep.sql.parse.syntax import text_of

Resolve: TypeAlias = Callable[[str], Source | View | None]


@dataclass(frozen=True)
class Relation:
    """A relation of FROM: what it is called there, and its columns."""

    alias: str
    columns: Mapping[str, Expr]


@dataclass(frozen=True)
class Shown:
    """A column that * stands for. `alias` is empty for one that USING made of two."""

    name: str
    alias: str
    expr: Expr


@dataclass(frozen=True)
class Scope:
    """The columns that a query may name, and the plan node that they stand on.

    `shown` is what * stands for. `outer` is the scope of the query around this one; `inner` gives
    the meaning of a subquery in an expression.
    """

    node: Node
    relations: tuple[Relation, ...]
    shown: tuple[Shown, ...]
    outer: Scope | None = None
    inner: Callable[[exp.Expr], Expr | None] | None = None

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of a column or a subquery; None for any other syntax."""
        if isinstance(tree, exp.Column):
            return self.column(tree)
        return self.inner(tree) if self.inner is not None else None

    def column(self, tree: exp.Column) -> Expr:
        """The meaning of a column, qualified or not."""
        found = self._own(tree)
        if found is not None:
            return found
        if self.outer is not None and self.outer.sees(tree):
            return outward(self.outer.column(tree))
        self.check_table(tree)
        name, table = tree.name.lower(), tree.table.lower()
        known = [s.name for s in self.shown if table in ("", s.alias)]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"Did you mean {near[0]}?" if near else f"The columns are {', '.join(known)}"
        called = table or ", ".join(r.alias for r in self.relations if r.alias)
        where = f" in {called}" if called else ""
        raise UnknownName(f"there is no column {name}{where}", fragment=name, hint=hint)

    def check_table(self, tree: exp.Column) -> None:
        """Refuse a column, or a star, of a table that this query does not read."""
        table = tree.table.lower()
        names = [relation.alias for relation in self.relations]
        if table and table not in names:
            called = f"called {', '.join(names)}" if any(names) else "without a name"
            raise UnknownName(
                f"there is no table {table} in this query",
                fragment=text_of(tree),
                hint=f"Its table is {called}" if len(names) < 2 else f"Its tables are {called}",
            )

    def has(self, tree: exp.Expr) -> bool:
        """Whether a syntax tree is a column of these relations."""
        if not isinstance(tree, exp.Column):
            return False
        name, table = tree.name.lower(), tree.table.lower()
        if not table:
            return any(s.name == name for s in self.shown)
        return any(r.alias == table and name in r.columns for r in self.relations)

    def sees(self, tree: exp.Column) -> bool:
        """Whether a column is one of these relations or of a query around."""
        return self.has(tree) or (self.outer is not None and self.outer.sees(tree))

    def star(self, alias: str = "") -> Iterable[Shown]:
        """The columns that * or alias.* stands for, in order."""
        if not alias:
            return self.shown
        return [
            Shown(name, alias, expr)
            for relation in self.relations
            if relation.alias == alias
            for name, expr in relation.columns.items()
        ]

    @cached_property
    def columns(self) -> Mapping[str, Expr]:
        """The columns by their names alone; of several with one name, the first."""
        return {s.name: s.expr for s in reversed(self.shown)}

    def renamed(self, alias: str, names: Sequence[str] = ()) -> Scope:
        """The columns as one relation of another name and, if given, with other column names."""
        columns = {s.name: s.expr for s in self.shown}
        if names:
            if len(names) != len(columns):
                raise Unsupported(f"{alias} names {len(names)} columns but has {len(columns)}")
            refuse_duplicates(names)
            columns = dict(zip(names, columns.values(), strict=True))
        return relation_scope(self.node, columns, alias)

    def inside(self, outer: Scope | None) -> Scope:
        """The same scope in a query that stands inside another one."""
        return replace(self, outer=outer)

    def _own(self, tree: exp.Column) -> Expr | None:
        name, table = tree.name.lower(), tree.table.lower()
        if table:
            for relation in self.relations:
                if relation.alias == table:
                    return relation.columns.get(name)
            return None
        found = [s for s in self.shown if s.name == name]
        if len(found) > 1:
            choices = [f"{s.alias}.{name}" for s in found]
            raise UnknownName(
                f"{name} may be {' or '.join(choices)}",
                fragment=text_of(tree),
                hint="Write the table in front of the column",
            )
        return found[0].expr if found else None


def relation_scope(node: Node, columns: Mapping[str, Expr], alias: str) -> Scope:
    """The scope of a query over one relation."""
    shown = tuple(Shown(name, alias, expr) for name, expr in columns.items())
    return Scope(node, (Relation(alias, columns),), shown)


def scope_of(relation: Source | View, alias: str) -> Scope:
    """The scope of a table or view; a view stands for the plan below its own table."""
    if isinstance(relation, Source):
        columns = {column.name: Ref(column.name, column.type) for column in relation.columns}
        return relation_scope(relation, columns, alias)
    types = {column.name: column.type for column in relation.node.columns}
    shown = {outer: Ref(inner, types[inner]) for outer, inner in relation.columns}
    return relation_scope(relation.node.input, shown, alias)


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
