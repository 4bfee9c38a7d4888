"""Statements of any depth and size are planned, or refused at once with the limit: never a crash.

Each runs in a thread, whose stack is what a server's thread has.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.sql.catalog import Names

from viewkeep.errors import QueryTooLarge, SqlError, SqlSyntaxError
from viewkeep.expr import MOST_DEEP, Call, Expr, Ref, references
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.plan.conditions import rewritten
from viewkeep.plan.serial import decode, encode
from viewkeep.sql.parse.limits import MOST_JOINED, MOST_NESTED
from viewkeep.sql.statements.nodes import CreateView, Statement
from viewkeep.types import BIGINT


def statement(text: str) -> Statement:
    return Names().statement(text)


def chained(operator: str, operand: str) -> Callable[[int], str]:
    return lambda n: f"SELECT id, {f' {operator} '.join([operand] * n)} AS y FROM t"


def around(before: str, inner: str, after: str) -> Callable[[int], str]:
    return lambda n: f"SELECT id, {before * n}{inner}{after * n} AS y FROM t"


SHAPES: dict[str, Callable[[int], str]] = {
    "integers added": chained("+", "a"),
    "decimals added": chained("+", "m"),
    "doubles divided": chained("/", "x"),
    "text": chained("||", "s"),
    "comparisons": chained("=", "f"),
    "and": lambda n: "SELECT id FROM t WHERE " + " AND ".join(f"a <> {i}" for i in range(n)),
    "or": lambda n: "SELECT id FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(n)),
    "parentheses": around("(", "a", ")"),
    "not": around("NOT ", "f", ""),
    "minus": around("- ", "a", ""),
    "case in case": around("CASE WHEN f THEN ", "a", " END"),
    "functions": around("abs(", "a", ")"),
    "functions that double": around("nullif(", "a", ", 1)"),
    "casts": around("", "a", "::bigint"),
    "is null": around("", "a", " IS NULL"),
    "between": around("", "a", " BETWEEN 1 AND 2"),
    "elements": around("", "a", "[0]"),
    "types": around("CAST(a AS ARRAY<", "INT", ">)"),
    "subqueries": around("(SELECT max(a) FROM t WHERE a < ", "1", ")"),
    "derived tables": lambda n: f"SELECT id FROM {'(SELECT id FROM ' * n}t{')' * n}",
    "explain": lambda n: "EXPLAIN " * n + "SELECT id FROM t",
    "long case": lambda n: (
        f"SELECT id, CASE {' '.join(f'WHEN a = {i} THEN {i}' for i in range(n))} END AS y FROM t"
    ),
    "in": lambda n: f"SELECT id FROM t WHERE a IN ({', '.join(map(str, range(n)))})",
    "values": lambda n: f"SELECT * FROM VALUES {', '.join(f'({i})' for i in range(n))}",
    "group by": lambda n: (
        f"SELECT {' + '.join(['a'] * n)} AS y, count(*) AS n FROM t GROUP BY {'+'.join(['a'] * n)}"
    ),
}
SIZES = (100, 1_000, 5_000, 50_000)
ANY_LENGTH = ("and", "or", "in", "values", "long case")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_planned_or_refused(shape: str, size: int) -> None:
    text = SHAPES[shape](size)
    with ThreadPoolExecutor(1) as thread:
        refused = thread.submit(statement, text).exception()
    if refused is not None:
        assert isinstance(refused, SqlError)
        assert shape not in ANY_LENGTH or size > 1_000, refused
        assert len(str(refused)) < 2_000


@pytest.mark.parametrize("size", [100, MOST_DEEP])
def test_a_chain_up_to_the_limit(size: int) -> None:
    made = statement(f"CREATE VIEW v AS {SHAPES['integers added'](size)}")
    assert isinstance(made, CreateView)
    assert decode(encode(made.view)) == made.view


def test_the_limit_is_named() -> None:
    with pytest.raises(QueryTooLarge, match="more than 200 operators and functions deep"):
        statement(SHAPES["integers added"](MOST_DEEP + 2))
    with pytest.raises(SqlSyntaxError, match="32 levels of parentheses"):
        statement(SHAPES["parentheses"](MOST_NESTED + 1))
    statement(SHAPES["parentheses"](MOST_NESTED))


@pytest.mark.parametrize(
    "joined", [" JOIN t t{0} ON t{0}.id = t0.id", ", t t{0}", " FULL JOIN t t{0} USING (id)"]
)
def test_relations_of_one_from_are_bounded(joined: str) -> None:
    def text(relations: int) -> str:
        return "SELECT 1 AS one FROM t t0" + "".join(map(joined.format, range(1, relations)))

    with pytest.raises(SqlSyntaxError, match="more than 64 relations"):
        statement(text(MOST_JOINED + 1))
    statement(text(MOST_JOINED if joined.startswith(",") else 12))


def test_the_fragment_of_an_and_is_the_innermost_one() -> None:
    with pytest.raises(SqlError, match=r"\(at: f AND s\)"):
        statement("SELECT id FROM t WHERE f AND s AND f AND f")


def deep(levels: int) -> Expr:
    expr: Expr = Ref("a", BIGINT)
    for _ in range(levels):
        expr = Call("subtract", (expr, Ref("a", BIGINT)), BIGINT)
    return expr


def shared(levels: int) -> Expr:
    """An expression of 2 ** levels leaves, made of one call for each level."""
    expr: Expr = Ref("a", BIGINT)
    for _ in range(levels):
        expr = Call("subtract", (expr, expr), BIGINT)
    return expr


def test_expressions_are_walked_without_recursion() -> None:
    expr, same = deep(5_000), deep(5_000)
    assert expr == same
    assert len({expr, same}) == 1
    assert decode(encode(expr)) == expr
    assert set(references(expr)) == {"a"}
    other = rewritten(expr, {"a": Ref("b", BIGINT)})
    assert other != expr
    assert rewritten(other, {"b": Ref("a", BIGINT)}) == expr
    assert str(expr).count("subtract") == 5_000


def test_shared_parts_are_walked_once() -> None:
    expr, same = shared(60), shared(60)
    assert expr == same
    assert hash(expr) == hash(same)
    assert len(encode(expr)["parts"]) == 60
    assert decode(encode(expr)) == expr
    assert list(references(expr)) == ["a", "a"]
    assert rewritten(expr, {"a": Ref("b", BIGINT)}) != expr


def test_a_deep_difference_is_computed() -> None:
    assert evaluate_one(deep(MOST_DEEP), {"a": 3}) == 3 - 3 * MOST_DEEP
