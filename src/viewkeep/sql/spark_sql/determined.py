"""The choices that viewkeep makes in aggregates, written out in SQL for Spark.

Law: the text after this pass has one result in Spark, and it is ours. ANY_VALUE is MIN; of equal y,
MIN_BY takes the least x and MAX_BY the largest; a list or array without ORDER BY, and what its
ORDER BY does not tell apart, is in the order of the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from viewkeep.sql.grouping.aggregates import JOINED, LISTED, given_to, is_aggregate
from viewkeep.sql.parse.syntax import parse_expression


def deterministic(tree: exp.Expr) -> exp.Expr:
    """A copy of a query in which every choice that viewkeep makes is written out for Spark."""
    return tree.copy().transform(_determined, copy=False)


def _determined(tree: exp.Expr) -> exp.Expr:
    if isinstance(tree, exp.Any) and is_aggregate(tree):
        return exp.Anonymous(this="BOOL_OR", expressions=[tree.this.this])
    if isinstance(tree, exp.IgnoreNulls | exp.RespectNulls) and _called(tree.this) == "any_value":
        return _determined(tree.this)
    if _called(tree) == "any_value":
        return exp.Anonymous(this="MIN", expressions=tree.expressions[:1])
    if _called(tree) in ("min_by", "max_by") and len(tree.expressions) == 2:
        x, y = tree.expressions
        tree.set("expressions", [x, _where_known(y, _struct([y.copy(), x.copy()]))])
        return tree
    within = tree.this if isinstance(tree, exp.Filter) else tree
    function = within.this if isinstance(within, exp.WithinGroup) else within
    if _called(function) not in (*JOINED, *LISTED):
        return tree
    arguments, order = given_to(function)
    if isinstance(within, exp.WithinGroup):
        order = tuple(within.expression.expressions)
    # What stands inside is not looked at again by whoever called this.
    arguments = [deterministic(argument) for argument in arguments]
    distinct = isinstance(arguments[0], exp.Distinct) or _called(function) == "collect_set"
    item = arguments[0].expressions[0] if isinstance(arguments[0], exp.Distinct) else arguments[0]
    parts = _decided(item, order or (), distinct)
    where = deterministic(tree.expression) if isinstance(tree, exp.Filter) else None
    call = exp.Anonymous(this=function.this, expressions=arguments)
    if _called(function) in JOINED and distinct:
        return _distinct_list(arguments, item, parts[0], where)
    if _called(function) in JOINED:
        ordered = exp.WithinGroup(this=call, expression=exp.Order(expressions=parts))
        return _filtered(ordered, where)
    if parts[0].this == item:
        return _sorted(_filtered(call, where), parts[0])
    return _array(function.name, item, parts, where)


def _called(tree: exp.Expr | None) -> str | None:
    return tree.name.lower() if isinstance(tree, exp.Anonymous) else None


def _decided(item: exp.Expr, order: Sequence[exp.Expr], distinct: bool) -> list[exp.Expr]:
    """An order that tells all different values apart."""
    parts = [deterministic(part) for part in order]
    if distinct and parts:  # they are ordered by themselves, however that is spelt
        parts[0].set("this", item.copy())
    if item not in [part.this for part in parts]:
        parts.append(exp.Ordered(this=item.copy(), nulls_first=True))
    return parts


def _filtered(call: exp.Expr, where: exp.Expr | None) -> exp.Expr:
    return call if where is None else exp.Filter(this=call, expression=where)


def _sorted(array: exp.Expr, part: exp.Expr) -> exp.Expr:
    down = [exp.false()] if part.args.get("desc") else []
    return exp.Anonymous(this="SORT_ARRAY", expressions=[array, *down])


def _distinct_list(
    arguments: Sequence[exp.Expr], item: exp.Expr, part: exp.Expr, where: exp.Expr | None
) -> exp.Expr:
    """Spark fails on LISTAGG(DISTINCT x) of some types and beside other DISTINCT, unlike arrays."""
    given = [argument for argument in arguments if not isinstance(argument, exp.Distinct)]
    given = given or arguments[0].expressions[1:]
    between = given[0] if given and not isinstance(given[0], exp.Null) else exp.Literal.string("")
    every, known = (
        _filtered(exp.Anonymous(this=name, expressions=[item.copy()]), where and where.copy())
        for name in ("COLLECT_SET", "COUNT")
    )
    texts = exp.cast(_sorted(every, part), "ARRAY<STRING>")
    joined = exp.Anonymous(this="ARRAY_JOIN", expressions=[texts, between])
    some = exp.GT(this=known, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=joined)])


def _array(
    name: str, item: exp.Expr, parts: Sequence[exp.Expr], where: exp.Expr | None
) -> exp.Expr:
    """Spark's arrays take no ORDER BY: values are collected with it, sorted, and taken out."""
    named = [(f"k{place}", part.this) for place, part in enumerate(parts)]
    fields = [exp.alias_(tree.copy(), name) for name, tree in (*named, ("item", item))]
    call = exp.Anonymous(this=name, expressions=[_where_known(item, _struct(fields))])
    body = "0"
    for place, part in reversed(list(enumerate(parts))):
        body = _comparison(f"k{place}", part, body)
    order, take = _lambda(body, "l", "r"), _lambda("one.item", "one")
    ordered = exp.Anonymous(this="ARRAY_SORT", expressions=[_filtered(call, where), order])
    return exp.Anonymous(this="TRANSFORM", expressions=[ordered, take])


def _struct(fields: list[exp.Expr]) -> exp.Expr:
    return exp.Anonymous(this="STRUCT", expressions=fields)


def _where_known(tree: exp.Expr, value: exp.Expr) -> exp.Expr:
    """A value where an expression is not NULL."""
    inner = tree.copy() if isinstance(tree, exp.Column) else exp.Paren(this=tree.copy())
    known = exp.Not(this=exp.Is(this=inner, expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=known, true=value)])


def _lambda(body: str, *names: str) -> exp.Expr:
    return exp.Lambda(
        this=parse_expression(body), expressions=[exp.to_identifier(name) for name in names]
    )


def _comparison(key: str, part: exp.Expr, otherwise: str) -> str:
    """Which of two structs comes first by a key, as -1 or 1; if neither, what else says so."""
    first = -1 if part.args.get("nulls_first") else 1
    less = 1 if part.args.get("desc") else -1
    return (
        f"CASE WHEN l.{key} <=> r.{key} THEN {otherwise} WHEN l.{key} IS NULL THEN {first} "
        f"WHEN r.{key} IS NULL THEN {-first} WHEN l.{key} < r.{key} THEN {less} ELSE {-less} END"
    )
