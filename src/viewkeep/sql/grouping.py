"""GROUP BY, HAVING and DISTINCT: the keys of an Aggregate, and what may be said of its groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import SqlError, Unsupported
from viewkeep.expr import Expr, Ref
from viewkeep.ops.functions import VOID
from viewkeep.plan.nodes import Aggregate, Named, Node
from viewkeep.sql.aggregates import Calls, group_rewriter, has_aggregate
from viewkeep.sql.columns import named
from viewkeep.sql.constants import position
from viewkeep.sql.expressions import Leaf, lower, predicate
from viewkeep.sql.parse import text_of
from viewkeep.sql.scope import Scope

Rewrite: TypeAlias = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Item:
    """An item of the select list: what it is called, its syntax and what it computes."""

    name: str
    tree: exp.Expr
    expr: Expr


def group_keys(tree: exp.Select, items: Sequence[tuple[str, exp.Expr]], scope: Scope) -> list[Expr]:
    """The expressions of GROUP BY: of columns first, else a name or place of the select list."""
    group = tree.args.get("group")
    keys: dict[Expr, None] = {}
    for part in group.expressions if group is not None else ():
        keys[_group_key(part, items, scope)] = None
    return list(keys)


def _group_key(part: exp.Expr, items: Sequence[tuple[str, exp.Expr]], scope: Scope) -> Expr:
    target, place = part, position(part)
    if place is not None:
        target = item_at("GROUP BY", place, items)[1]
    elif isinstance(part, exp.Column) and not part.table and not scope.has(part):
        target = dict(items).get(part.name.lower(), part)
    if isinstance(target, exp.Rollup | exp.Cube | exp.GroupingSets):
        raise Unsupported(
            f"GROUP BY {type(target).__name__.upper()} is not taken yet",
            fragment=text_of(part),
            hint="Make a view of each grouping",
        )
    if has_aggregate(target):
        raise Unsupported("GROUP BY comes before aggregates", fragment=text_of(target))
    return typed("GROUP BY", lower(target, scope.leaf))


def item_at(clause: str, place: int, items: Sequence[tuple[str, exp.Expr]]) -> tuple[str, exp.Expr]:
    """The item of the select list at a place, counted from 1."""
    if not 1 <= place <= len(items):
        raise Unsupported(f"{clause} {place}: there are {len(items)} items in SELECT")
    return items[place - 1]


def having(tree: exp.Select, items: Sequence[Item], scope: Scope, calls: Calls) -> Expr | None:
    """The condition on groups: of columns and aggregates first, else of names of SELECT."""
    clause = tree.args.get("having")
    if clause is None:
        return None
    return predicate(clause.this, alias_leaf(items, scope, calls.leaf))


def alias_leaf(items: Sequence[Item], scope: Scope, otherwise: Leaf) -> Leaf:
    """Names of the select list, where the relation has no such column."""
    aliases = {item.name: item.expr for item in items}

    def leaf(tree: exp.Expr) -> Expr | None:
        if isinstance(tree, exp.Column) and not tree.table and not scope.has(tree):
            found = aliases.get(tree.name.lower())
            if found is not None:
                return found
        return otherwise(tree)

    return leaf


def grouped(node: Node, keys: Sequence[Expr], calls: Calls) -> tuple[Node, Rewrite]:
    """The Aggregate, and how expressions over rows and aggregates are said of its columns."""
    names = named(keys)
    made = Aggregate(
        node,
        tuple(Named(names[key], key) for key in keys),
        tuple(calls.found[name] for name in sorted(calls.found)),
    )
    return made, group_rewriter(names, calls.found)


def distinct(node: Node, exprs: Sequence[Expr]) -> tuple[Node, Rewrite]:
    """The different rows of some columns, and how those columns are said of the result."""
    shown = {expr.name for expr in exprs if isinstance(expr, Ref)}
    if node.row_key and set(node.row_key) <= shown:
        return node, lambda expr: expr  # rows that show their key differ already
    names: Mapping[Expr, str] = named(exprs)
    made = Aggregate(node, tuple(Named(name, expr) for expr, name in names.items()), ())
    return made, group_rewriter(names, ())


def blamed(fragment: str, expr: Expr, rewrite: Rewrite) -> Expr:
    """An expression rewritten; an error names the fragment that it stands for."""
    try:
        return rewrite(expr)
    except SqlError as error:
        raise type(error)(error.reason, fragment=fragment, hint=error.hint) from error


def typed(name: str, expr: Expr) -> Expr:
    """Refuse a bare NULL: a column has a type."""
    if expr.type == VOID:
        raise Unsupported(f"{name} is NULL without a type", hint="Write CAST(NULL AS type)")
    return expr
