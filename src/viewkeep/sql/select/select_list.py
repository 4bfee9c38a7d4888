"""The select list with all that stands around it, over rows or over groups.

Law: what comes first is computed first. Rows are grouped, HAVING chooses groups, windows see what
is left, QUALIFY chooses among that, and the select list and ORDER BY read the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sqlglot import exp

from viewkeep.expr import Expr, Ref
from viewkeep.plan.nodes import Node
from viewkeep.sql.expressions.scalars import lower
from viewkeep.sql.grouping.aggregates import Calls
from viewkeep.sql.grouping.group_by import Item, blamed, grouped, groups_of, having
from viewkeep.sql.grouping.grouping_sets import Marks
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import filtered, named
from viewkeep.sql.relations.scope import Scope
from viewkeep.sql.select.order_by import Order, Spelt, directed, order_of, ordered_also
from viewkeep.sql.select.windows import Windows, qualified

Listed: TypeAlias = Sequence[tuple[str, exp.Expr]]
Selected: TypeAlias = tuple[Node, tuple[Item, ...], Order]


def over_rows(select: exp.Select, listed: Listed, scope: Scope) -> Selected:
    """A SELECT without groups: its node, items and order."""
    windows = Windows(select, scope.leaf, scope.node)
    items = [Item(name, item, lower(item, windows.leaf)) for name, item in listed]
    order = directed(order_of(select, items, windows.leaf), lambda expr: expr)
    condition = qualified(select, items, scope, windows)
    spelt = _columns(scope)
    node = windows.over(scope.node, spelt)
    if condition is not None:
        node = filtered(node, condition)
        _spell_out(select, listed)
    if select.args.get("distinct") is None:
        decide(select, node, order, spelt)
    return node, tuple(items), order


def over_groups(select: exp.Select, listed: Listed, scope: Scope) -> Selected:
    """A SELECT with GROUP BY or aggregates: its node, items and order."""
    node = scope.node
    groups = groups_of(select, listed, scope)
    # An aggregate is never called like a column of the rows, or it could be taken for it.
    taken = {*named(groups.keys).values(), *(column.name for column in node.columns)}
    calls = Calls(scope.leaf, taken)
    marks = Marks(groups.keys, calls.leaf, lambda tree: lower(tree, scope.leaf))
    windows = Windows(select, marks.leaf, node)
    items = [Item(name, item, lower(item, windows.leaf)) for name, item in listed]
    chosen = having(select, items, scope, marks.leaf)
    order = order_of(select, items, windows.leaf)
    condition = qualified(select, items, scope, windows)
    made, rewrite = grouped(node, groups, calls, marks, windows.found)
    if chosen is not None:
        made = filtered(made, blamed(text_of(select.args["having"]), chosen, rewrite))
    names = {rewrite(key): tree for key, tree in groups.written.items()}
    made = windows.over(made, names.get, rewrite)
    if condition is not None:
        made = filtered(made, blamed(text_of(select.args["qualify"]), condition, rewrite))
        _spell_out(select, listed)
    shown = [Item(i.name, i.tree, blamed(text_of(i.tree), i.expr, rewrite)) for i in items]
    directions = directed(order, rewrite)
    if select.args.get("distinct") is None:
        decide(select, made, directions, names.get)
    return made, tuple(shown), directions


def _spell_out(select: exp.Select, listed: Listed) -> None:
    """Name all items in the text: QUALIFY is written for Spark as a query around this one."""
    items = [
        exp.alias_(tree, exp.to_identifier(name, quoted=True), copy=False) for name, tree in listed
    ]
    select.set("expressions", items)


def spelt_items(items: Sequence[Item]) -> Spelt:
    """How the columns of a result are written: by their names."""
    return {item.expr: exp.column(exp.to_identifier(item.name, quoted=True)) for item in items}.get


def _columns(scope: Scope) -> Spelt:
    """How the columns of the rows are written: with their table, as an item may have the name."""
    names: dict[Expr, exp.Expr] = {}
    for relation in scope.relations:
        for name, expr in relation.columns.items():
            table = exp.to_identifier(relation.alias, quoted=True) if relation.alias else None
            names.setdefault(expr, exp.column(exp.to_identifier(name, quoted=True), table=table))
    return names.get


def decide(select: exp.Expr, node: Node, order: Order, spelt: Spelt) -> None:
    """Write into a text with LIMIT what decides between rows that its order does not tell apart."""
    written, counts = select.args.get("order"), (select.args.get(n) for n in ("limit", "offset"))
    if written is None or all(count is None for count in counts):
        return
    types = {column.name: column.type for column in node.columns}
    keys = [Ref(name, types[name]) for name in node.row_key]
    known = {expr for expr, _ in order}
    added = tuple((key, False) for key in keys if key not in known)
    select.set("order", ordered_also(written, added, spelt))
