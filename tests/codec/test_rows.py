"""Row bytes: round trips, equal rows have equal bytes, damage is refused."""

import contextlib
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec import rows
from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.packed import Packed
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import Corrupt, InvalidRow
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
    decimal,
)

from .strategies import canonical, frame, tables


@pytest.fixture(params=[0, rows.FEW], autouse=True, ids=["arrays", "few"], scope="module")
def few(request):
    """Each test with every number of rows by arrays, and with few of them one at a time."""
    before, rows.FEW = rows.FEW, request.param
    yield
    rows.FEW = before


@given(tables())
def test_many_at_once_equals_one_at_a_time(case):
    columns, rows = case
    codec = RowCodec(columns)
    encoded = [codec.encode_one(row) for row in rows]
    assert codec.encode(frame(columns, rows)) == encoded
    for row, data in zip(rows, encoded, strict=True):
        assert [canonical(v) for v in codec.decode_one(data)] == [canonical(v) for v in row]


@given(tables(), st.data())
def test_decode_gives_the_frame_back(case, data):
    columns, rows = case
    codec = RowCodec(columns)
    df = frame(columns, rows)
    encoded = codec.encode(df)
    assert codec.decode(encoded).equals(df)
    names = data.draw(st.lists(st.sampled_from(codec.names), unique=True))
    assert codec.decode(encoded, names).equals(df.select(names)) or not names
    backwards = Packed.from_list(encoded).take(np.arange(len(rows))[::-1])
    assert codec.decode(backwards).equals(df.reverse())
    for row in encoded:
        indices = [codec.names.index(name) for name in names]
        whole = codec.decode_one(row)
        assert list(map(canonical, codec.decode_one(row, indices))) == [
            canonical(whole[index]) for index in indices
        ]


@given(tables(), st.data(), st.sampled_from([1, 9]))
def test_merge_takes_the_chosen_columns(case, data, times):
    columns, rows = case
    codec = RowCodec(columns)
    old = codec.encode(frame(columns, rows)) * times
    new = old[::-1]
    chosen = tuple(data.draw(st.sets(st.integers(0, len(columns) - 1))))
    for a, b, merged in zip(old, new, codec.merge(old, new, chosen), strict=True):
        values = [
            (b if index in chosen else a)
            for index, (a, b) in enumerate(
                zip(codec.decode_one(a), codec.decode_one(b), strict=True)
            )
        ]
        assert merged == codec.encode_one(values)


@given(tables(min_columns=1), st.data())
def test_damaged_rows_are_refused_not_crashed_on(case, data):
    columns, rows = case
    codec = RowCodec(columns)
    for row in codec.encode(frame(columns, rows)):
        cut = row[: data.draw(st.integers(0, len(row) - 1))]
        with pytest.raises(Corrupt):
            codec.decode_one(cut)
        with pytest.raises(Corrupt):
            codec.decode([row, cut])
        changed = bytearray(row)
        changed[data.draw(st.integers(0, len(row) - 1))] ^= data.draw(st.integers(1, 255))
        for decode in (codec.decode_one, lambda damaged: codec.decode([damaged])):
            with contextlib.suppress(Corrupt):
                decode(bytes(changed))


def test_another_version_is_refused():
    columns = (Column("a", BIGINT),)
    row = RowCodec(columns, version=2).encode_one((1,))
    with pytest.raises(Corrupt, match="version 2"):
        RowCodec(columns).decode_one(row)
    with pytest.raises(Corrupt, match="version 2"):
        RowCodec(columns).decode([row])


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (BOOLEAN, 1),
        (INT, 2**31),
        (INT, True),
        (BIGINT, -(2**63) - 1),
        (BIGINT, 1.0),
        (DOUBLE, "1"),
        (DOUBLE, True),
        (DOUBLE, 10**400),
        (decimal(4, 2), Decimal("100")),
        (decimal(4, 2), Decimal("1.234")),
        (decimal(4, 2), 0.1),  # the nearest float is not 0.1
        (decimal(4, 2), 0.125),
        (decimal(4, 2), float("inf")),
        (decimal(4, 2), Decimal("1E+999999")),
        (decimal(4, 2), Decimal("NaN")),
        (decimal(4, 2), 1.55),
        (STRING, b"x"),
        (STRING, "\ud800"),
        (BINARY, "x"),
        (DATE, datetime(2024, 1, 1)),
        (TIMESTAMP, date(2024, 1, 1)),
    ],
)
def test_wrong_values_are_refused_by_column_name(type, value):
    codec = RowCodec((Column("fine", BIGINT), Column("price", type)))
    with pytest.raises(InvalidRow, match="column price"):
        codec.encode_one((1, value))


@pytest.mark.parametrize(
    ("type", "value", "stored"),
    [
        (BIGINT, np.int32(7), 7),
        (DOUBLE, 3, 3.0),
        (decimal(4, 2), 12, Decimal("12.00")),
        (decimal(4, 2), -2.75, Decimal("-2.75")),
        (decimal(38, 2), 2.0**70, Decimal("1180591620717411303424.00")),
        (decimal(4, 2), Decimal("1.5000"), Decimal("1.50")),
        (decimal(38, 0), 10**38 - 1, Decimal(10**38 - 1)),
        (BINARY, bytearray(b"x"), b"x"),
        (TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)),
        (
            TIMESTAMP,
            datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2024, 1, 1),
        ),
    ],
)
def test_values_that_mean_the_same_are_taken(type, value, stored):
    codec = RowCodec((Column("a", type),))
    (found,) = codec.decode_one(codec.encode_one((value,)))
    assert str(found) == str(stored)


def test_frames_must_have_the_columns_and_dtypes():
    codec = RowCodec((Column("a", INT),))
    with pytest.raises(InvalidRow, match="column a"):
        codec.encode(pl.DataFrame({"a": [1]}))
    with pytest.raises(InvalidRow, match="missing"):
        codec.encode(pl.DataFrame({"b": [1]}))
    assert codec.encode(pl.DataFrame({"a": [None]})) == [codec.encode_one((None,))]


def test_layout_is_as_drawn():
    codec = RowCodec((Column("a", INT), Column("s", STRING), Column("b", BOOLEAN)))
    assert codec.encode_one((5, "hi", None)) == (
        b"\x01\x00" + b"\x04" + b"\x05\x00\x00\x00" + b"\x02\x00\x00\x00" + b"\x00" + b"hi"
    )


def test_codecs_are_values():
    codec = RowCodec((Column("a", INT), Column("s", STRING)))
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert len({codec, RowCodec(codec.columns), RowCodec(codec.columns, 2)}) == 2


def test_thousands_of_columns() -> None:
    """What is generated for them stays flat enough for Python's compiler."""
    codec = RowCodec([Column(f"c{place}", STRING) for place in range(4_000)])
    row = tuple(f"{place}" for place in range(4_000))
    assert codec.decode_one(codec.encode_one(row)) == row
    key = KeyCodec((STRING,) * 4_000)
    assert key.packer.call(*[b"x"] * 4_000) == b"\1x\0\0" * 4_000
