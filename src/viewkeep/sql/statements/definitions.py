"""CREATE and DROP of tables, views and indexes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Ref
from viewkeep.plan.connect import connect, root
from viewkeep.plan.nodes import Arrange, KeyPart, Node, Source, View
from viewkeep.plan.partial import restricted, wanted_keys
from viewkeep.plan.passes import optimise
from viewkeep.plan.share_groups import NOTHING, Existing, share_groups
from viewkeep.sql.parse.hints import aggregate_first
from viewkeep.sql.parse.syntax import parse, text_of
from viewkeep.sql.relations.scope import Resolve, find, refuse_duplicates
from viewkeep.sql.select.order_by import top
from viewkeep.sql.select.query import lower_query, lower_select
from viewkeep.sql.spark_sql.view_text import index_text, view_text
from viewkeep.sql.statements.create_table import options_of, schema_of
from viewkeep.sql.statements.nodes import (
    CreateTable,
    CreateView,
    DropTable,
    DropView,
    Query,
    Statement,
)
from viewkeep.sql.statements.partial_views import partial_of, shown_as, take_parameters


def create(tree: exp.Create, resolve: Resolve, existing: Existing = NOTHING) -> Statement:
    """CREATE TABLE, VIEW or INDEX. `existing` is what is kept already."""
    kind = str(tree.args.get("kind") or "").upper()
    exists, replace = bool(tree.args.get("exists")), bool(tree.args.get("replace"))
    if exists and replace:
        raise Unsupported("OR REPLACE and IF NOT EXISTS contradict each other")
    if kind == "INDEX":
        if replace:
            raise Unsupported("CREATE OR REPLACE INDEX is not taken", hint="DROP INDEX first")
        index = _index(tree.this, resolve)
        return CreateView(dataclasses.replace(index, statement=statement_text(tree)), exists)
    options = options_of(tree) if kind == "TABLE" else ()
    for part in tree.args.get("properties") or ():
        if kind != "VIEW" and not isinstance(part, exp.MaterializedProperty) and not options:
            raise Unsupported("this property is not supported", fragment=text_of(part))
    if kind == "TABLE":
        if tree.args.get("expression") is not None or replace:
            raise Unsupported(
                "CREATE TABLE takes columns and a primary key",
                fragment=text_of(tree),
                hint="Create the table, then INSERT INTO it",
            )
        schema, defaults = schema_of(tree)
        return CreateTable(name_of(tree.this), schema, exists, options, defaults)
    if kind == "VIEW" and tree.args.get("expression") is not None:
        statement = statement_text(tree)
        view = dataclasses.replace(_view(tree, resolve, existing), statement=statement)
        return CreateView(view, exists, replace)
    raise Unsupported(f"CREATE {kind} is not taken", fragment=text_of(tree))


def make_view(
    name: str,
    sql: str,
    query: Query,
    reads: Iterable[str],
    shown: tuple[str, ...] = (),
    existing: Existing = NOTHING,
    aggregate_first: bool | None = None,
    partial: Sequence[str] | None = None,
) -> View:
    """The view that keeps a query: its rows under the query's order, then the row key.

    `reads` are the tables and views that its SQL names; joins and Aggregates go towards those
    `existing`, and `aggregate_first` is what a hint says. A `partial` view is so by these of its
    visible columns, or by the first of its key.
    """
    query = top(query)
    columns = query.columns
    wanted = {inner for _, inner in columns} | {part.name for part in query.order}
    below = optimise(query.node, wanted, existing.joins, aggregate_first)
    if shown:
        columns = tuple((outer, inner) for outer, (_, inner) in zip(shown, columns, strict=True))
    inner = [inner for _, inner in columns]
    node, keys = keyed(below, query.order, inner), None
    if partial is not None:
        by = _partial_by(node, columns, partial)
        keys = wanted_keys(name, below, by)
        below = restricted(below, keys, tuple(by.values()), wanted)
        node = keyed(below, [*map(KeyPart, by.values()), *query.order], inner)
    view = View(name, sql, node, columns, tuple(dict.fromkeys(reads)), wanted=keys)
    view = dataclasses.replace(view, node=share_groups(node, existing, root(view)))
    connect([root(view)])  # what has too many branches is refused before anything is stored
    return view


def keyed(node: Node, order: Sequence[KeyPart], shown: Sequence[str]) -> Arrange:
    """The rows of a view under their order, then the row key, each column once.

    The columns that are shown have an order of their own: who lists them otherwise shares the rows.
    """
    first = {part.name: part for part in reversed(order)}
    parts = [first[part.name] for part in order]
    parts += [KeyPart(name) for name in node.row_key if name not in first]
    return Arrange(node, tuple(dict.fromkeys(parts)), tuple(sorted(set(shown))))


def _partial_by(
    node: Arrange, columns: Sequence[tuple[str, str]], named: Sequence[str]
) -> dict[str, str]:
    """The columns by which a view is partial, and what its node calls them."""
    shown = dict(columns)
    if missing := [name for name in named if name not in shown]:
        raise Unsupported(f"the view has no column {missing[0]}, by which it is to be partial")
    refuse_duplicates([shown[name] for name in named])
    if named:
        return {name: shown[name] for name in named}
    if not node.key:
        raise Unsupported("a view of one row has no key by which it could be partial")
    first = node.key[0].name
    for name, inner in columns:
        if inner == first:
            return {name: inner}
    raise Unsupported(
        "the view does not show the first column of its key, by which it is to be partial",
        fragment=first,
        hint="Add it to SELECT, or name other columns: WITH (partial = 'a, b')",
    )


def drop(tree: exp.Drop) -> Statement:
    """DROP TABLE, VIEW or INDEX."""
    kind, exists = str(tree.args.get("kind")).upper(), bool(tree.args.get("exists"))
    targets = tree.args.get("tables") or [tree.this]
    if tree.args.get("cascade"):
        hint = "Drop the views on it first"
        raise Unsupported("DROP ... CASCADE is not taken", fragment=text_of(tree), hint=hint)
    if len(targets) != 1:
        raise Unsupported("DROP takes one name", fragment=text_of(tree))
    name = name_of(targets[0])
    if kind == "TABLE":
        return DropTable(name, exists)
    if kind in ("VIEW", "INDEX"):
        return DropView(name, exists)
    raise Unsupported(f"DROP {kind} is not taken", fragment=text_of(tree))


def name_of(tree: exp.Expr) -> str:
    """The name of the table or view that a statement is about."""
    table = tree.this if isinstance(tree, exp.Schema) else tree
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise Unsupported("the name of a table or view is needed here", fragment=text_of(tree))
    return table.name.lower()


def statement_text(tree: exp.Create) -> str:
    """A CREATE statement without OR REPLACE and IF NOT EXISTS."""
    bare = tree.copy()
    bare.set("exists", False)
    bare.set("replace", False)
    for place in list(bare.find_all(exp.Placeholder)):
        place.replace(exp.Placeholder())
    return text_of(bare)


def _view(tree: exp.Create, resolve: Resolve, existing: Existing) -> View:
    name, inner = name_of(tree.this), tree.args["expression"]
    common = {cte.alias.lower() for cte in inner.find_all(exp.CTE)}
    reads: list[str] = []

    def guarded(relation: str) -> Source | View | None:
        if relation == name:
            raise Unsupported(f"view {name} cannot read itself", hint="Give it another name")
        if relation in common:
            raise Unsupported(
                f"a CTE is called {relation}, like a relation that the view reads",
                hint="Give the CTE another name",
            )
        reads.append(relation)
        found = resolve(relation)
        if isinstance(found, View) and found.wanted is not None:
            raise Unsupported(
                f"{relation} is partial, so a view over it would need keys that nobody has read",
                hint="Write the view over the tables that it reads",
            )
        return found

    partial = partial_of(tree)
    parameters = take_parameters(inner)
    lowered = lower_select(inner, guarded)
    shown = tuple(_shown(column) for column in _listed(tree.this))
    if shown and len(shown) != len(lowered.items):
        raise Unsupported(f"{name} names {len(shown)} columns but selects {len(lowered.items)}")
    refuse_duplicates(shown)
    text = view_text(inner, lowered.items, shown)
    hint = aggregate_first(inner)
    if parameters:
        names = (shown_as(column, lowered.items, shown) for column in parameters)
        partial = tuple(dict.fromkeys(names))
    return make_view(name, text, lowered.finish(), reads, shown, existing, hint, partial)


def _listed(tree: exp.Expr) -> list[exp.Expr]:
    return tree.expressions if isinstance(tree, exp.Schema) else []


def _shown(column: exp.Expr) -> str:
    if isinstance(column, exp.ColumnDef) and (
        column.args.get("kind") is not None or column.args.get("constraints")
    ):
        raise Unsupported("a view's columns have names only", fragment=text_of(column))
    return column.name.lower()


def _index(tree: exp.Expr, resolve: Resolve) -> View:
    """CREATE INDEX: a view of the indexed columns, the row key and the included columns."""
    if not tree.name:
        raise Unsupported("an index needs a name", fragment=text_of(tree))
    name, table, params = tree.name.lower(), name_of(tree.args["table"]), tree.args["params"]
    order = [_index_part(part) for part in params.args.get("columns") or ()]
    if not order:
        raise Unsupported("an index is over columns", hint="Write CREATE INDEX name ON table (a)")
    refuse_duplicates([column for column, _ in order])
    scope = find(table, resolve, {})
    included = [column.name.lower() for column in params.args.get("include") or ()]
    for column in [*(column for column, _ in order), *included]:
        scope.column(exp.column(exp.to_identifier(column, quoted=True)))
    keyed = [
        outer
        for key in scope.node.row_key
        for outer, expr in scope.columns.items()
        if isinstance(expr, Ref) and expr.name == key
    ]
    names = dict.fromkeys([column for column, _ in order] + keyed + included)
    sql = index_text(table, list(names), order)
    return make_view(name, sql, lower_query(parse(sql)[0], resolve), [table])


def _index_part(part: exp.Expr) -> tuple[str, bool]:
    ordered = part if isinstance(part, exp.Ordered) else exp.Ordered(this=part, nulls_first=True)
    column, descending = ordered.this, bool(ordered.args.get("desc"))
    if not isinstance(column, exp.Column):
        raise Unsupported(
            "an index is over columns",
            fragment=text_of(part),
            hint="For an expression, create a view with ORDER BY",
        )
    if bool(ordered.args.get("nulls_first")) == descending:
        raise Unsupported("NULLS FIRST and LAST are fixed by the direction", fragment=text_of(part))
    return column.name.lower(), descending
