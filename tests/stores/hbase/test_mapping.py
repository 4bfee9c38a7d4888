"""How rows of HBase are rows of SQL: row keys, encodings, bad bytes, and operations."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.cells import CellKind
from viewkeep.errors import InvalidRow, Unsupported
from viewkeep.stores.contract import NamedTable
from viewkeep.stores.hbase.encodings import BadBytes, encoding
from viewkeep.stores.hbase.log_table import (
    DELETE_CELLS,
    DELETE_FAMILY,
    DELETE_FAMILY_VERSION,
    DELETE_VERSION,
    PUT,
    RowChange,
    WalCell,
)
from viewkeep.stores.hbase.mapping import TableMapping
from viewkeep.stores.hbase.tables import Mappings
from viewkeep.stores.hbase.wire import Cell
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
    Schema,
    decimal,
)

VALUES = [
    (BOOLEAN, True, b"\x01", b"true"),
    (INT, -2, b"\xff\xff\xff\xfe", b"-2"),
    (BIGINT, 258, b"\0\0\0\0\0\0\x01\x02", b"258"),
    (DOUBLE, 1.5, b"\x3f\xf8\0\0\0\0\0\0", b"1.5"),
    (decimal(5, 2), Decimal("-1.50"), b"\xff" * 15 + b"\x6a", b"-1.50"),
    (STRING, "é", b"\xc3\xa9", b"\xc3\xa9"),
    (DATE, date(1970, 1, 3), b"\0\0\0\x02", b"1970-01-03"),
    (TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1), b"\0\0\0\0\0\x0f\x42\x40", b"1970-01-01 00:00:01"),
]


def mapping(keys: dict[str, DataType], others: dict[str, DataType], **options: str) -> TableMapping:
    columns = tuple(Column(name, type) for name, type in (keys | others).items())
    return TableMapping(NamedTable("t", 7, Schema(columns, tuple(keys)), tuple(options.items())))


@pytest.mark.parametrize(("type", "value", "as_bytes", "as_text"), VALUES)
def test_values(type: DataType, value: Any, as_bytes: bytes, as_text: bytes) -> None:
    for name, data in (("bytes", as_bytes), ("text", as_text)):
        form = encoding(type, name)
        assert form.encode(value) == data
        assert form.decode(data) == value


@pytest.mark.parametrize(
    ("type", "name", "data"),
    [
        (INT, "bytes", b"\0\0\0"),
        (BIGINT, "bytes", b"12"),
        (BIGINT, "text", b"twelve"),
        (INT, "text", b"3000000000"),
        (STRING, "bytes", b"\xff"),
        (DATE, "bytes", b"\x7f\xff\xff\xff"),
        (DATE, "text", b"2026-02-30"),
        (TIMESTAMP, "bytes", b"\x7f" + b"\xff" * 7),
        (BOOLEAN, "text", b"yes"),
        (decimal(3, 1), "text", b"1000"),
    ],
)
def test_bytes_that_are_no_value(type: DataType, name: str, data: bytes) -> None:
    with pytest.raises(BadBytes):
        encoding(type, name).decode(data)


def test_a_boolean_of_another_writer() -> None:
    """HBase's own `Bytes.toBytes(true)` is -1."""
    assert encoding(BOOLEAN).decode(b"\xff") is True


KEYS = [
    ({"a": STRING}, "{a}", ("x",), b"x"),
    ({"a": STRING, "b": BIGINT}, "{a}|{b}", ("x", 1), b"x|" + b"\0" * 7 + b"\x01"),
    ({"a": STRING, "b": BIGINT}, "{b:text}-{a}", ("x-y", 12), b"12-x-y"),
    ({"a": STRING, "b": INT}, "{a:text(4)}{b}", ("ab", 1), b"ab\0\0\0\0\0\x01"),
    ({"a": INT, "b": BINARY}, "user:{a}{b}", (1, b"\xff"), b"user:\0\0\0\x01\xff"),
    ({"d": DATE, "a": STRING}, "{d:text}/{a}/end", (date(2026, 1, 2), "x"), b"2026-01-02/x/end"),
]


@pytest.mark.parametrize(("key", "form", "values", "row_key"), KEYS)
def test_row_keys(key: Any, form: str, values: tuple[Any, ...], row_key: bytes) -> None:
    made = mapping(key, {"n": INT}, key=form)
    assert made.row_key(values) == row_key
    assert made.key_values(row_key) == values


@given(st.text(alphabet="ab|c", max_size=4), st.integers(-(2**63), 2**63 - 1))
def test_every_row_key_that_is_written_reads_back(text: str, number: int) -> None:
    made = mapping({"a": STRING, "b": BIGINT}, {"n": INT}, key="{a}|{b}")
    if "|" in text:
        with pytest.raises(InvalidRow):
            made.row_key((text, number))
    else:
        assert made.key_values(made.row_key((text, number))) == (text, number)


@given(st.binary(max_size=20))
def test_any_row_key_is_a_key_or_counted(data: bytes) -> None:
    made = mapping({"a": STRING, "b": INT}, {"n": INT}, key="{a}|{b}")
    found = made.key_of(data)
    assert (found is None) == (made.unreadable.rows == 1)
    if found is not None:
        assert made.row_key(made.key_values(data)) == data


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": "{a}{b}"}, "a has no end"),
        ({"key": "{a}"}, "each key column once"),
        ({"key": "{a}|{b}|{a}"}, "each key column once"),
        ({"key": "{a}|{b}|{n}"}, "each key column once"),
        ({"key": "{a|{b}"}, "each key column once"),
        ({"key": "{a}|{b:hex}"}, "no encoding 'hex'"),
        ({"key": "{a}|{b:text(4)}"}, "takes no width"),
        ({"columns": "n"}, "says nothing of a column"),
        ({"columns": "m=f:m"}, "says nothing of a column"),
        ({"columns": "n=f:x, o=f:x"}, "two columns"),
        ({"tabel": "t"}, "no option 'tabel'"),
        ({"table": "a b"}, "no name of a table"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], reason: str) -> None:
    options.setdefault("key", "{a}|{b}")
    with pytest.raises(Unsupported, match=reason):
        mapping({"a": STRING, "b": BIGINT}, {"n": INT, "o": INT}, **options)


