"""Statements: syntax trees to values of `sql.statements`, resolved, typed, or refused.

Law: every part of a statement is either understood or refused with its text, the reason and what
would work. Names are case-insensitive and kept in lower case.
"""

from __future__ import annotations

import re

from sqlglot import exp

from viewkeep.errors import SqlSyntaxError, TypeMismatch, UnknownName, Unsupported
from viewkeep.expr import Expr, Lit, Ref, Scalar
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.plan.nodes import Arrange, KeyPart, Source, View
from viewkeep.sql.expressions import Leaf, lower, predicate
from viewkeep.sql.parse import parse, text_of
from viewkeep.sql.queries import lower_query
from viewkeep.sql.scope import Resolve, Scope, scope_of
from viewkeep.sql.statements import (
    CreateTable,
    CreateView,
    Delete,
    Describe,
    DropTable,
    DropView,
    Explain,
    Insert,
    Query,
    Select,
    ShowTables,
    Statement,
    Update,
)
from viewkeep.sql.tables import schema_of
from viewkeep.sql.values import stored_value


def analyse(tree: exp.Expr, resolve: Resolve) -> Statement:
    """The statement that a syntax tree stands for; `resolve` knows the tables and views."""
    if isinstance(tree, exp.Query):
        return Select(lower_query(tree, resolve))
    if isinstance(tree, exp.Create):
        return _create(tree, resolve)
    if isinstance(tree, exp.Drop):
        return _drop(tree)
    if isinstance(tree, exp.Insert):
        return _insert(tree, resolve)
    if isinstance(tree, exp.Update):
        return _update(tree, resolve)
    if isinstance(tree, exp.Delete):
        return _delete(tree, resolve)
    if isinstance(tree, exp.Describe):
        return Describe(tree.this.name.lower())
    if isinstance(tree, exp.Command):
        return _command(tree, resolve)
    raise Unsupported(f"{type(tree).__name__} statements are not taken", fragment=text_of(tree))


def make_view(name: str, sql: str, query: Query, shown: tuple[str, ...] = ()) -> View:
    """The view that keeps a query: its rows under the query's order, then the row key."""
    if query.limit is not None or query.offset:
        raise Unsupported(
            "LIMIT in a view is not taken yet",
            hint="Keep all rows in the order you want with ORDER BY, and read the first with "
            "scan(limit=)",
        )
    columns = query.columns
    if shown:
        if len(shown) != len(columns):
            raise Unsupported(f"{name} names {len(shown)} columns but selects {len(columns)}")
        columns = tuple((outer, inner) for outer, (_, inner) in zip(shown, columns, strict=True))
    key = dict.fromkeys(query.order)
    ordered = {part.name for part in key}
    key |= dict.fromkeys(KeyPart(column) for column in query.node.row_key if column not in ordered)
    kept = tuple(dict.fromkeys(inner for _, inner in columns))
    return View(name, sql, Arrange(query.node, tuple(key), kept), columns)


def _create(tree: exp.Create, resolve: Resolve) -> Statement:
    kind = str(tree.args.get("kind") or "").upper()
    exists = bool(tree.args.get("exists"))
    if kind == "INDEX":
        return CreateView(_index(tree.this, resolve), exists)
    for part in tree.args.get("properties") or ():
        if not isinstance(part, exp.MaterializedProperty):
            raise Unsupported("this property is not taken", fragment=text_of(part))
    if kind == "TABLE":
        if tree.args.get("expression") is not None or tree.args.get("replace"):
            raise Unsupported(
                "CREATE TABLE takes columns and a primary key",
                fragment=text_of(tree),
                hint="Create the table, then INSERT INTO it",
            )
        return CreateTable(_name(tree.this), schema_of(tree), exists)
    if kind == "VIEW" and tree.args.get("expression") is not None:
        inner = tree.args["expression"]
        query = lower_query(inner, resolve)
        columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
        shown = tuple(column.name.lower() for column in columns)
        view = make_view(_name(tree.this), text_of(inner), query, shown)
        return CreateView(view, exists, bool(tree.args.get("replace")))
    raise Unsupported(f"CREATE {kind} is not taken", fragment=text_of(tree))


