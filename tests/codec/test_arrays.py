"""Arrays in rows: what is encoded is decoded, many at once as one at a time."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import Corrupt, InvalidRow, Unsupported
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
    array,
    decimal,
)

ELEMENTS: dict[DataType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False).map(lambda value: value + 0.0),
    STRING: st.text(max_size=5),
    BINARY: st.binary(max_size=5),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(),
    decimal(20, 2): st.decimals(-(10**15), 10**15, places=2).map(Decimal),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[DataType, list[Any]]:
    element = draw(st.sampled_from(list(ELEMENTS)))
    return element, draw(st.lists(st.none() | st.lists(ELEMENTS[element], max_size=4), max_size=6))


@given(columns())
def test_arrays_come_back(given_column: tuple[DataType, list[Any]]) -> None:
    element, values = given_column
    kept = (Column("s", STRING), Column("a", array(element)), Column("z", STRING))
    codec = RowCodec(kept)
    schema = {column.name: column.type.polars for column in kept}
    frame = pl.DataFrame([("x", value, "yy") for value in values], schema=schema, orient="row")
    encoded = codec.encode(frame)
    assert encoded == [codec.encode_one(row) for row in frame.rows()]
    assert codec.decode(encoded).equals(frame)
    assert [codec.decode_one(row) for row in encoded] == frame.rows()


def test_text_of_the_type() -> None:
    for element in ELEMENTS:
        assert DataType.parse(str(array(element))) == array(element)
        assert array(element).element == element
    assert str(array(decimal(10, 2))) == "ARRAY<DECIMAL(10,2)>"
    with pytest.raises(ValueError, match="arrays of arrays"):
        array(array(INT))


def test_floats_are_canonical() -> None:
    codec = RowCodec((Column("a", array(DOUBLE)),))
    assert codec.encode_one(([-0.0],)) == codec.encode_one(([0.0],))
    frame = pl.DataFrame({"a": [[-0.0], [0.0]]})
    assert len(set(codec.encode(frame))) == 1


def test_no_key_of_arrays() -> None:
    with pytest.raises(Unsupported, match="by an ARRAY"):
        KeyCodec((INT, array(INT)))


def test_wrong_values_and_bytes() -> None:
    codec = RowCodec((Column("a", array(STRING)),))
    with pytest.raises(InvalidRow, match="a list"):
        codec.encode_one(("text",))
    row = codec.encode_one((["ab", "c"],))
    damaged = row[:-3] + b"\xff\xff\xff"
    with pytest.raises(Corrupt):
        codec.decode([damaged])
    numbers = RowCodec((Column("a", array(DATE)),))
    assert numbers.decode_one(numbers.encode_one(([dt.date(2024, 1, 1)],))) == (
        [dt.date(2024, 1, 1)],
    )