def test_row_keys_that_say_the_same_are_not_one_row() -> None:
    made = mapping({"a": BIGINT}, {"n": INT}, key="{a:text}")
    assert made.key_of(b"12") == (made.key_codec.encode_one((12,)), None)
    assert [made.key_of(data) for data in (b"012", b"1_2", b" 12", b"+12")] == [None] * 4


def test_a_table_needs_a_column_besides_its_key() -> None:
    with pytest.raises(Unsupported, match="besides its key"):
        mapping({"a": STRING}, {})


def test_bad_cells_are_null_and_counted() -> None:
    made = mapping({"a": STRING}, {"n": INT, "o": STRING}, columns="n=d:n:text")
    cells = [Cell(b"d", b"n", b"many", 1), Cell(b"f", b"o", b"ok", 1), Cell(b"x", b"y", b"", 1)]
    found = made.row_of(b"k", cells)
    assert found is not None
    assert made.row_codec.decode_one(found[1]) == ("k", None, "ok")
    assert (made.unreadable.rows, made.unreadable.cells) == (0, 1)
    assert "many" in made.unreadable.last
    assert made.row_of(b"k", cells[:1]) is None
    assert made.row_of(b"\xff", cells) is None
    assert made.unreadable.rows == 1


def test_an_older_plan_takes_no_table_away() -> None:
    """A process that runs a plan may load an older one, which has fewer tables, at any time."""
    shapes = [
        NamedTable(name, number, Schema((Column("k", BIGINT), Column("x", BIGINT)), ("k",)))
        for number, name in enumerate(("old", "new"))
    ]
    mappings = Mappings()
    mappings.learn(shapes)
    mappings.learn(shapes[:1])
    cell = WalCell(PUT, 1, b"f", b"x", bytes(8))
    change = RowChange("new", "region", 1, 1, bytes(8), [cell])
    assert [operation.table for operation in mappings.translate(change)] == [1]
    assert [*mappings.translate(change, {0})] == []


def test_operations() -> None:
    made = mapping({"a": STRING}, {"n": INT, "o": STRING, "p": INT}, columns="o=g:o, p=g:p:text")
    one = made.key_codec.encode_one(("k",))

    def operations(*cells: tuple[int, int, bytes, bytes, bytes]) -> list[tuple[Any, ...]]:
        found = made.operations(b"k", [WalCell(*cell) for cell in cells], 5)
        return [(op.kind, op.key, op.timestamp, op.cells, op.sequence) for op in found]

    assert operations(
        (PUT, 3, b"f", b"n", b"\0\0\0\x01"),
        (PUT, 4, b"g", b"o", b"x"),
        (PUT, 3, b"g", b"p", b"7"),
        (PUT, 3, b"f", b"n", b"\0\0\0\x02"),
        (PUT, 3, b"f", b"other", b""),
    ) == [
        (CellKind.PUT, one, 3, ((1, b"\0\0\0\x02"), (3, b"\0\0\0\x07")), 5),
        (CellKind.PUT, one, 4, ((2, b"x"),), 5),
    ]
    assert operations((DELETE_CELLS, 3, b"g", b"o", b""), (DELETE_VERSION, 4, b"f", b"n", b"")) == [
        (CellKind.DELETE_CELLS, one, 3, ((2, None),), 0),
        (CellKind.DELETE_VERSIONS, one, 4, ((1, None),), 0),
    ]
    assert operations(
        (DELETE_FAMILY, 3, b"g", b"", b""), (DELETE_FAMILY_VERSION, 4, b"f", b"", b"")
    ) == [
        (CellKind.DELETE_CELLS, one, 3, ((2, None), (3, None)), 0),
        (CellKind.DELETE_VERSIONS, one, 4, ((1, None),), 0),
    ]
    assert operations((DELETE_FAMILY, 3, b"x", b"", b""), (DELETE_CELLS, 3, b"f", b"y", b"")) == []
    assert list(made.operations(b"\xff", [WalCell(PUT, 3, b"f", b"n", b"\0\0\0\x01")], 1)) == []


def test_the_deletion_of_the_only_family_is_that_of_the_row() -> None:
    made = mapping({"a": STRING}, {"n": INT})
    (found,) = made.operations(b"k", [WalCell(DELETE_FAMILY, 3, b"f", b"", b"")], 1)
    assert (found.kind, found.timestamp) == (CellKind.DELETE_ROW, 3)


def test_rows_become_cells_and_cells_rows() -> None:
    made = mapping({"a": STRING, "b": INT}, {"n": INT, "o": STRING}, key="{a:text(3)}{b}")
    row = made.row_codec.encode_one(("x", 1, None, "y"))
    row_key, cells = made.cells_of(row)
    assert cells == {(b"f", b"n"): None, (b"f", b"o"): b"y"}
    back = made.row_of(
        row_key, [Cell(*column, value, 1) for column, value in cells.items() if value]
    )
    assert back == (made.key_codec.encode_one(("x", 1)), row)
