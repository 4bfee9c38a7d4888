"""SELECT to plan nodes, in canonical form.

FROM gives a scope; WHERE a Filter; GROUP BY or an aggregate an Aggregate; HAVING a Filter over it;
the select list and ORDER BY name columns, computed by one Project where they are not columns
already. Derived tables, CTEs and views are inlined, so equal queries become equal nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Ref
from viewkeep.plan.nodes import KeyPart, Node
from viewkeep.sql.expressions.outer_references import has_subquery
from viewkeep.sql.expressions.scalars import predicate
from viewkeep.sql.grouping.aggregates import has_aggregate
from viewkeep.sql.grouping.group_by import Item, distinct, typed
from viewkeep.sql.grouping.time_buckets import bucketed
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import with_columns
from viewkeep.sql.relations.from_clause import From, Pool
from viewkeep.sql.relations.inline_values import NOTHING, values_scope
from viewkeep.sql.relations.joins import conditions_of
from viewkeep.sql.relations.scope import (
    Resolve,
    Scope,
    Shown,
    find,
    refuse_duplicates,
    relation_scope,
)
from viewkeep.sql.select.order_by import Order, count_of, directed, order_of, ordered_also, top
from viewkeep.sql.select.select_list import decide, over_groups, over_rows, spelt_items
from viewkeep.sql.select.set_operations import SetBranch, combined
from viewkeep.sql.statements.nodes import Query
from viewkeep.sql.subqueries.as_joins import Inner, Subqueries


@dataclass(frozen=True)
class Lowered:
    """A query before its outputs are given columns."""

    node: Node
    items: tuple[Item, ...]
    order: Order = ()
    limit: int | None = None
    offset: int = 0

    def finish(self) -> Query:
        """The query with every output and order expression a column of its node."""
        wanted = [item.expr for item in self.items] + [expr for expr, _ in self.order]
        node, names = with_columns(self.node, wanted)
        columns = tuple((item.name, names[item.expr]) for item in self.items)
        order = tuple(KeyPart(names[expr], descending) for expr, descending in self.order)
        return Query(node, columns, order, self.limit, self.offset)

    def topped(self, fragment: str) -> Lowered:
        """The query with its limit as part of the plan; its order matters to that alone."""
        if self.limit is None and not self.offset:
            return self
        query = top(self.finish(), fragment)
        types = {column.name: column.type for column in query.node.columns}
        items = tuple(
            Item(item.name, item.tree, Ref(inner, types[inner]))
            for item, (_, inner) in zip(self.items, query.columns, strict=True)
        )
        return Lowered(query.node, items)


def lower_query(tree: exp.Expr, resolve: Resolve) -> Query:
    """The plan of a SELECT."""
    return lower_select(tree, resolve).finish()


def lower_select(
    tree: exp.Expr,
    resolve: Resolve,
    known: Mapping[str, Scope] | None = None,
    outer: Scope | None = None,
) -> Lowered:
    """A query over tables, views and the `known` CTEs, inside the query of the `outer` scope."""
    made = _lowered(tree, resolve, known or {}, outer)
    refuse_duplicates([item.name for item in made.items])
    for item in made.items:
        typed(item.name, item.expr)
    return made


def _lowered(
    tree: exp.Expr, resolve: Resolve, known: Mapping[str, Scope], outer: Scope | None
) -> Lowered:
    """As `lower_select`; columns may still have one name, or be NULL without a type."""
    tree = _bare(tree)
    known = _with_ctes(tree, resolve, known, outer)
    if isinstance(tree, exp.SetOperation):
        return _combined(tree, lambda part: _lowered(part, resolve, known, outer))
    if not isinstance(tree, exp.Select):
        raise Unsupported("a query is a SELECT", fragment=text_of(tree))
    return _selected(tree, resolve, known, outer)


def _combined(tree: exp.SetOperation, lowered: Callable[[exp.Expr], Lowered]) -> Lowered:
    """UNION, INTERSECT and EXCEPT, with ORDER BY and LIMIT of the whole."""

    def branch(part: exp.Expr) -> SetBranch:
        made = lowered(part)
        made = made.topped(text_of(part))
        return SetBranch(made.node, made.items)

    made = combined(tree, branch)
    scope = relation_scope(made.node, {item.name: item.expr for item in made.items}, "")
    order = directed(order_of(tree, made.items, scope.leaf), lambda expr: expr)
    limit, offset = count_of(tree, "limit"), count_of(tree, "offset") or 0
    if order and (limit is not None or offset):
        # Rows that the order does not tell apart follow all their columns, in the text as well.
        known = {expr for expr, _ in order}
        rest = tuple((item.expr, False) for item in made.items if item.expr not in known)
        tree.set("order", ordered_also(tree.args["order"], rest, spelt_items(made.items)))
        order += rest
    return Lowered(made.node, made.items, order, limit, offset)


def _selected(
    select: exp.Select, resolve: Resolve, known: Mapping[str, Scope], outer: Scope | None
) -> Lowered:
    pool = _from(select, resolve, known, outer)
    around = replace(pool.scope, outer=outer)
    inner = Subqueries(lambda query: _inner(query, resolve, known, around))
    scope = replace(around, inner=inner.leaf)
    scope = bucketed(select, replace(scope, node=_where(select, pool, scope, inner)))
    _refuse_subquery(select.args.get("qualify"))
    listed = list(_listed(select, scope))
    if not listed:
        raise Unsupported("SELECT needs items", fragment=text_of(select), hint="Name columns, or *")
    chosen = over_groups if _aggregated(select, listed) else over_rows
    made = _settled(Lowered(*chosen(select, listed, scope)), inner, scope)
    if select.args.get("distinct") is not None:
        made = _distinct(made)
        decide(select, made.node, made.order, spelt_items(made.items))
    limit, offset = count_of(select, "limit"), count_of(select, "offset") or 0
    return Lowered(made.node, made.items, made.order, limit, offset)


def _bare(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    return tree


def _distinct(made: Lowered) -> Lowered:
    node, rewrite = distinct(made.node, [item.expr for item in made.items])
    items = tuple(Item(item.name, item.tree, rewrite(item.expr)) for item in made.items)
    try:
        order = tuple((rewrite(expr), descending) for expr, descending in made.order)
    except Unsupported as error:
        raise Unsupported("ORDER BY of a DISTINCT query names items of SELECT") from error
    return Lowered(node, items, order)


def _aggregated(select: exp.Select, listed: list[tuple[str, exp.Expr]]) -> bool:
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return True
    return any(has_aggregate(item) for _, item in listed)


def _with_ctes(
    tree: exp.Expr, resolve: Resolve, known: Mapping[str, Scope], outer: Scope | None
) -> Mapping[str, Scope]:
    with_ = tree.args.get("with_")
    made, own = dict(known), set[str]()
    for cte in with_.expressions if with_ is not None else ():
        name = cte.alias.lower()
        if name in own:
            raise Unsupported(f"two CTEs are called {name}", fragment=text_of(cte))
        own.add(name)
        made[name] = _derived(cte, name, resolve, made, outer)
    return made


def _from(
    tree: exp.Select, resolve: Resolve, known: Mapping[str, Scope], outer: Scope | None
) -> Pool:
    if tree.args.get("from_") is None:
        return Pool((NOTHING,), (), (), ())

    def relation(part: exp.Expr) -> Scope:
        alias = part.alias.lower()
        if isinstance(part, exp.Subquery):
            return _derived(part, alias, resolve, known, outer)
        if isinstance(part, exp.Values):
            return values_scope(part, alias).renamed(alias, _column_names(part))
        if not isinstance(part, exp.Table) or not isinstance(part.this, exp.Identifier):
            raise Unsupported("FROM takes a table, a view or a SELECT", fragment=text_of(part))
        name = part.name.lower()
        return find(name, resolve, known).renamed(alias or name, _column_names(part))

    return From(relation, outer).read(tree)


def _where(select: exp.Select, pool: Pool, scope: Scope, inner: Subqueries) -> Node:
    """The rows of FROM for which WHERE is true."""
    where = select.args.get("where")
    if where is None:
        return pool.where(())
    if has_aggregate(where):
        raise Unsupported(
            "WHERE chooses rows before they are grouped",
            fragment=text_of(where),
            hint="Put conditions on aggregates into HAVING",
        )
    parts = conditions_of(predicate(where.this, scope.leaf))
    node = pool.where([part for part in parts if not has_subquery(part)])
    return inner.where(node, [part for part in parts if has_subquery(part)])


def _inner(query: exp.Expr, resolve: Resolve, known: Mapping[str, Scope], around: Scope) -> Inner:
    """A subquery in an expression."""
    made = _lowered(query, resolve, known, around)
    exists = isinstance(query.parent, exp.Exists)
    for item in made.items if not exists else ():
        typed(item.name, item.expr)
    # Whether there is any row does not depend on how many are taken.
    if not (exists and made.limit and not made.offset):
        made = made.topped(text_of(query))
    return Inner(made.node, tuple(item.expr for item in made.items), text_of(query))


def _refuse_subquery(qualify: exp.Expr | None) -> None:
    """Spark has no QUALIFY: the text of a view says it by a derived table, which would not do."""
    inner = None if qualify is None else qualify.find(exp.Query)
    if inner is not None:
        raise Unsupported(
            "a subquery in QUALIFY is not taken",
            fragment=text_of(inner),
            hint="Compute the window function in a derived table, and use WHERE",
        )


def _settled(made: Lowered, inner: Subqueries, scope: Scope) -> Lowered:
    """The query with what it asks of subqueries as part of its plan."""
    exprs = [*(item.expr for item in made.items), *(expr for expr, _ in made.order)]
    node, exprs = inner.attached(inner.settled(made.node, scope.node), exprs)
    items = tuple(replace(item, expr=exprs[i]) for i, item in enumerate(made.items))
    rest = zip(exprs[len(items) :], made.order, strict=True)
    return replace(made, node=node, items=items, order=tuple((e, desc) for e, (_, desc) in rest))


def _derived(
    holder: exp.Expr,
    alias: str,
    resolve: Resolve,
    known: Mapping[str, Scope],
    outer: Scope | None,
) -> Scope:
    """The scope of a derived table or CTE, with its columns renamed if it says so."""
    made = lower_select(holder.this, resolve, known, outer)
    made = made.topped(text_of(holder.this))
    columns = {item.name: item.expr for item in made.items}
    return relation_scope(made.node, columns, alias).renamed(alias, _column_names(holder))


def _column_names(holder: exp.Expr) -> list[str]:
    alias = holder.args.get("alias")
    columns = alias.columns if isinstance(alias, exp.TableAlias) else ()
    return [column.name.lower() for column in columns]


def _listed(tree: exp.Select, scope: Scope) -> Iterator[tuple[str, exp.Expr]]:
    """The select list with * spelt out: names and syntax trees."""
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if isinstance(item, exp.Column):
                scope.check_table(item)
            for column in scope.star(item.table.lower() if isinstance(item, exp.Column) else ""):
                yield column.name, _spelt(column, scope)
        elif isinstance(item, exp.Alias):
            yield item.alias.lower(), item.this
        else:
            yield _own_name(item), item


def _spelt(column: Shown, scope: Scope) -> exp.Expr:
    """A column that * stands for, as it would be written out."""
    name = exp.to_identifier(column.name, quoted=True)
    if len(scope.relations) == 1 or not column.alias:
        return exp.column(name)
    return exp.column(name, table=exp.to_identifier(column.alias, quoted=True))


def _own_name(tree: exp.Expr) -> str:
    """What an item without an alias is called: as Spark does for columns and casts of them."""
    inner = tree
    while isinstance(inner, exp.Paren | exp.Cast | exp.TryCast):
        inner = inner.this
    name: str = inner.name if isinstance(inner, exp.Column) else text_of(tree)
    return name.lower()
