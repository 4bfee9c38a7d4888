"""Every cast between types gives what Spark SQL gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from viewkeep.expr import Ref
from viewkeep.ops.functions import cast_to
from viewkeep.ops.functions.casts import castable
from viewkeep.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, decimal

from .test_numbers import NUMBERS, Case, Table, agree
from .test_times import TIMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGETS = [BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP, decimal(10, 2),
           decimal(38, 18), decimal(5, 0)]  # fmt: skip
OTHERS: Table = {
    "b": (BOOLEAN, [True, False, None]),
    "x": (BINARY, [b"abc", b"", None]),
    "y": (STRING, [" true ", "F", "-.5"]),
    "z": (STRING, ["2024-02-29 1:2:3.5+01:00", "1.5e2", "+7"]),
}


@pytest.mark.parametrize("table", [NUMBERS, TIMES, OTHERS], ids=["numbers", "times", "others"])
def test_casts_as_spark(spark: SparkSession, table: Table) -> None:
    cases: list[Case] = [
        (cast_to(Ref(name, given), target), f"CAST({name} AS {target})")
        for name, (given, _) in table.items()
        for target in TARGETS
        if given != target and castable(given, target)
    ]
    agree(spark, table, cases)
