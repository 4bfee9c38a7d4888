"""Many keys and rows at once: the same as one by one, for every type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.codec.keys import KeyCodec
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
    DataType,
    decimal,
)

if TYPE_CHECKING:
    from viewkeep import Database

    CatchUp = Callable[[], Any]

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False),
    STRING: st.text(max_size=5),
    BINARY: st.binary(max_size=5),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(),
    decimal(12, 3): st.decimals(-(10**8), 10**8, places=3),
}
TYPES = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4)


def rows_of(types: list[DataType]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(st.none() | VALUES[type_] for type_ in types)), max_size=30)


@given(types=TYPES, data=st.data())
def test_rows(types: list[DataType], data: st.DataObject) -> None:
    codec = RowCodec([Column(f"c{place}", type_) for place, type_ in enumerate(types)])
    rows = [codec.encode_one(row) for row in data.draw(rows_of(types))]
    assert codec.decode_tuples(rows) == [codec.decode_one(row) for row in rows]
    indices = data.draw(st.lists(st.integers(0, len(types) - 1), max_size=3))
    assert codec.decode_tuples(rows, indices) == [codec.decode_one(row, indices) for row in rows]


@given(types=TYPES, data=st.data())
def test_keys(types: list[DataType], data: st.DataObject) -> None:
    codec = KeyCodec(tuple(types), tuple(data.draw(st.booleans()) for _ in types))
    rows = data.draw(rows_of(types).filter(bool))
    columns = list(zip(*rows, strict=True))
    assert codec.encode_many(columns) == [codec.encode_one(row) for row in rows]
    prefix = data.draw(st.integers(1, len(types)))
    assert codec.encode_many(columns[:prefix]) == [codec.encode_one(row[:prefix]) for row in rows]


def test_long_keys_are_bounded_alike() -> None:
    codec = KeyCodec((STRING, INT))
    rows = [("x" * size, 1) for size in (3, 470, 490, 500, 2000)]
    assert codec.encode_many(list(zip(*rows, strict=True))) == [codec.encode_one(r) for r in rows]
    prefixes = [codec.encode_one(row[:1]) for row in rows]
    assert codec.encode_many([[row[0] for row in rows]]) == prefixes


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, "1", 1.5, True])
def test_wrong_keys_are_refused_alike(value: object) -> None:
    codec = KeyCodec((INT,))
    with pytest.raises(InvalidRow) as one:
        codec.encode_one((value,))
    with pytest.raises(InvalidRow) as many:
        codec.encode_many([[1, value, 2]])
    assert str(one.value) == str(many.value)


def test_damaged_rows_are_told() -> None:
    codec = RowCodec([Column("a", INT), Column("d", DATE)])
    good = [codec.encode_one((n, dt.date(2024, 1, 1))) for n in range(20)]
    for bad in (good[0][:-1], b"\7\0" + good[0][2:], good[0][:-4] + b"\xff\xff\xff\x7f"):
        with pytest.raises(Corrupt):
            codec.decode_tuples([*good, bad])


def test_a_decimal_of_too_many_digits_is_told() -> None:
    codec = RowCodec([Column("w", decimal(12, 3))])
    for last in (b"\x7f", b"\x80"):
        damaged = codec.encode_one((Decimal(1),))[:-1] + last
        with pytest.raises(Corrupt):
            codec.decode([damaged])


def test_get_many(db: Database, catch_up: CatchUp) -> None:
    db.sql("""
        CREATE TABLE t (k STRING, n INT, w DECIMAL(8,2), PRIMARY KEY (k, n));
        CREATE VIEW by_k AS SELECT k, COUNT(*) AS c, SUM(w) AS w FROM t GROUP BY k;
        CREATE VIEW by_n AS SELECT n, MIN(k) AS low, COUNT(*) AS c FROM t GROUP BY n;
        CREATE VIEW by_both AS SELECT n, k, COUNT(*) AS c FROM t GROUP BY n, k;
        CREATE VIEW total AS SELECT COUNT(*) AS c FROM t;
        CREATE INDEX t_n ON t (n);
    """)
    rows = [(f"k{n % 7}", n, Decimal(n) / 4) for n in range(50)]
    db.put("t", [dict(zip(("k", "n", "w"), row, strict=True)) for row in rows])
    catch_up()
    numbers = [*range(-3, 55), 7, 7]
    for name, keys in {
        "by_k": [f"k{n % 9}" for n in numbers],
        "by_n": numbers,
        "by_both": [(n, f"k{n % 7}") for n in numbers],
        "t": [(f"k{n % 7}", n) for n in numbers],
        "t_n": [(n, f"k{n % 7}") for n in numbers],
        "total": [(), ()],
    }.items():
        one_by_one = [db.get(name, key) for key in keys]
        assert db.get_many(name, keys) == one_by_one
        assert any(one_by_one)
        assert db.get_many(name, keys[:1]) == one_by_one[:1]
        assert db.get_many(name, []) == []
    assert db.get_many("by_n", [{"n": 1}, (2,), [3], 4]) == [db.get("by_n", n) for n in range(1, 5)]
    assert db.get_many("by_n", [None, 1])[0] is None
    with pytest.raises(InvalidRow, match="needs an int, not '1'"):
        db.get_many("by_n", [1, "1"])
    with pytest.raises(InvalidRow, match=r"the key of by_both is \(n, k\); got 1 of them"):
        db.get_many("by_both", [(1, "k1"), (1,)])
    with pytest.raises(InvalidRow, match="t: key column n is NULL"):
        db.get_many("t", [("k1", 1), ("k1", None)])
