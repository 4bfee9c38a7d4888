"""INSERT, UPDATE and DELETE: values of the columns' types, or refused.

Law: a write changes no value silently. A constant must be a value of its column; an expression must
have a type whose values the column holds as they are.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from viewkeep.errors import TypeMismatch, UnknownName, Unsupported
from viewkeep.expr import Expr, Lit, Ref, Scalar
from viewkeep.ops.functions import cast_to
from viewkeep.plan.nodes import KeyPart, Source
from viewkeep.sql.expressions.scalars import lower, predicate
from viewkeep.sql.expressions.stored_values import assignable, stored_value
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import with_columns
from viewkeep.sql.relations.scope import Resolve, Scope, scope_of
from viewkeep.sql.select.query import lower_query
from viewkeep.sql.statements.definitions import name_of
from viewkeep.sql.statements.nodes import Delete, Insert, Query, Update
from viewkeep.types import Column


def insert(tree: exp.Insert, resolve: Resolve) -> Insert:
    """INSERT [OR REPLACE] INTO, with VALUES or a SELECT."""
    alternative = str(tree.args.get("alternative") or "").upper()
    if alternative not in ("", "REPLACE"):
        raise Unsupported(f"INSERT OR {alternative} is not taken", fragment=text_of(tree))
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if isinstance(target, exp.Table) and target.alias:
        raise Unsupported("INSERT INTO takes a table without an alias", fragment=text_of(target))
    source = _table(name_of(tree.this), resolve)
    columns = source.schema.names
    if isinstance(tree.this, exp.Schema):
        columns = tuple(column.name.lower() for column in tree.this.expressions)
        for name in columns:
            if name not in source.schema:
                raise UnknownName(
                    f"{source.table} has no column {name}",
                    hint=f"Its columns are {', '.join(source.schema.names)}",
                )
        if len(set(columns)) != len(columns):
            raise Unsupported("a column is named twice", fragment=text_of(tree.this))
    taken = [source.schema[name] for name in columns]
    given = tree.args.get("expression")
    if isinstance(given, exp.Values):
        rows = tuple(_row(row, taken) for row in given.expressions)
        return Insert(source.table, columns, rows, replace=alternative == "REPLACE")
    if isinstance(given, exp.Query):
        query = _typed_query(lower_query(given, resolve), taken, text_of(given))
        return Insert(source.table, columns, query=query, replace=alternative == "REPLACE")
    raise Unsupported("INSERT takes VALUES or a SELECT", fragment=text_of(tree))


def update(tree: exp.Update, resolve: Resolve) -> Update:
    """UPDATE of the rows that match."""
    source, scope = _target(tree.this, resolve)
    assignments: dict[str, Expr] = {}
    for part in tree.expressions:
        if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
            raise Unsupported("SET takes column = value", fragment=text_of(part))
        target = scope.column(part.this)
        assert isinstance(target, Ref)
        if target.name in assignments:
            raise Unsupported(f"{target.name} is set twice", fragment=text_of(part))
        value = lower(part.expression, scope.leaf)
        column = source.schema[target.name]
        if isinstance(value, Lit):
            value = Lit(stored_value(value, column, text_of(part.expression)), column.type)
        assignments[target.name] = _assigned(value, column, text_of(part))
    return Update(source.table, tuple(assignments.items()), _where(tree, scope))


def delete(tree: exp.Delete, resolve: Resolve) -> Delete:
    """DELETE of the rows that match."""
    source, scope = _target(tree.this, resolve)
    return Delete(source.table, _where(tree, scope))


def _target(tree: exp.Expr, resolve: Resolve) -> tuple[Source, Scope]:
    source = _table(name_of(tree), resolve)
    alias = tree.args.get("alias")
    if alias is not None and alias.columns:
        raise Unsupported("columns keep their names here", fragment=text_of(tree))
    return source, scope_of(source, (tree.alias or source.table).lower())


def _row(tree: exp.Expr, columns: list[Column]) -> tuple[Scalar, ...]:
    values = tree.expressions if isinstance(tree, exp.Tuple) else [tree]
    if len(values) != len(columns):
        raise Unsupported(
            f"{len(columns)} columns but {len(values)} values", fragment=text_of(tree)
        )
    return tuple(
        stored_value(lower(value, _no_columns), column, text_of(value))
        for column, value in zip(columns, values, strict=True)
    )


def _typed_query(query: Query, columns: list[Column], text: str) -> Query:
    """The query with its columns in the types of the columns that they fill."""
    if len(query.columns) != len(columns):
        raise Unsupported(
            f"{len(columns)} columns are to be filled by {len(query.columns)}", fragment=text
        )
    types = {column.name: column.type for column in query.node.columns}
    pairs = zip(query.columns, columns, strict=True)
    cast = [_assigned(Ref(inner, types[inner]), column, text) for (_, inner), column in pairs]
    order = [Ref(part.name, types[part.name]) for part in query.order]
    node, names = with_columns(query.node, [*cast, *order])
    return replace(
        query,
        node=node,
        columns=tuple(
            (outer, names[expr]) for (outer, _), expr in zip(query.columns, cast, strict=True)
        ),
        order=tuple(KeyPart(part.name, part.descending) for part in query.order),
    )


def _assigned(value: Expr, column: Column, text: str) -> Expr:
    if not assignable(value.type, column.type):
        raise TypeMismatch(
            f"column {column.name} is {column.type} and the value {value.type}, "
            "which it may not hold as it is",
            fragment=text,
            hint=f"Write CAST(... AS {column.type})",
        )
    return cast_to(value, column.type)


def _where(tree: exp.Expr, scope: Scope) -> Expr | None:
    where = tree.args.get("where")
    return None if where is None else predicate(where.this, scope.leaf)


def _no_columns(tree: exp.Expr) -> Expr | None:
    if isinstance(tree, exp.Column):
        raise UnknownName(
            "VALUES takes constants", fragment=text_of(tree), hint="Quote text as 'text'"
        )
    return None


def _table(name: str, resolve: Resolve) -> Source:
    found = resolve(name)
    if isinstance(found, Source):
        return found
    if found is None:
        raise UnknownName(f"there is no table {name}", hint="SHOW TABLES lists what there is")
    raise Unsupported(
        f"{name} is a view, and views are not written",
        hint="Write to the tables that it reads; the pipeline brings the change here",
    )
