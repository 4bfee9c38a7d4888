"""The bytes of one value in a cell, as key-value stores usually write them.

Law: `decoder(type)(encoder(type)(value))` equals the value; equal values have equal bytes.

    BOOLEAN 1 byte · INT, DATE 4 · BIGINT, TIMESTAMP (microseconds) 8 · DOUBLE 8 (IEEE) · DECIMAL 16
    (unscaled), all big-endian, signed ones in two's complement · STRING, BINARY as they are

These are HBase's `Bytes` and, for most types, Cassandra's own bytes, by which that store breaks
ties.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.errors import Unsupported
from viewkeep.types import DataType

_FORMATS = {
    "BOOLEAN": "B",
    "INT": ">i",
    "DATE": ">i",
    "BIGINT": ">q",
    "TIMESTAMP": ">q",
    "DOUBLE": ">d",
}
_DECIMAL = 16


def encoder(type: DataType) -> Callable[[Any], bytes]:
    """The function from a Python value, not None, to its bytes."""
    physical, packed = to_physical(type), physical_encoder(type)
    return lambda value: packed(physical(value))


def decoder(type: DataType) -> Callable[[bytes], Any]:
    """The function back."""
    physical, python = physical_decoder(type), to_python(type)
    return physical if python is None else lambda data: python(physical(data))


def physical_encoder(type: DataType) -> Callable[[Any], bytes]:
    """The function from a physical value, as `codec.scalars` has it, to its bytes."""
    if type.is_decimal:
        return lambda value: int.to_bytes(value, _DECIMAL, "big", signed=True)
    form = _form(type)
    return bytes if form is None else form.pack


def physical_decoder(type: DataType) -> Callable[[bytes], Any]:
    """The function from a value's bytes to its physical value, as `codec.scalars` has it."""
    if type.is_decimal:
        return lambda data: int.from_bytes(data, "big", signed=True)
    form = _form(type)
    return bytes if form is None else lambda data: form.unpack(data)[0]


def _form(type: DataType) -> struct.Struct | None:
    """How values of a fixed width are written."""
    if type.is_array:
        raise Unsupported("a cell holds no ARRAY", hint="Only columns of views have arrays")
    format = _FORMATS.get(type.name)
    return None if format is None else struct.Struct(format)
