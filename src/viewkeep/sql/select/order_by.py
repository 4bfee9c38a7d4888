"""ORDER BY and LIMIT: expressions with a direction, resolved against the select list first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Lit
from viewkeep.plan.nodes import KeyPart, TopK
from viewkeep.sql.expressions.constants import position
from viewkeep.sql.expressions.scalars import Leaf, lower
from viewkeep.sql.grouping.aggregates import is_aggregate
from viewkeep.sql.grouping.group_by import Item, Rewrite, blamed, item_at
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.statements.nodes import Query

ALL_ROWS = 1 << 62  # a count that no table reaches
_MOST_DIGITS = 18  # of a count below that

Order: TypeAlias = tuple[tuple[Expr, bool], ...]
"""Expressions and whether they descend."""

Spelt: TypeAlias = Callable[[Expr], exp.Expr | None]
"""How a column of a node is written in the query; None if it has no name there."""


def order_of(tree: exp.Expr, items: Sequence[Item], rows: Leaf) -> list[tuple[exp.Expr, Expr]]:
    """The expressions of ORDER BY over what the select list is made of, with their syntax."""
    order = tree.args.get("order")
    found = []
    for part in order.expressions if order is not None else ():
        check_nulls(part)
        if isinstance(part.this, exp.Var):
            raise Unsupported("ORDER BY ALL is not taken", hint="Name the columns")
        found.append((part, _meaning(part.this, items, rows)))
    return found


def check_nulls(part: exp.Expr) -> None:
    """Refuse another place for NULLs than first going up and last going down, as in Spark."""
    if bool(part.args.get("nulls_first")) == bool(part.args.get("desc")):
        raise Unsupported("NULLS FIRST and LAST are fixed by the direction", fragment=text_of(part))


def directed(found: Sequence[tuple[exp.Expr, Expr]], rewrite: Rewrite) -> Order:
    """The order with its directions; constants order nothing, and the first mention counts."""
    made: dict[Expr, bool] = {}
    for part, expr in found:
        over = blamed(text_of(part), expr, rewrite)
        if not isinstance(over, Lit):
            made.setdefault(over, bool(part.args.get("desc")))
    return tuple(made.items())


def count_of(tree: exp.Expr, name: str) -> int | None:
    """The number of LIMIT or OFFSET."""
    part = tree.args.get(name)
    if part is None:
        return None
    value = part.expression if isinstance(part, exp.Limit | exp.Offset) else None
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise Unsupported(f"{name.upper()} takes a number", fragment=text_of(part))
    return int(value.name) if len(value.name) <= _MOST_DIGITS else ALL_ROWS


def top(query: Query, fragment: str | None = None) -> Query:
    """A query whose limit is part of its plan, so that its first rows can be kept."""
    if query.limit is None and not query.offset:
        return query
    if not query.order:
        raise Unsupported(
            "LIMIT without ORDER BY takes any rows",
            fragment=fragment,
            hint="Say with ORDER BY which rows come first",
        )
    # Which of the rows that the order does not tell apart are first is decided by their row key.
    known = {part.name for part in query.order}
    order = query.order + tuple(KeyPart(n) for n in query.node.row_key if n not in known)
    node = TopK(query.node, (), order, query.limit, query.offset)
    return Query(node, query.columns, query.order)


def ordered_also(written: exp.Order | None, added: Order, spelt: Spelt) -> exp.Order | None:
    """An ORDER BY with more at its end; as it is, if any of that cannot be written."""
    parts = []
    for expr, descending in added:
        tree = spelt(expr)
        if tree is None:
            return written
        parts.append(exp.Ordered(this=tree, desc=descending or None, nulls_first=not descending))
    return exp.Order(expressions=[*(written.expressions if written else ()), *parts])


def _meaning(tree: exp.Expr, items: Sequence[Item], rows: Leaf) -> Expr:
    place = position(tree)
    if place is not None:
        item_at("ORDER BY", place, [(item.name, item.tree) for item in items])
        return items[place - 1].expr
    named = {item.name: item.expr for item in items}

    def leaf(inner: exp.Expr) -> Expr | None:
        if isinstance(inner, exp.Column) and not inner.table:
            found = named.get(inner.name.lower())
            if found is not None:
                return found
        if is_aggregate(inner):
            _refuse_hidden(inner, named, rows)
        return rows(inner)

    return lower(tree, leaf)


def _refuse_hidden(tree: exp.Expr, named: dict[str, Expr], rows: Leaf) -> None:
    """Refuse an aggregate of a name that is both a column and another item of SELECT."""
    for column in tree.find_all(exp.Column):
        found = named.get(column.name.lower())
        if found is not None and not column.table and found != rows(column):
            raise Unsupported(
                f"{column.name} is a column and an item of SELECT",
                fragment=text_of(tree),
                hint="Give the item another alias, or order by the item",
            )
