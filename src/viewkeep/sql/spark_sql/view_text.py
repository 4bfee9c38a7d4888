"""The text of a view: SQL that Spark runs to the same rows under the same names.

Every item has its name, * is spelt out, and names of relations are in lower case, so that the text
means the same over the base tables whoever runs it. Where SQL leaves a choice, the one made here is
written out.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from viewkeep.sql.grouping.group_by import Item
from viewkeep.sql.parse.hints import without_hints
from viewkeep.sql.parse.syntax import Dialect, text_of
from viewkeep.sql.spark_sql.determined import deterministic
from viewkeep.sql.spark_sql.in_values import three_valued

_KEYWORDS = frozenset(Dialect.Tokenizer.KEYWORDS)


def view_text(tree: exp.Expr, items: Sequence[Item], shown: Sequence[str] = ()) -> str:
    """The query with each item under its name, or under those `shown` instead."""
    tree = without_hints(tree.copy())
    while isinstance(tree, exp.Subquery):
        tree = tree.this
    first = tree
    while not isinstance(first, exp.Select):  # a set operation is called as its first branch is
        first = first.this
    first.set("expressions", [_named(item) for item in items])
    for table in tree.find_all(exp.Table, exp.TableAlias):
        if isinstance(table.this, exp.Identifier):
            table.this.set("this", table.this.name.lower())
    tree = _kept_columns(three_valued(deterministic(tree)))
    if not shown:
        return text_of(tree)
    pairs = zip(items, shown, strict=True)
    outer = [exp.alias_(_column(item.name), _quoted(name)) for item, name in pairs]
    inner = exp.Subquery(this=tree, alias=exp.TableAlias(this=_quoted("named")))
    return text_of(exp.Select(expressions=outer).from_(inner))


def index_text(table: str, names: Sequence[str], order: Sequence[tuple[str, bool]]) -> str:
    """The query that an index is."""
    parts = [
        exp.Ordered(this=_column(name), desc=desc, nulls_first=not desc) for name, desc in order
    ]
    query = exp.Select(expressions=[_column(name) for name in names])
    query = query.from_(exp.Table(this=_quoted(table)))
    query.set("order", exp.Order(expressions=parts))
    return text_of(query)


def _kept_columns(tree: exp.Expr) -> exp.Expr:
    """The query, whose windows in QUALIFY read columns that items of SELECT have the names of.

    Spark has no QUALIFY, so sqlglot writes a subquery, and there puts items in place of columns of
    their names. A window reads the columns, as it does in Spark. Case keeps them: sqlglot tells
    `AMOUNT` from the item `amount`, and Spark does not.
    """
    for clause in tree.find_all(exp.Qualify):
        for window in clause.find_all(exp.Window):
            for column in window.find_all(exp.Column):
                name = "".join(c.upper() if c.isascii() else c for c in column.name)
                column.this.set("this", name)
    return tree


def _named(item: Item) -> exp.Expr:
    tree = item.tree.copy()
    if isinstance(tree, exp.Column) and tree.name == item.name:
        return tree
    return exp.alias_(tree, _quoted(item.name))


def _column(name: str) -> exp.Column:
    return exp.column(_quoted(name))


def _quoted(name: str) -> exp.Identifier:
    plain = name.isidentifier() and name.isascii() and name.upper() not in _KEYWORDS
    return exp.Identifier(this=name, quoted=not plain)