def _index(tree: exp.Expr, resolve: Resolve) -> View:
    """CREATE INDEX: a view of the indexed columns, the row key and the included columns."""
    name, table = tree.name.lower(), tree.args["table"].name.lower()
    params = tree.args["params"]
    parts = []
    for part in params.args.get("columns") or ():
        ordered = part if isinstance(part, exp.Ordered) else exp.Ordered(this=part)
        if not isinstance(ordered.this, exp.Column):
            raise Unsupported(
                "an index is over columns",
                fragment=text_of(part),
                hint="For an expression, create a view with ORDER BY",
            )
        parts.append((ordered.this.name.lower(), bool(ordered.args.get("desc"))))
    included = [column.name.lower() for column in params.args.get("include") or ()]
    scope = _relation(table, resolve)
    row_key = [key for key in scope.node.row_key if _shown(scope, key)]
    names = dict.fromkeys([column for column, _ in parts] + row_key + included)
    order = ", ".join(column + (" DESC" if descending else "") for column, descending in parts)
    sql = f"SELECT {', '.join(names)} FROM {table} ORDER BY {order}"
    view = make_view(name, sql, lower_query(parse(sql)[0], resolve))
    return View(name, sql.partition(" ORDER BY ")[0], view.node, view.columns)


def _shown(scope: Scope, name: str) -> bool:
    found = scope.columns.get(name)
    return isinstance(found, Ref) and found.name == name


def _relation(name: str, resolve: Resolve) -> Scope:
    relation = resolve(name)
    if relation is None:
        raise UnknownName(f"there is no table or view {name}")
    return scope_of(relation, name)


def _drop(tree: exp.Drop) -> Statement:
    kind, exists = str(tree.args.get("kind")).upper(), bool(tree.args.get("exists"))
    targets = tree.args.get("tables") or [tree.this]
    if len(targets) != 1:
        raise Unsupported("DROP takes one name", fragment=text_of(tree))
    name = targets[0].name.lower()
    for extra in ("cascade", "constraints", "purge"):
        if tree.args.get(extra):
            raise Unsupported(f"DROP ... {extra.upper()} is not taken", fragment=text_of(tree))
    if kind == "TABLE":
        return DropTable(name, exists)
    if kind in ("VIEW", "INDEX"):
        return DropView(name, exists)
    raise Unsupported(f"DROP {kind} is not taken", fragment=text_of(tree))


def _insert(tree: exp.Insert, resolve: Resolve) -> Insert:
    for extra in ("overwrite", "conflict", "returning", "where", "partition", "ignore", "by_name"):
        if tree.args.get(extra):
            raise Unsupported(
                f"INSERT with {extra.upper()} is not taken",
                fragment=text_of(tree),
                hint="INSERT OR REPLACE INTO replaces rows whose key exists",
            )
    alternative = str(tree.args.get("alternative") or "").upper()
    if alternative not in ("", "REPLACE"):
        raise Unsupported(f"INSERT OR {alternative} is not taken", fragment=text_of(tree))
    source = _table(_name(tree.this), resolve)
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
    replace = alternative == "REPLACE"
    given = tree.args.get("expression")
    if isinstance(given, exp.Values):
        rows = tuple(_row(row, columns, source) for row in given.expressions)
        return Insert(source.table, columns, rows, replace=replace)
    if isinstance(given, exp.Query):
        query = lower_query(given, resolve)
        if len(query.columns) != len(columns):
            raise Unsupported(
                f"{len(columns)} columns are to be filled by {len(query.columns)}",
                fragment=text_of(given),
            )
        return Insert(source.table, columns, query=query, replace=replace)
    raise Unsupported("INSERT takes VALUES or a SELECT", fragment=text_of(tree))


