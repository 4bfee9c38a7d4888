"""The algebra of aggregating first, by brute force: all small tables, and what is left of them.

Plans are evaluated by a few lines of Python over exact numbers, which know nothing of the engine:
every pair of tables of up to two rows each over domains with NULLs and duplicates, so each table
is also what is left of a larger one after deletions, down to none. Random larger ones follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import reduce
from itertools import combinations_with_replacement, product
from operator import xor
from random import Random
from typing import Any

import pytest

from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Node,
    Project,
    Source,
)
from viewkeep.plan.passes.aggregate_first import aggregate_first
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.show import show
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.select.query import lower_query
from viewkeep.types import BIGINT, BOOLEAN, Column, DataType, Schema, decimal

Row = dict[str, Any]
Tables = dict[str, list[Row]]
WIDE = decimal(30, 4)
EXACT = Context(prec=400, rounding=ROUND_HALF_UP)


def table(name: str, number: int) -> Source:
    columns = [Column("id", BIGINT, False), Column("k", BIGINT), Column("x", BIGINT)]
    return Source(
        name,
        number,
        Schema((*columns, Column("w", WIDE), Column("f", BOOLEAN)), ("id",)),
    )


SOURCES = {"l": table("l", 1), "r": table("r", 2)}
# k, x, w, f of a row: matched and not, with values, without, and with ones that overflow a BIGINT.
DOMAIN: list[tuple[Any, ...]] = [
    (0, 1, Decimal("0.0001"), True),
    (0, 2**62, Decimal(10**26 - 1), False),
    (0, None, None, None),
    (1, -3, Decimal("-7.5"), True),
    (None, 5, Decimal(1), False),
]
CALLS = [
    "count(*)", "count(l.x)", "count(r.x)", "sum(l.x)", "sum(r.x)", "avg(l.x)", "avg(r.x)",
    "sum(l.w)", "avg(r.w)", "min(l.x)", "max(r.x)", "bool_and(l.f)", "bool_or(r.f)", "bit_xor(l.x)",
    "bit_xor(r.x)", "sum(l.x * r.x)", "sum(l.x - r.x)", "count(l.x + r.x)", "sum((l.x + 1) * r.x)",
    "sum(coalesce(r.x, 3))", "count(distinct r.x)", "sum(case when r.f then r.x end)",
]  # fmt: skip
FROM = {
    "inner": "l join r on l.k = r.k",
    "left": "l left join r on l.k = r.k",
    "right": "l right join r on l.k = r.k",
    "full": "l full join r on l.k = r.k",
    "cross": "l cross join r",
    "left cross": "l left join r on true",
    "compared": "l join r on l.x > r.x",
    "filtered": "l join r on l.k = r.k where l.f",
    "null_safe": "l join r on l.k <=> r.k",
}
BY = ["", "l.k", "r.x"]
LEFT_ALONE = ["count(*)", "count(x)", "sum(x)", "avg(x)", "sum(w)", "min(x)", "bit_xor(x)"]


def queries() -> Iterator[str]:
    for source, by in product(FROM.values(), BY):
        shown = [f"{call} as c{i}" for i, call in enumerate(CALLS)]
        yield _text([by, *shown] if by else shown, source, by)
        for i, call in enumerate(CALLS):  # alone, a call may group what others do not
            yield _text([by, f"{call} as c{i}"] if by else [call], source, by)
    for word in ("exists", "not exists"):
        for matched in (" where l.k = r.k", ""):
            source = f"l where {word} (select 1 from r{matched})"
            for by in ("", "k"):
                yield _text([by, *LEFT_ALONE] if by else LEFT_ALONE, source, by)


def _text(items: list[str], source: str, by: str) -> str:
    return f"select {', '.join(items)} from {source}" + (f" group by {by}" if by else "")


def plans(sql: str, always: bool) -> tuple[Node, Node]:
    made = lower_query(parse(sql)[0], SOURCES.get)
    wanted = frozenset(inner for _, inner in made.columns)
    return made.node, aggregate_first(made.node, Goal(wanted, aggregate_first=always or None))


def small_tables() -> list[list[Row]]:
    """All tables of up to two rows."""
    chosen = [c for n in range(3) for c in combinations_with_replacement(DOMAIN, n)]
    return [list(map(_row, range(len(one)), one)) for one in chosen]


def _row(number: int, values: tuple[Any, ...]) -> Row:
    return dict(zip(("id", "k", "x", "w", "f"), (number, *values), strict=True))


@pytest.mark.parametrize("always", [False, True], ids=["chosen", "always"])
def test_all_small_tables(always: bool) -> None:
    every = small_tables()
    changed = 0
    for number, sql in enumerate(queries()):
        before, after = plans(sql, always)
        if before == after:
            continue
        changed += 1
        # All pairs would take minutes: each query has its share, all pairs come several times.
        pairs = list(product(every, every))[number % 5 :: 5]
        for left, right in pairs:
            same(sql, before, after, {"l": left, "r": right})
    assert changed > 50


def test_random_tables() -> None:
    random = Random(1)
    for sql in queries():
        before, after = plans(sql, random.random() < 0.5)
        for _ in range(4):
            sizes = [random.choice([0, 3, 6]) for _ in range(2)]
            drawn = [random.choices(DOMAIN, k=size) for size in sizes]
            left, right = (list(map(_row, range(len(one)), one)) for one in drawn)
            same(sql, before, after, {"l": left, "r": right})


def same(sql: str, before: Node, after: Node, tables: Tables) -> None:
    names = [column.name for column in before.columns]
    types = {column.name: column.type for column in after.columns}
    assert [types[c.name] for c in before.columns] == [c.type for c in before.columns]
    expected, found = (
        Counter(tuple(row[name] for name in names) for row in rows_of(node, tables))
        for node in (before, after)
    )
    assert found == expected, f"{sql}\n{tables}\n{show(after)}"


# -- plans by a few lines of Python ----------------------------------------------------------------


def rows_of(node: Node, tables: Tables) -> list[Row]:
    match node:
        case Source():
            return tables[node.table]
        case Filter():
            return [row for row in rows_of(node.input, tables) if value(node.predicate, row)]
        case Project():
            return [
                {out.name: value(out.expr, row) for out in node.outputs}
                for row in rows_of(node.input, tables)
            ]
        case Join():
            return list(_joined(node, tables))
        case Aggregate():
            groups: dict[tuple[Any, ...], list[Row]] = {} if node.keys else {(): []}
            for row in rows_of(node.input, tables):
                key = tuple(value(k.expr, row) for k in node.keys)
                groups.setdefault(key, []).append(row)
            return [
                dict(zip((k.name for k in node.keys), key, strict=True))
                | {call.name: _aggregate(call, rows) for call in node.aggregates}
                for key, rows in groups.items()
            ]
    if hasattr(node, "inputs"):  # a union, of a right or full join
        return [row for one in node.inputs for row in rows_of(one, tables)]
    raise NotImplementedError(type(node))


def _joined(node: Join, tables: Tables) -> Iterator[Row]:
    right = rows_of(node.right, tables)
    nulls = {column.name: None for column in node.right.columns}
    for row in rows_of(node.left, tables):
        partners = [
            other
            for other in right
            if all(_matches(value(m.left, row), value(m.right, other), m.null_safe)
                   for m in node.on)
        ]  # fmt: skip
        if node.kind in ("semi", "anti"):
            if bool(partners) == (node.kind == "semi"):
                yield row
            continue
        yield from (row | other for other in partners)
        if node.kind == "left" and not partners:
            yield row | nulls


def _matches(one: Any, other: Any, null_safe: bool) -> bool:
    return one == other and (null_safe or one is not None)


def _aggregate(call: AggregateCall, rows: list[Row]) -> Any:
    if call.argument is None:
        return len(rows)
    known = [v for row in rows if (v := value(call.argument, row)) is not None]
    name = call.function.removesuffix("_distinct")
    if name != call.function:
        known = list(dict.fromkeys(known))
    if name == "count":
        return len(known)
    if not known:
        return None
    match name:
        case "sum":
            return _fitted(_total(known), call.type)
        case "avg":
            if call.type.is_decimal:
                return _fitted(EXACT.divide(_total(known), Decimal(len(known))), call.type)
            return float(_total(known)) / len(known)
        case "bool_and":
            return all(known)
        case "bool_or":
            return any(known)
        case "bit_xor":
            return reduce(xor, known)
    return {"min": min, "max": max}[name](known)


def _total(values: list[Any]) -> Any:
    return reduce(EXACT.add, values) if isinstance(values[0], Decimal) else sum(values)


def _fitted(found: Any, type_: DataType) -> Any:
    """A number as a type has it: integers wrap, decimals are rounded, and NULL if too long."""
    if type_ == BIGINT:
        return (int(found) + 2**63) % 2**64 - 2**63
    if not type_.is_decimal:
        return found
    found = EXACT.quantize(EXACT.create_decimal(found), Decimal(1).scaleb(-type_.scale))
    return found if found.copy_abs() < EXACT.power(10, type_.precision - type_.scale) else None


_STRICT: dict[str, Callable[..., Any]] = {
    "eq": lambda a, b: a == b, "gt": lambda a, b: a > b, "lt": lambda a, b: a < b,
    "not": lambda a: not a, "negate": lambda a: -a,
    "add": lambda a, b: _apply(EXACT.add, a, b),
    "subtract": lambda a, b: _apply(EXACT.subtract, a, b),
    "multiply": lambda a, b: _apply(EXACT.multiply, a, b),
    "divide": lambda a, b: _ratio(a, b) if b else None,
    "int_divide": lambda a, b: int(EXACT.divide_int(Decimal(a), Decimal(b))),
    "remainder": lambda a, b: EXACT.remainder(Decimal(a), Decimal(b)),
}  # fmt: skip


def _apply(operation: Callable[..., Decimal], a: Any, b: Any) -> Any:
    made = operation(Decimal(a), Decimal(b))
    return made if isinstance(a, Decimal) or isinstance(b, Decimal) else int(made)


def _ratio(a: Any, b: Any) -> Any:
    return EXACT.divide(a, b) if isinstance(a, Decimal) else a / b


def value(expr: Expr, row: Row) -> Any:
    """An expression over a row."""
    if isinstance(expr, Ref):
        return row[expr.name]
    if isinstance(expr, Lit):
        return expr.value
    assert isinstance(expr, Call)
    args = [value(arg, row) for arg in expr.args]
    match expr.function:
        case "case":
            pairs = zip(args[:-1:2], args[1::2], strict=True)
            return next((then for when, then in pairs if when), args[-1])
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
        case "is_not_null":
            return args[0] is not None
        case "and":
            return False if False in args else None if None in args else True
    if None in args:
        return None
    if expr.function == "cast":
        if expr.type.name == "DOUBLE":
            return float(args[0])
        return _fitted(args[0], expr.type)
    made = _STRICT[expr.function](*args)
    return None if made is None else _fitted(made, expr.type)
