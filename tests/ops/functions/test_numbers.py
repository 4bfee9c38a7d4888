"""Functions of numbers give what Spark SQL gives, over awkward values; and how that is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from viewkeep.errors import TypeMismatch
from viewkeep.expr import Expr, Lit, Ref, references
from viewkeep.ops.evaluate import evaluate_one, project
from viewkeep.ops.functions import VOID, call
from viewkeep.ops.functions.casts import in_years
from viewkeep.spark.convert import arrow_batches, spark_schema
from viewkeep.types import BIGINT, DOUBLE, INT, STRING, Column, DataType, decimal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Case = tuple[Expr, str]
Table = Mapping[str, tuple[DataType, Sequence[Any]]]

SMALL, WIDE, FINE, LONG = decimal(10, 2), decimal(38, 10), decimal(20, 18), decimal(38, 0)
_INF, _NAN = math.inf, math.nan
K, J, G, H, D, E, S, M, N, W, F, Z = (
    Ref("i", INT), Ref("j", INT), Ref("g", BIGINT), Ref("h", BIGINT), Ref("d", DOUBLE),
    Ref("e", DOUBLE), Ref("s", STRING), Ref("m", SMALL), Ref("n", SMALL), Ref("w", WIDE),
    Ref("f", FINE), Ref("z", LONG),
)  # fmt: skip
NUMBERS: Table = {
    "i": (INT, [None, 0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 25, -25, 15, 3]),
    "j": (INT, [1, 0, None, -1, 3, 3, 2, -1, -4, 31, 33, -2]),
    "g": (BIGINT, [0, None, 2**63 - 1, -(2**63), -(2**63), 5, -5, 10**18, 1, -1, 2**53 + 1, 64]),
    "h": (BIGINT, [3, 1, 2, -1, 0, -3, 7, 10**10, None, 2**62, -1, 2]),
    "d": (DOUBLE, [None, 0.0, -0.0, 1.5, -2.5, _NAN, _INF, -_INF, 1e300, 2.675, 0.5, -1.0]),
    "e": (DOUBLE, [1.0, None, 0.0, -0.0, 3.0, 2.0, _NAN, _INF, 1e-300, -1.0, 0.49999999999999994,
                   -_INF]),
    "s": (STRING, [None, "1", " 2.5 ", "x", "", "1e3", "-7", "NaN", "0", "00012", "99999999999",
                   "-0.0"]),
    "m": (SMALL, [*map(Decimal, ["0.00", "1.25", "-1.25", "99999999.99", "-99999999.99", "0.01",
                                 "2.50", "-0.05", "7.77", "1.15", "-3.00"]), None]),
    "n": (SMALL, [*map(Decimal, ["3.00", "0.00", "0.07", "99999999.99", "0.01", "-7.00", "1.10",
                                 "2.00"]), None, *map(Decimal, ["-0.03", "12.34", "1.00"])]),
    "w": (WIDE, [*map(Decimal, ["9999999999999999999999999999.9999999999", "0", "1.5",
                                "-9999999999999999999999999999.9999999999", "0.0000000001",
                                "-2.5", "123456789.987654321", "3", "0.00005", "-7"]), None,
                 Decimal("1e27")]),
    "f": (FINE, [*map(Decimal, ["0.000000000000000001", "-1.5", "99.999999999999999999", "0", "2",
                                "3.141592653589793238", "-0.000000000000000005", "10", "-99",
                                "0.5", "1"]), None]),
    "z": (LONG, [*(Decimal(10**digits - 1) for digits in (32, 33, 34, 35, 36, 37, 38)),
                 Decimal(-(10**37)), Decimal(5 * 10**31), Decimal(-7), Decimal(0), None]),
}  # fmt: skip


def agree(spark: SparkSession, table: Table, cases: Sequence[Case]) -> None:
    """Assert that our kernel and Spark give each case the same type and the same values.

    Tables go in and out of Spark by Arrow, since Python has no dates past the year 9999, and Spark
    rounds Python's decimals to 34 digits. Spark's times beyond the years 1 to 9999 are NULL here.
    """
    columns = [Column(name, type_) for name, (type_, _) in table.items()]
    ours = pl.DataFrame(
        {name: pl.Series(name, values, dtype=t.polars) for name, (t, values) in table.items()}
    )
    numbered = ours.with_row_index("row").with_columns(pl.col("row").cast(pl.Int32))
    batches = arrow_batches(numbered, spark_schema([Column("row", INT), *columns]))
    spark.createDataFrame(pa.Table.from_batches(batches)).createOrReplaceTempView("edges")
    outputs = [(f"c{at}", expr) for at, (expr, _) in enumerate(cases)]
    got = project(ours, outputs)
    texts = ", ".join(f"{sql} AS c{at}" for at, (_, sql) in enumerate(cases))
    answer = spark.sql(f"SELECT row, {texts} FROM edges")
    wanted = spark_schema([Column(name, expr.type) for name, expr in outputs])
    expected = pl.DataFrame(answer.toArrow()).sort("row")
    wrong: list[str] = []
    for (name, expr), (_, sql) in zip(outputs, cases, strict=True):
        if answer.schema[name].dataType != wanted[name].dataType:
            wrong.append(f"{sql}: {expr.type}, Spark {answer.schema[name].dataType}")
            continue
        known = pl.select(in_years(pl.lit(expected[name]), expr.type)).to_series()
        pairs = zip(_plain(got[name]), _plain(known), strict=True)
        for row, (a, b) in enumerate(pairs):
            if not _same(a, b):
                given = {n: table[n][1][row] for n in references(expr)}
                wrong.append(f"{sql} of {given}: {a!r}, Spark {b!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def _plain(values: pl.Series) -> list[Any]:
    """The values; times as whole days or microseconds since 1970, which have no bounds."""
    return (values.to_physical() if values.dtype.is_temporal() else values).to_list()


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=1e-12)
    return type(a) is type(b) and a == b


def int_(value: int | None) -> Lit:
    return Lit(value, INT)


def both(name: str, *args: Ref) -> Case:
    """A function called the same in both."""
    return call(name, list(args)), f"{name}({', '.join(arg.name for arg in args)})"


_PAIRS = [(K, J), (K, G), (G, H), (K, D), (D, E), (S, K), (S, M), (M, N), (M, K), (M, G), (W, M),
          (W, W), (F, M), (F, W), (F, F), (M, D), (W, F), (W, G)]  # fmt: skip
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "remainder": "%"}
ARITHMETIC: list[Case] = [
    *(
        (call(name, [a, b]), f"{a.name} {sign} {b.name}")
        for name, sign in _SIGNS.items()
        for a, b in _PAIRS
    ),
    *(
        (call(name, [a, b]), f"{a.name} {sign} {b.name}")
        for name, sign in _SIGNS.items()
        for a, b in [(Z, M), (Z, F), (F, Z), (Z, W), (Z, Z), (Z, K)]
        if name != "remainder"  # Spark stops at some of these: "Division impossible"
    ),
    (call("divide", [Lit(None, VOID), M]), "NULL / m"),
    *((call("int_divide", [a, b]), f"{a.name} DIV {b.name}")
      for a, b in [(K, J), (G, H), (K, G), (M, N), (M, K), (W, M), (F, W), (W, F)]),
    *((call("negate", [a]), f"-{a.name}") for a in (K, G, D, M, F, S)),
    *((call(name, [M, int_(3)]), f"m {sign} 3") for name, sign in _SIGNS.items()),
    *((call(name, [int_(-12), M]), f"-12 {sign} m") for name, sign in _SIGNS.items()),
    (call("divide", [K, int_(0)]), "i / 0"),
]  # fmt: skip
_ONE = ["sign", "ceil", "floor", "sqrt", "cbrt", "exp", "ln", "log10", "log2", "log", "sin", "cos",
        "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians", "isnan",
        "signum", "ceiling"]  # fmt: skip
MATH: list[Case] = [
    *(both(name, arg) for name in _ONE for arg in (D, E)),
    *(both(name, arg) for name in ("abs", "ceil", "floor", "round") for arg in (K, G, D, E, S, M)),
    *(both(name, arg) for name in ("ceil", "floor", "round") for arg in (W, F, Z)),
    both("abs", F),
    *(both(name, a, b) for name in ("power", "pow", "atan2", "log", "nanvl")
      for a, b in ((D, E), (E, D), (K, J))),
    *((call("round", [a, int_(places)]), f"round({a.name}, {places})")
      for a in (K, G, D, E, M, W, F) for places in (0, 1, 2, 5, -1, -2, -9)),
    (call("pi", []), "pi()"),
    (call("e", []), "e()"),
]  # fmt: skip
BITS: list[Case] = [
    *((call(name, [a, b]), f"{a.name} {sign} {b.name}")
      for name, sign in (("bitand", "&"), ("bitor", "|"), ("bitxor", "^"))
      for a, b in ((K, J), (G, H), (K, G))),
    *((call("bitnot", [a]), f"~{a.name}") for a in (K, G)),
    *(both(name, a, J) for name in ("shiftleft", "shiftright") for a in (K, G)),
    *(both("bit_count", a) for a in (K, G)),
]  # fmt: skip


@pytest.mark.parametrize("cases", [ARITHMETIC, MATH, BITS], ids=["arithmetic", "math", "bits"])
def test_numbers_as_spark(spark: SparkSession, cases: list[Case]) -> None:
    agree(spark, NUMBERS, cases)


def test_signs_of_wide_decimals_are_exact() -> None:
    """Where Spark is not: it rounds -x and abs(x) of more than 34 digits, or fails."""
    digits = Decimal("-9999999999999999999999999999.9999999999")
    for name in ("negate", "abs"):
        assert evaluate_one(call(name, [W]), {"w": digits}) == digits.copy_negate()


@pytest.mark.parametrize("places", [-400, -(2**31)])
def test_a_double_rounded_to_more_than_its_digits_is_zero(places: int) -> None:
    expr = call("round", [D, Lit(places, INT)])
    assert evaluate_one(expr, {"d": 1.7e308}) == 0.0


def test_the_places_of_round_are_a_constant() -> None:
    with pytest.raises(TypeMismatch, match="number of places"):
        call("round", [D, K])


@pytest.mark.parametrize("other", [D, S], ids=["double", "string"])
def test_div_is_of_exact_numbers(other: Ref) -> None:
    with pytest.raises(TypeMismatch, match="DIV"):
        call("int_divide", [K, other])


def test_bits_are_of_integers() -> None:
    with pytest.raises(TypeMismatch, match="INT or BIGINT"):
        call("bitand", [D, K])