def _row(tree: exp.Expr, columns: tuple[str, ...], source: Source) -> tuple[Scalar, ...]:
    values = tree.expressions if isinstance(tree, exp.Tuple) else [tree]
    if len(values) != len(columns):
        raise Unsupported(
            f"{len(columns)} columns but {len(values)} values", fragment=text_of(tree)
        )
    row = []
    for name, value in zip(columns, values, strict=True):
        constant = lower(value, _no_columns)
        row.append(stored_value(constant, source.schema[name], text_of(value)))
    return tuple(row)


def _update(tree: exp.Update, resolve: Resolve) -> Update:
    _only(tree, {"this", "expressions", "where"})
    source = _table(tree.this.name.lower(), resolve)
    scope = scope_of(source, (tree.this.alias or source.table).lower())
    assignments: dict[str, Expr] = {}
    for part in tree.expressions:
        if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
            raise Unsupported("SET takes column = value", fragment=text_of(part))
        target = scope.column(part.this)
        assert isinstance(target, Ref)
        value = lower(part.expression, _columns(scope))
        if isinstance(value, Lit):
            column = source.schema[target.name]
            value = Lit(stored_value(value, column, text_of(part.expression)), target.type)
        elif value.type != target.type and not _assignable(value, target):
            raise TypeMismatch(
                f"column {target.name} is {target.type}, the value {value.type}",
                fragment=text_of(part),
                hint=f"Write CAST(... AS {target.type})",
            )
        assignments[target.name] = cast_to(value, target.type)
    return Update(source.table, tuple(assignments.items()), _where(tree, scope))


def _assignable(value: Expr, target: Expr) -> bool:
    given, wanted = value.type, target.type
    if given == VOID:
        return True
    if given.is_numeric and wanted.is_numeric:
        return True
    return {given.name, wanted.name} == {"DATE", "TIMESTAMP"}


def _delete(tree: exp.Delete, resolve: Resolve) -> Delete:
    _only(tree, {"this", "where"})
    source = _table(tree.this.name.lower(), resolve)
    scope = scope_of(source, (tree.this.alias or source.table).lower())
    return Delete(source.table, _where(tree, scope))


def _where(tree: exp.Expr, scope: Scope) -> Expr | None:
    where = tree.args.get("where")
    return None if where is None else predicate(where.this, _columns(scope))


def _command(tree: exp.Command, resolve: Resolve) -> Statement:
    word = str(tree.this).upper()
    rest = tree.expression.name if isinstance(tree.expression, exp.Expr) else ""
    if word == "EXPLAIN":
        inner = parse(re.sub(r"^\s*(EXTENDED|FORMATTED)\b", "", rest, flags=re.I))
        if len(inner) != 1:
            raise SqlSyntaxError("EXPLAIN takes one statement", fragment=rest)
        return Explain(analyse(inner[0], resolve))
    if word == "SHOW" and rest.strip().upper() in ("TABLES", "VIEWS"):
        return ShowTables(views=rest.strip().upper() == "VIEWS")
    raise Unsupported(
        f"{word} statements are not taken",
        fragment=f"{word} {rest}".strip(),
        hint="docs/sql.md lists the statements that are",
    )


def _columns(scope: Scope) -> Leaf:
    return lambda tree: scope.column(tree) if isinstance(tree, exp.Column) else None


def _no_columns(tree: exp.Expr) -> Expr | None:
    if isinstance(tree, exp.Column):
        raise UnknownName(
            "VALUES takes constants", fragment=text_of(tree), hint="Quote text as 'text'"
        )
    return None


def _only(tree: exp.Expr, taken: set[str]) -> None:
    for name, value in tree.args.items():
        if value and name not in taken:
            raise Unsupported(f"{name.upper()} is not taken here", fragment=text_of(tree))


def _name(tree: exp.Expr) -> str:
    table = tree.this if isinstance(tree, exp.Schema) else tree
    if table.args.get("db") is not None:
        raise Unsupported("names have no schema in front", fragment=text_of(table))
    name: str = table.name.lower()
    return name


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
