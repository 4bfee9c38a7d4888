"""GROUP BY, HAVING and DISTINCT: the keys of Aggregates, and what may be said of their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import SqlError, Unsupported
from viewkeep.expr import Expr, Lit, Ref, unused
from viewkeep.ops.functions import VOID
from viewkeep.plan.nodes import Aggregate, AggregateCall, Filter, Named, Node, Project, Union
from viewkeep.sql.expressions.canonical import make
from viewkeep.sql.expressions.constants import constant, position
from viewkeep.sql.expressions.scalars import Leaf, lower, predicate
from viewkeep.sql.grouping.aggregates import Calls, group_rewriter, has_aggregate
from viewkeep.sql.grouping.grouping_sets import Marks, sets_of
from viewkeep.sql.grouping.time_buckets import START, is_bucket
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import named
from viewkeep.sql.relations.scope import Scope
from viewkeep.types import BIGINT, INT

Rewrite: TypeAlias = Callable[[Expr], Expr]
BRANCH = "#branch"  # the place of the grouping set that a row is of
_ROWS = (AggregateCall("count(*)", "count_star", None, BIGINT),)


@dataclass(frozen=True)
class Item:
    """An item of the select list: what it is called, its syntax and what it computes."""

    name: str
    tree: exp.Expr
    expr: Expr


@dataclass(frozen=True)
class Groups:
    """What GROUP BY says: all its expressions, and the sets of them that rows are grouped by.

    `sets` is one set of all the keys unless GROUPING SETS, ROLLUP or CUBE say otherwise. `written`
    is how each key may be written in the query.
    """

    keys: tuple[Expr, ...]
    sets: tuple[tuple[Expr, ...], ...]
    written: Mapping[Expr, exp.Expr] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        return len(self.sets) == 1


def groups_of(tree: exp.Select, items: Sequence[tuple[str, exp.Expr]], scope: Scope) -> Groups:
    """The expressions of GROUP BY: of columns first, else a name or place of the select list."""
    group = tree.args.get("group")
    if group is None:
        return Groups((), ((),))

    written: dict[Expr, exp.Expr] = {}

    def key(part: exp.Expr) -> Expr:
        target = _group_target(part, items, scope)
        made = typed("GROUP BY", lower(target, scope.leaf))
        written.setdefault(made, target)
        return made

    elements = group.expressions
    if group.args.get("all"):
        elements = [item for _, item in items if not _is_summary(item)]
    suffix = group.args.get("grouping_sets")
    if group.args.get("rollup") or group.args.get("cube"):
        kind = exp.Rollup if group.args.get("rollup") else exp.Cube
        sets = sets_of([kind(expressions=elements)], key)
    elif suffix:  # the expressions before it only say in which order they come
        sets = sets_of(suffix, key)
    else:
        sets = sets_of(elements, key)
    keys = [key(part) for part in elements] if suffix else [k for one in sets for k in one]
    order = tuple(dict.fromkeys(keys))
    return Groups(order, tuple(tuple(k for k in order if k in one) for one in sets), written)


def _is_summary(item: exp.Expr) -> bool:
    return has_aggregate(item) or item.find(exp.Window) is not None or constant(item) is not None


def _group_target(part: exp.Expr, items: Sequence[tuple[str, exp.Expr]], scope: Scope) -> exp.Expr:
    target, place = part, position(part)
    if place is not None:
        target = item_at("GROUP BY", place, items)[1]
    elif isinstance(part, exp.Column) and not part.table and not scope.has(part):
        target = dict(items).get(part.name.lower(), part)
    if has_aggregate(target):
        raise Unsupported("GROUP BY comes before aggregates", fragment=text_of(target))
    return START if is_bucket(target) else target


def item_at(clause: str, place: int, items: Sequence[tuple[str, exp.Expr]]) -> tuple[str, exp.Expr]:
    """The item of the select list at a place, counted from 1."""
    if not 1 <= place <= len(items):
        raise Unsupported(f"{clause} {place}: there are {len(items)} items in SELECT")
    return items[place - 1]


def having(tree: exp.Select, items: Sequence[Item], scope: Scope, leaf: Leaf) -> Expr | None:
    """The condition on groups: of columns and aggregates first, else of names of SELECT."""
    clause = tree.args.get("having")
    if clause is None:
        return None
    return predicate(clause.this, alias_leaf(items, scope, leaf))


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


def grouped(
    node: Node, groups: Groups, calls: Calls, marks: Marks, others: Iterable[str] = ()
) -> tuple[Node, Rewrite]:
    """The Aggregate, and how expressions over rows and aggregates are said of its columns.

    `others` are columns that later nodes add. Several grouping sets are a union of Aggregates in
    which keys that a set does not have are NULL.
    """
    names = named(groups.keys)
    found = tuple(calls.found[name] for name in sorted(calls.found))
    made = [
        # A row needs a column, also where nothing is asked for but that there is a group.
        Aggregate(node, tuple(Named(names[key], key) for key in one), found or (not one) * _ROWS)
        for one in groups.sets
    ]
    if groups.is_plain and not marks.found:
        return made[0], group_rewriter(names, [*calls.found, *others])
    taken = {*names.values(), *calls.found}
    branch = unused(BRANCH, taken)
    branches: list[Node] = []
    for place, one in enumerate(groups.sets):
        below: Node = made[place]
        if not one and not groups.is_plain:
            below = _of_some(made[place])
        outputs = [Named(branch, Lit(place, INT))]
        for key, name in names.items():
            value = Ref(name, key.type) if key in one else Lit(None, key.type)
            outputs.append(Named(name, value))
        outputs += [Named(call.name, Ref(call.name, call.type)) for call in found]
        outputs += [Named(name, marks.value(name, one)) for name in sorted(marks.found)]
        branches.append(Project(below, tuple(outputs)))
    rewrite = group_rewriter(names, [*calls.found, *marks.found, *others])
    if groups.is_plain:
        return branches[0], rewrite
    return Union(tuple(branches), (branch, *names.values())), rewrite


def _of_some(total: Aggregate) -> Node:
    """The total of all rows if there are any: as Spark, unlike a query without GROUP BY."""
    counted = next((c for c in total.aggregates if c.function == "count_star"), None)
    if counted is None:
        (counted,) = _ROWS
        total = Aggregate(total.input, (), (*total.aggregates, counted))
    return Filter(total, make("gt", Ref(counted.name, BIGINT), Lit(0, INT)))


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
