"""SELECT to plan nodes, in canonical form.

FROM gives a scope; WHERE a Filter; GROUP BY or an aggregate an Aggregate; HAVING a Filter over it;
the select list and ORDER BY name columns, computed by one Project where they are not columns
already. Derived tables, CTEs and views are inlined, so equal queries become equal nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.plan.nodes import KeyPart, Node
from viewkeep.sql.aggregates import Calls, has_aggregate
from viewkeep.sql.columns import filtered, named, with_columns
from viewkeep.sql.expressions import lower, predicate
from viewkeep.sql.grouping import Item, blamed, distinct, group_keys, grouped, having, typed
from viewkeep.sql.ordering import Order, count_of, directed, no_limit, order_of
from viewkeep.sql.parse import text_of
from viewkeep.sql.scope import Resolve, Scope, find, refuse_duplicates
from viewkeep.sql.statements import Query


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


def lower_query(tree: exp.Expr, resolve: Resolve) -> Query:
    """The plan of a SELECT."""
    return lower_select(tree, resolve).finish()


def lower_select(
    tree: exp.Expr, resolve: Resolve, known: Mapping[str, Scope] | None = None
) -> Lowered:
    """A SELECT over tables, views and the `known` CTEs."""
    select = _bare(tree)
    known = _with_ctes(select, resolve, known or {})
    scope = _from(select, resolve, known)
    node = scope.node
    where = select.args.get("where")
    if where is not None:
        if has_aggregate(where):
            raise Unsupported(
                "WHERE chooses rows before they are grouped",
                fragment=text_of(where),
                hint="Put conditions on aggregates into HAVING",
            )
        node = filtered(node, predicate(where.this, scope.leaf))
    listed = list(_listed(select, scope))
    if not listed:
        raise Unsupported("SELECT needs items", fragment=text_of(select), hint="Name columns, or *")
    refuse_duplicates([name for name, _ in listed])
    if _aggregated(select, listed):
        made = _over_groups(select, node, listed, scope)
    else:
        items = [Item(name, item, lower(item, scope.leaf)) for name, item in listed]
        order = directed(order_of(select, items, scope.leaf), lambda expr: expr)
        made = Lowered(node, tuple(items), order)
    for item in made.items:
        typed(item.name, item.expr)
    if select.args.get("distinct") is not None:
        made = _distinct(made)
    limit, offset = count_of(select, "limit"), count_of(select, "offset") or 0
    return Lowered(made.node, made.items, made.order, limit, offset)


def _bare(tree: exp.Expr) -> exp.Select:
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        kind = type(tree).__name__.upper()
        raise Unsupported(f"{kind} is not taken yet", hint="Make a view of each part")
    if not isinstance(tree, exp.Select):
        raise Unsupported("a query is a SELECT", fragment=text_of(tree))
    return tree


def _over_groups(
    select: exp.Select, node: Node, listed: list[tuple[str, exp.Expr]], scope: Scope
) -> Lowered:
    keys = group_keys(select, listed, scope)
    # An aggregate is never called like a column of the rows, or it could be taken for it.
    calls = Calls(scope.leaf, {*named(keys).values(), *(column.name for column in node.columns)})
    items = [Item(name, item, lower(item, calls.leaf)) for name, item in listed]
    condition = having(select, items, scope, calls)
    order = order_of(select, items, calls.leaf)
    groups, rewrite = grouped(node, keys, calls)
    if condition is not None:
        clause = text_of(select.args["having"])
        groups = filtered(groups, blamed(clause, condition, rewrite))
    shown = [Item(i.name, i.tree, blamed(text_of(i.tree), i.expr, rewrite)) for i in items]
    return Lowered(groups, tuple(shown), directed(order, rewrite))


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
    tree: exp.Select, resolve: Resolve, known: Mapping[str, Scope]
) -> Mapping[str, Scope]:
    with_ = tree.args.get("with_")
    made, own = dict(known), set[str]()
    for cte in with_.expressions if with_ is not None else ():
        name = cte.alias.lower()
        if name in own:
            raise Unsupported(f"two CTEs are called {name}", fragment=text_of(cte))
        own.add(name)
        made[name] = _derived(cte, name, resolve, made)
    return made


def _from(tree: exp.Select, resolve: Resolve, known: Mapping[str, Scope]) -> Scope:
    source = tree.args.get("from_")
    if source is None:
        raise Unsupported("a query needs a table to read", hint="Add FROM with a table or view")
    relation = source.this
    alias = relation.alias.lower()
    if isinstance(relation, exp.Subquery):
        return _derived(relation, alias, resolve, known)
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        raise Unsupported("FROM takes a table, a view or a SELECT", fragment=text_of(relation))
    name = relation.name.lower()
    return find(name, resolve, known).renamed(alias or name, _column_names(relation))


def _derived(holder: exp.Expr, alias: str, resolve: Resolve, known: Mapping[str, Scope]) -> Scope:
    """The scope of a derived table or CTE, with its columns renamed if it says so."""
    made = lower_select(holder.this, resolve, known)
    if made.limit is not None or made.offset:
        raise no_limit(text_of(holder.this))
    columns = {item.name: item.expr for item in made.items}
    return Scope(made.node, columns, alias).renamed(alias, _column_names(holder))


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
            for name in scope.columns:
                yield name, exp.column(exp.to_identifier(name, quoted=True))
        elif isinstance(item, exp.Alias):
            yield item.alias.lower(), item.this
        else:
            yield _own_name(item), item


def _own_name(tree: exp.Expr) -> str:
    """What an item without an alias is called: as Spark does for columns and casts of them."""
    inner = tree
    while isinstance(inner, exp.Paren | exp.Cast | exp.TryCast):
        inner = inner.this
    name: str = inner.name if isinstance(inner, exp.Column) else text_of(tree)
    return name.lower()
