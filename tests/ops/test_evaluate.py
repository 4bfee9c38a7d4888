"""Expressions of kernels within kernels cost what their depth is, not two to the power of it."""

from __future__ import annotations

import polars as pl
import pytest

from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops import evaluate
from viewkeep.ops.functions import call, cast_to
from viewkeep.types import BIGINT, DOUBLE, INT, STRING, TIMESTAMP

ROWS = pl.DataFrame({"a": [None, 0, 5, -8, 2**40]}, schema={"a": pl.Int64})


def remainder(expr: Expr) -> Expr:
    return call("remainder", (expr, Lit(1000003, BIGINT)))


def there_and_back(expr: Expr) -> Expr:
    return cast_to(cast_to(expr, STRING), BIGINT)


def shifted(expr: Expr) -> Expr:
    parts = (Lit(0, INT), Lit(1, INT), Lit(0, BIGINT))
    moved = call("add_interval", (cast_to(cast_to(expr, STRING), TIMESTAMP), *parts))
    return call("length", (cast_to(moved, STRING),))


@pytest.mark.parametrize("wrap", [remainder, there_and_back, shifted])
def test_depth_costs_stages_not_copies(wrap: object) -> None:
    assert callable(wrap)
    expr: Expr = Ref("a", BIGINT)
    for _ in range(9):
        expr = call("add", (cast_to(wrap(expr), BIGINT), Lit(1, BIGINT)))
    stages, finals = evaluate._staged((expr,))
    parts = [part for stage in stages for _, part in stage] + list(finals)
    sizes = [len(evaluate._compiled(part).meta.root_names()) for part in parts]
    assert max(sizes) < 2_000
    assert evaluate.compute(ROWS, [expr])[0].len() == ROWS.height


def test_stages_change_no_value() -> None:
    expr: Expr = Ref("a", BIGINT)
    expected = ROWS["a"].to_list()
    for _ in range(6):
        expr = call("add", (remainder(there_and_back(expr)), Lit(1, BIGINT)))
        expected = [None if v is None else _remainder(v) + 1 for v in expected]
    assert evaluate._staged((expr,))[0]
    assert evaluate.compute(ROWS, [expr, expr])[1].to_list() == expected


def _remainder(value: int) -> int:
    """Of the sign of the dividend, as in Spark."""
    return abs(value) % 1000003 * (1 if value >= 0 else -1)


@pytest.mark.parametrize(
    "expr",
    [
        call("nullif", (Lit(2.5, DOUBLE), cast_to(Ref("s", STRING), DOUBLE))),
        call("gt", (Lit(2.5, DOUBLE), cast_to(Ref("s", STRING), DOUBLE))),
        call("divide", (Lit(2.5, DOUBLE), cast_to(Ref("s", STRING), DOUBLE))),
        call("remainder", (Lit(2.5, DOUBLE), cast_to(Ref("s", STRING), DOUBLE))),
        call("concat", (Lit("a", STRING), cast_to(cast_to(Ref("s", STRING), DOUBLE), STRING))),
        call("concat_ws", (Ref("s", STRING), Lit("a", STRING), Lit("b", STRING))),
    ],
    ids=str,
)
def test_a_constant_beside_rows_that_are_all_null(expr: Expr) -> None:
    """polars may hold a column of equal values as one value; there is a result for each row."""
    rows = pl.DataFrame({"s": ["x", "y", "z"]})
    together = evaluate.compute(rows, [expr])[0].to_list()
    assert together == [evaluate.compute(rows[at : at + 1], [expr])[0].item() for at in range(3)]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq"])
def test_a_constant_left_of_values_that_are_all_equal(name: str) -> None:
    """Polars gives one value where such a comparison needs one for each row."""
    same = call("if", [call("eq", [Lit(None, BIGINT), Ref("a", BIGINT)]), Lit(3, INT), Lit(4, INT)])
    expr = call(name, [Lit(3, INT), same])
    wanted = name in ("ne", "lt", "le")
    assert evaluate.compute(ROWS, [expr])[0].to_list() == [wanted] * ROWS.height
    null_if = call("nullif", [Lit(3, INT), same])
    assert evaluate.compute(ROWS, [null_if])[0].to_list() == [3] * ROWS.height
