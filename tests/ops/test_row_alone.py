"""A kernel's result depends on the row alone: not on how many rows are computed with it.

A view stands on this. The row that a deletion takes away is computed again from the base row, in
another batch, and must come out with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import polars as pl
import pytest

import viewkeep
from viewkeep.engine.epochs import Published
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.evaluate import compute
from viewkeep.ops.functions import call, cast_to
from viewkeep.types import DOUBLE, TIMESTAMP, DataType

from .functions import test_numbers, test_times
from .functions.test_numbers import NUMBERS, Table
from .functions.test_times import TIMES

X, Y, T = Ref("x", DOUBLE), Ref("y", DOUBLE), Ref("t", TIMESTAMP)
_AWKWARD = Random(1)
DOUBLES: Table = {
    "x": (DOUBLE, [_AWKWARD.uniform(-1e3, 1e3) for _ in range(200)]),
    "y": (DOUBLE, [_AWKWARD.uniform(0.1, 9) for _ in range(200)]),
}
_BINARY = ("add", "subtract", "multiply", "divide", "remainder", "power", "atan2", "log", "nanvl")
_UNARY = ("sqrt", "cbrt", "exp", "ln", "log10", "log2", "sin", "cos", "tan", "asin", "acos", "atan",
          "sinh", "cosh", "tanh", "degrees", "radians", "round", "ceil", "floor")  # fmt: skip
OF_DOUBLES: list[Expr] = [
    *(call(name, [a, b]) for name in _BINARY
      for a, b in ((X, Y), (X, Lit(3.3, DOUBLE)), (Lit(3.3, DOUBLE), Y), (Y, Lit(0.5, DOUBLE)))),
    *(call(name, [Y]) for name in _UNARY),
    call("round", [X, Lit(2, test_numbers.INT)]),
]  # fmt: skip
MOMENTS: Table = {
    "t": (
        TIMESTAMP,
        pl.Series([_AWKWARD.randrange(10**15) for _ in range(200)])
        .cast(pl.Datetime("us"))
        .to_list(),
    )
}


@pytest.mark.parametrize(
    ("table", "exprs"),
    [
        (DOUBLES, OF_DOUBLES),
        (MOMENTS, [cast_to(T, DOUBLE)]),
        (NUMBERS, [expr for expr, _ in (*test_numbers.ARITHMETIC, *test_numbers.MATH)]),
        (TIMES, [expr for expr, _ in (*test_times.DATES, *test_times.INSTANTS)]),
    ],
    ids=["doubles", "moments", "numbers", "times"],
)
def test_one_row_is_computed_as_many(table: Table, exprs: Sequence[Expr]) -> None:
    frame = pl.DataFrame(
        {name: pl.Series(name, values, dtype=t.polars) for name, (t, values) in table.items()}
    )
    together = compute(frame, exprs)
    rows = [compute(frame[at : at + 1], exprs) for at in range(frame.height)]
    for place, expr in enumerate(exprs):
        alone = [row[place].to_list()[0] for row in rows]
        for one, many in zip(alone, together[place].to_list(), strict=True):
            assert _bits(one, expr.type) == _bits(many, expr.type), expr


def _bits(value: Any, type_: DataType) -> object:
    if type_ != DOUBLE or value is None:
        return value
    return "NaN" if math.isnan(value) else value.hex()


def test_rows_written_together_go_one_by_one(
    db: viewkeep.Database, catch_up: Callable[[], Published]
) -> None:
    """A group that was computed with many rows is found again when each is deleted alone."""
    db.sql("""
        CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE);
        CREATE VIEW thirds AS SELECT x / 3.0 AS third, COUNT(*) AS n FROM t GROUP BY x / 3.0
    """)
    db.put("t", [{"id": at, "x": value} for at, value in enumerate(DOUBLES["x"][1][:20])])
    catch_up()
    for at in range(20):
        db.delete("t", at)
        catch_up()
    assert db.sql("SELECT COUNT(*) AS n FROM thirds").one() == {"n": 0}
