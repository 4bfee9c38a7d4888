"""Comparisons and choices give what Spark SQL gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewkeep.expr import Lit
from viewkeep.ops.functions import call
from viewkeep.types import STRING

from .test_numbers import NUMBERS, Case, D, E, G, H, J, K, M, N, S, W, agree, both

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "null_safe_eq": "<=>"}  # fmt: skip
_PAIRS = [(K, J), (K, G), (D, E), (S, K), (S, D), (M, N), (M, K), (W, M), (G, D), (G, H), (S, M)]
CASES: list[Case] = [
    *((call(name, [a, b]), f"{a.name} {sign} {b.name}")
      for name, sign in _SIGNS.items() for a, b in _PAIRS),
    *(both(name, a, b) for name in ("coalesce", "nullif", "nvl") for a, b in _PAIRS),
    *(both(name, a, b) for name in ("greatest", "least") for a, b in _PAIRS
      if S not in (a, b)),
    *(both("nvl2", a, b, a) for a, b in _PAIRS),
    *((call("in", [a, b, a]), f"{a.name} IN ({b.name}, {a.name})") for a, b in _PAIRS),
    (call("case", [call("gt", [K, J]), K, M]), "CASE WHEN i > j THEN i ELSE m END"),
    (call("is_null", [S]), "s IS NULL"),
    (call("eq", [S, Lit("1", STRING)]), "s = '1'"),
]  # fmt: skip


def test_choices_as_spark(spark: SparkSession) -> None:
    agree(spark, NUMBERS, CASES)
