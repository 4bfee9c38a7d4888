"""Every cast between types gives what Spark SQL gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from viewkeep.expr import Ref
from viewkeep.ops.evaluate import evaluate_one
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
}
TEXTS: Table = {
    "s": (STRING, [" true ", "F", "-.5", "1.5e2", "+7", ".", "-.", "1.", "1_0", "0x1.8p3",
                   "-0x1p-2d", "+NaN", "-inf", "1.5F", "1dd", "1e400", "0e100", "1e38",
                   "1e-99999999999",
                   "\x7f3", "\t4\n", "１２", "99999999.995", "9223372036854775808", "2147483648.9",
                   "12345678901234567890.5", "2024-02-29 1:2:3.5+01:00", "2024-01-01T",
                   "2024-01-01 ", "2024-01-01 05", "2024-01-01 05:06Z", "2024-01-01 05:06:07Z",
                   "2024-01-01 05:06:07 UTC+1", "2024-01-01 05:06:07.25 GMT-8:30",
                   "2024-01-01 05:06:07+0130", "2024-01-01 05:06:07-01:30:15",
                   "2024-01-01 05:06:07+18:01", "2024-01-01 05:06:07 utc", "2024-01-01 24:00:00",
                   "2024-01-01 x", "2024-01-01x", "2023-02-29", "1999-7", "+0099-12-31"]),
}  # fmt: skip
DOUBLES: Table = {
    "d": (DOUBLE, [5e-324, 2e-323, 1e22, 1e7, 9999999.5, 1e-3, 9.99e-4,
                   1.7976931348623157e308, 123456.789, 9e18, -9.3e18, 2147483647.5, 1e-7]),
}  # fmt: skip


def test_bytes_that_are_no_text_are_null() -> None:
    """And do not fail; Spark keeps them, but a STRING here is UTF-8."""
    assert evaluate_one(cast_to(Ref("x", BINARY), STRING), {"x": b"\xff"}) is None


@pytest.mark.parametrize("table", [NUMBERS, TIMES, OTHERS, TEXTS, DOUBLES])
def test_casts_as_spark(spark: SparkSession, table: Table) -> None:
    cases: list[Case] = [
        (cast_to(Ref(name, given), target), f"CAST({name} AS {target})")
        for name, (given, _) in table.items()
        for target in TARGETS
        if given != target and castable(given, target)
    ]
    agree(spark, table, cases)
