"""Hypothesis strategies for column types and for values of a type, shared by the codec tests."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    DataType,
    decimal,
)

SIMPLE = (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP)


@st.composite
def decimals(draw: st.DrawFn) -> DataType:
    precision = draw(st.integers(1, 38))
    return decimal(precision, draw(st.integers(0, precision)))


types = st.one_of(st.sampled_from(SIMPLE), decimals())


def values(type: DataType) -> st.SearchStrategy[Any]:
    """Values of a type, with its edges; NULL is left to the caller."""
    if type.is_decimal:
        top = 10**type.precision - 1
        unscaled = st.integers(-top, top) | st.sampled_from([0, 1, -1, top, -top])
        return unscaled.map(lambda number: Decimal((number < 0, _digits(number), -type.scale)))
    return _VALUES[type.name]


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "INT": st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "DOUBLE": st.floats() | st.sampled_from([0.0, -0.0, float("nan"), float("inf")]),
    "STRING": st.text(max_size=8) | st.text(alphabet="\0\1aé\U0001f600", max_size=4),
    "BINARY": st.binary(max_size=8) | st.lists(st.sampled_from([0, 1, 255])).map(bytes),
    "DATE": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "TIMESTAMP": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
}


@st.composite
def tables(
    draw: st.DrawFn, min_columns: int = 1, max_columns: int = 10
) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
    """Columns, and some rows with NULLs among them."""
    chosen = draw(st.lists(types, min_size=min_columns, max_size=max_columns))
    columns = tuple(Column(f"c{index}", type) for index, type in enumerate(chosen))
    row = st.tuples(*(st.none() | values(type) for type in chosen))
    return columns, draw(st.lists(row, max_size=6))


def frame(columns: tuple[Column, ...], rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """The frame of these rows, with the exact dtypes."""
    return pl.DataFrame(
        [
            pl.Series(column.name, [row[index] for row in rows], column.type.polars)
            for index, column in enumerate(columns)
        ]
    )


def canonical(value: Any) -> Any:
    """A value that compares equal exactly when the stored values do."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
