"""Columns and rows of an answer: what MySQL calls each type, and values as text or binary.

Law: a value comes out as MySQL's clients write the same value: DECIMAL with its scale, TIMESTAMP as
DATETIME(6) in UTC, BOOLEAN as 0 or 1, an ARRAY as JSON. Nothing is rounded.

    text row     each value a lenenc string, FB for NULL
    binary row   00, a bitmap of NULLs from bit 2 on, then each value that is not NULL
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from viewkeep.deferred import pl
from viewkeep.serve.mysql.faults import DATABASE_NAME
from viewkeep.serve.mysql.protocol.packets import NULL, lenenc, string

TINY, LONG, DOUBLE, NULL_TYPE, LONGLONG, DATE, DATETIME = 1, 3, 5, 6, 8, 10, 12
JSON, NEWDECIMAL, BLOB, VAR_STRING = 245, 246, 252, 253
BINARY_CHARSET, TEXT_CHARSET = 63, 46
_BINARY_FLAG, _NUMBER_FLAG, _BLOB_FLAG = 0x80, 0x8000, 0x10

Encoder = Callable[[Any], bytes]
_I8, _I32, _I64, _F64 = (struct.Struct(form).pack for form in ("<b", "<i", "<q", "<d"))


@dataclass(frozen=True)
class Field:
    """One column of an answer as MySQL describes it."""

    name: str
    type: int
    length: int
    decimals: int = 0
    charset: int = BINARY_CHARSET
    flags: int = 0

    def definition(self, codec: str) -> bytes:
        name = string(self.name.encode(codec, "replace"))
        schema = string(DATABASE_NAME.encode())
        fixed = struct.pack(
            "<BHIBHBH", 12, self.charset, self.length, self.type, self.flags, self.decimals, 0
        )
        return b"\x03def" + schema + b"\x00\x00" + name + name + fixed


def field_of(name: str, dtype: pl.DataType) -> Field:
    """The column that a polars column is to a client."""
    if dtype == pl.Boolean:
        return Field(name, TINY, 1, flags=_NUMBER_FLAG)
    if dtype == pl.Int32 or dtype == pl.Int16 or dtype == pl.Int8:
        return Field(name, LONG, 11, flags=_NUMBER_FLAG)
    if dtype.is_integer():
        return Field(name, LONGLONG, 20, flags=_NUMBER_FLAG)
    if dtype.is_float():
        return Field(name, DOUBLE, 22, 31, flags=_NUMBER_FLAG)
    if isinstance(dtype, pl.Decimal):
        scale = dtype.scale or 0
        return Field(name, NEWDECIMAL, (dtype.precision or 38) + 2, scale, flags=_NUMBER_FLAG)
    if dtype == pl.Date:
        return Field(name, DATE, 10, flags=_BINARY_FLAG)
    if isinstance(dtype, pl.Datetime):
        return Field(name, DATETIME, 26, 6, flags=_BINARY_FLAG)
    if dtype == pl.Binary:
        return Field(name, BLOB, 0xFFFFFFFF, flags=_BINARY_FLAG | _BLOB_FLAG)
    if isinstance(dtype, pl.List):
        return Field(name, JSON, 0xFFFFFFFF, flags=_BINARY_FLAG | _BLOB_FLAG)
    if dtype == pl.Null:
        return Field(name, NULL_TYPE, 0, flags=_BINARY_FLAG)
    return Field(name, VAR_STRING, 0xFFFF * 4, 31, TEXT_CHARSET)


def text_encoders(fields: Sequence[Field], codec: str) -> list[Encoder]:
    """How each column is written as text."""

    def text(value: Any) -> bytes:
        return string(str(value).encode(codec, "replace"))

    return [text if field.type == VAR_STRING else _TEXT[field.type] for field in fields]


def text_row(encoders: Sequence[Encoder], row: Sequence[Any]) -> bytes:
    """A row of a text answer."""
    return b"".join(
        [
            NULL if value is None else encode(value)
            for encode, value in zip(encoders, row, strict=True)
        ]
    )


def binary_encoders(fields: Sequence[Field], codec: str) -> list[Encoder]:
    """How each column is written in binary."""

    def text(value: Any) -> bytes:
        return string(str(value).encode(codec, "replace"))

    return [text if field.type == VAR_STRING else _BINARY[field.type] for field in fields]


def binary_row(encoders: Sequence[Encoder], row: Sequence[Any]) -> bytes:
    """A row of an answer to a prepared statement."""
    nulls = 0
    parts: list[bytes] = []
    for place, (encode, value) in enumerate(zip(encoders, row, strict=True)):
        if value is None:
            nulls |= 1 << (place + 2)
        else:
            parts.append(encode(value))
    return b"\0" + nulls.to_bytes((len(encoders) + 9) // 8, "little") + b"".join(parts)


def json_text(value: list[Any]) -> str:
    """An ARRAY as JSON: numbers as they are, everything else that JSON lacks as text."""
    return json.dumps(value, default=_json_value, ensure_ascii=False)


def plain_text(value: Any) -> str:
    """A value as its text alone, as MySQL prints it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, dt.datetime):
        return value.isoformat(" ", "microseconds")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return plain_text(value)


def _short(text: str) -> bytes:
    return lenenc(len(text)) + text.encode("ascii")


def _json(value: Any) -> bytes:
    return string(json_text(value).encode())


def _decimal(value: Any) -> bytes:
    return _short(format(value, "f") if isinstance(value, Decimal) else str(value))


def _date(value: dt.date) -> bytes:
    return struct.pack("<BHBB", 4, value.year, value.month, value.day)


def _datetime(value: dt.datetime) -> bytes:
    date = (value.year, value.month, value.day)
    time = (value.hour, value.minute, value.second)
    if value.microsecond:
        return struct.pack("<BHBBBBBI", 11, *date, *time, value.microsecond)
    return struct.pack("<BHBBBBB", 7, *date, *time)


_TEXT: dict[int, Encoder] = {
    TINY: lambda value: b"\x011" if value else b"\x010",
    LONG: lambda value: _short(str(value)),
    LONGLONG: lambda value: _short(str(value)),
    DOUBLE: lambda value: _short(repr(value)),
    NEWDECIMAL: _decimal,
    DATE: lambda value: _short(value.isoformat()),
    DATETIME: lambda value: _short(value.isoformat(" ", "microseconds")),
    BLOB: string,
    JSON: _json,
    NULL_TYPE: lambda value: NULL,
}
_BINARY: dict[int, Encoder] = {
    TINY: lambda value: _I8(bool(value)),
    LONG: _I32,
    LONGLONG: _I64,
    DOUBLE: _F64,
    NEWDECIMAL: _decimal,
    DATE: _date,
    DATETIME: _datetime,
    BLOB: string,
    JSON: _json,
    NULL_TYPE: lambda value: b"",
}
