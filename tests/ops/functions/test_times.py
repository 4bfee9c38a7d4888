"""Functions of dates and timestamps give what Spark SQL gives, over awkward days."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from viewkeep.errors import TypeMismatch
from viewkeep.expr import Lit, Ref
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import call
from viewkeep.types import BIGINT, DATE, INT, STRING, TIMESTAMP, decimal

from .test_numbers import Case, Table, agree, both, int_

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

D, C, T, N, G, S = (
    Ref("d", DATE),
    Ref("c", DATE),
    Ref("t", TIMESTAMP),
    Ref("n", INT),
    Ref("g", BIGINT),
    Ref("s", STRING),
)
_DAYS = [
    dt.date(2024, 2, 29), dt.date(2023, 12, 31), dt.date(1969, 12, 31), dt.date(1970, 1, 1),
    dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2021, 1, 3), dt.date(2000, 1, 31), None,
]  # fmt: skip
TIMES: Table = {
    "d": (DATE, _DAYS),
    "c": (DATE, _DAYS[::-1]),
    "t": (TIMESTAMP, [
        dt.datetime(2024, 2, 29, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 1),
        dt.datetime(1970, 1, 1), dt.datetime(1, 1, 1, 1, 2, 3), dt.datetime(9999, 12, 31, 12),
        None, dt.datetime(1900, 3, 1, 6, 7, 8, 90), dt.datetime(2021, 1, 31, 5),
        dt.datetime(2000, 1, 1),
    ]),
    "n": (INT, [1, -1, 0, 12, 13, -13, None, 100, 1]),
    "g": (BIGINT, [0, -1, 1, None, 1709251199, -2208988800, 86400, 5, 10**9]),
    "s": (STRING, ["2024-02-29", "2024-2-9", " 2023-02-29", "29/02/2024", None, "x", "2024",
                   "2024-02-29 12:30:05", "2024-02-29T12:30:05.123Z"]),
}  # fmt: skip


def _text(value: str) -> Lit:
    return Lit(value, STRING)


WRITTEN: Table = {
    "s": (STRING, ["20240229", "20240229123005", "29022024", "29feb2024", "29 FEB 2024",
                   "2024-02-30", "2024-02-29 12:30:05.1", "2024-02-29 12:30:05.1234",
                   "2024-02-29 24:00:05.000", "2024-13", "2024-12", "12:60", "23:59",
                   "1969-12-31 23:59:59.500", " 20240229"]),
}  # fmt: skip
_PATTERNS = ["yyyyMMdd", "yyyyMMddHHmmss", "ddMMyyyy", "ddMMMyyyy", "d MMM yyyy", "yyyy-MM-dd",
             "yyyy-MM-dd HH:mm:ss.SSS", "yyyy-MM", "HH:mm"]  # fmt: skip
_PARTS = ["year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear",
          "weekofyear", "last_day"]  # fmt: skip
DATES: list[Case] = [
    *(both(name, arg) for name in _PARTS for arg in (D, T, S)),
    *(both(name, D, N) for name in ("date_add", "date_sub", "add_months")),
    both("datediff", D, C),
    both("make_date", N, N, N),
    both("to_date", S),
    both("to_date", T),
    *((call("trunc", [D, _text(u)]), f"trunc(d, '{u}')")
      for u in ("year", "YY", "quarter", "MON", "week", "day", "x")),
    *((call("to_date", [S, _text(p)]), f"to_date(s, '{p}')")
      for p in ("dd/MM/yyyy", "yyyy-MM-dd", "yyyy-M-d", "yyyy")),
]  # fmt: skip
INSTANTS: list[Case] = [
    *(both(name, T) for name in ("hour", "minute", "second", "unix_timestamp", "unix_seconds",
                                 "unix_millis", "unix_micros")),
    both("hour", D),
    both("to_timestamp", S),
    both("unix_timestamp", S),
    both("from_unixtime", G),
    *(both(name, G) for name in ("timestamp_seconds", "timestamp_millis", "timestamp_micros")),
    *((call("date_trunc", [_text(u), T]), f"date_trunc('{u}', t)")
      for u in ("year", "quarter", "MONTH", "week", "day", "hour", "minute", "second",
                "millisecond", "microsecond", "x")),
    *((call("date_format", [T, _text(p)]), f"date_format(t, '{p}')")
      for p in ("yyyy-MM-dd HH:mm:ss.SSS", "E d MMM yyyy H", "dd/MM/yy", "yyyyMMdd")),
    (call("to_timestamp", [S, _text("yyyy-MM-dd HH:mm:ss")]),
     "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')"),
    (call("add_interval", [T, int_(1), int_(0), Lit(0, BIGINT)]), "t + INTERVAL 1 MONTH"),
    (call("add_interval", [T, int_(0), int_(-1), Lit(5, BIGINT)]),
     "t - INTERVAL 1 DAY + INTERVAL 5 MICROSECOND"),
    (call("add_interval", [D, int_(-11), int_(0), Lit(0, BIGINT)]), "d - INTERVAL 11 MONTH"),
    (call("add_interval", [D, int_(0), int_(0), Lit(3_600_000_000, BIGINT)]),
     "d + INTERVAL 1 HOUR"),
]  # fmt: skip


def test_dates_as_spark(spark: SparkSession) -> None:
    agree(spark, TIMES, DATES)


def test_instants_as_spark(spark: SparkSession) -> None:
    agree(spark, TIMES, INSTANTS)


def test_patterns_read_as_spark(spark: SparkSession) -> None:
    names = ("to_date", "to_timestamp", "unix_timestamp")
    cases = [
        (call(name, [S, _text(pattern)]), f"{name}(s, '{pattern}')")
        for name in names
        for pattern in _PATTERNS
    ]
    agree(spark, WRITTEN, cases)


@pytest.mark.parametrize("pattern", ["yyyyMd", "HHmmssSSS", "[yyyy]", "yyyy#", "yy", "YYYY", "x"])
def test_patterns_without_one_reading_are_refused(pattern: str) -> None:
    with pytest.raises(TypeMismatch, match="pattern"):
        call("to_timestamp", [S, _text(pattern)])


def test_numbers_that_spark_stops_at_are_null() -> None:
    for name, number in (("timestamp_seconds", 2**62), ("timestamp_millis", -(2**63))):
        assert evaluate_one(call(name, [G]), {"g": number}) is None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("timestamp_seconds", [Ref("w", decimal(38, 10))]),
        ("timestamp_millis", [S]),
        ("unix_micros", [D]),
        ("date_add", [D, G]),
    ],
)
def test_what_spark_refuses_is_refused(name: str, args: list[Ref]) -> None:
    with pytest.raises(TypeMismatch, match=name):
        call(name, args)
