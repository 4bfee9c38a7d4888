"""ORDER BY and LIMIT: expressions with a direction, resolved against the select list first."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Lit
from viewkeep.sql.aggregates import is_aggregate
from viewkeep.sql.constants import position
from viewkeep.sql.expressions import Leaf, lower
from viewkeep.sql.grouping import Item, Rewrite, blamed, item_at
from viewkeep.sql.parse import text_of

Order = tuple[tuple[Expr, bool], ...]
"""Expressions and whether they descend."""


def order_of(tree: exp.Select, items: Sequence[Item], rows: Leaf) -> list[tuple[exp.Expr, Expr]]:
    """The expressions of ORDER BY over what the select list is made of, with their syntax."""
    order = tree.args.get("order")
    found = []
    for part in order.expressions if order is not None else ():
        # NULLs come first going up and last going down, which is Spark's rule too.
        if bool(part.args.get("nulls_first")) == bool(part.args.get("desc")):
            raise Unsupported(
                "NULLS FIRST and LAST are fixed by the direction", fragment=text_of(part)
            )
        if isinstance(part.this, exp.Var):
            raise Unsupported("ORDER BY ALL is not taken", hint="Name the columns")
        found.append((part, _meaning(part.this, items, rows)))
    return found


def directed(found: Sequence[tuple[exp.Expr, Expr]], rewrite: Rewrite) -> Order:
    """The order with its directions; constants order nothing, and the first mention counts."""
    made: dict[Expr, bool] = {}
    for part, expr in found:
        over = blamed(text_of(part), expr, rewrite)
        if not isinstance(over, Lit):
            made.setdefault(over, bool(part.args.get("desc")))
    return tuple(made.items())


def count_of(tree: exp.Select, name: str) -> int | None:
    """The number of LIMIT or OFFSET."""
    part = tree.args.get(name)
    if part is None:
        return None
    value = part.expression if isinstance(part, exp.Limit | exp.Offset) else None
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise Unsupported(f"{name.upper()} takes a number", fragment=text_of(part))
    return int(value.name)


def no_limit(fragment: str | None = None) -> Unsupported:
    """The refusal of LIMIT where rows are kept."""
    return Unsupported(
        "LIMIT in a view is not taken yet",
        fragment=fragment,
        hint="Keep all rows in the order you want with ORDER BY, and read the first with "
        "scan(limit=)",
    )


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
