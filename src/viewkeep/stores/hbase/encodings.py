"""How values lie in HBase: as its own `Bytes` writes them, or as text.

Law: `decode(encode(value))` equals the value; bytes that are no value raise BadBytes.

    bytes   BOOLEAN 1 byte (0 is false) · INT, DATE 4 · BIGINT, TIMESTAMP 8 · DOUBLE 8, big-endian ·
            DECIMAL 16 (unscaled) · STRING in UTF-8 · BINARY as it is
    text    what SQL would print, in UTF-8: 12, 1.50, true, 2026-01-31, 2026-01-31 08:00:00

A DATE is days and a TIMESTAMP microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from viewkeep.codec import cells
from viewkeep.codec.scalars import to_physical
from viewkeep.errors import Unsupported
from viewkeep.types import DataType

WIDTHS = {"BOOLEAN": 1, "INT": 4, "DATE": 4, "BIGINT": 8, "TIMESTAMP": 8, "DOUBLE": 8}
_DECIMAL = 16
# Not BOOLEAN, of which any byte but 0 is true, nor DOUBLE, which has many NaNs and two zeros.
_EXACT = {"INT", "DATE", "BIGINT", "TIMESTAMP", "STRING", "BINARY"}


class BadBytes(ValueError):
    """Bytes that are no value of their type."""


@dataclass(frozen=True)
class Encoding:
    """One type in one form. `width` is that of every value; None if they differ.

    If it `is_exact`, `encode(decode(data))` is `data` for all that it reads.
    """

    type: DataType
    name: str
    width: int | None
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    is_exact: bool = False


def encoding(type: DataType, name: str = "", width: int | None = None) -> Encoding:
    """The encoding of this name, `bytes` if there is none; a STRING may be filled up to a width."""
    if name in ("", "bytes"):
        made = _as_bytes(type)
    elif name == "text" and type.name != "BINARY":
        exact = type.name == "STRING"
        made = Encoding(type, "text", None, _to_text(type), _from_text(type), exact)
    else:
        raise Unsupported(
            f"there is no encoding {name!r} of {type} in HBase",
            hint="Write bytes (as HBase's Bytes) or text",
        )
    if width is None:
        return made
    if made.width is not None or type.name not in ("STRING", "BINARY"):
        raise Unsupported(f"{type} takes no width in HBase, but STRING does")
    both = _filled(made, width), _stripped(made, width)
    return Encoding(type, made.name, width, *both, made.is_exact)


def _as_bytes(type: DataType) -> Encoding:
    encode, physical = cells.encoder(type), cells.decoder(type)
    width = _DECIMAL if type.is_decimal else WIDTHS.get(type.name)
    valid = to_physical(type)

    def decode(data: bytes) -> Any:
        if width is not None and len(data) != width:
            raise BadBytes(f"{len(data)} bytes are no {type}, which has {width}")
        try:
            value = bool(data[0]) if type.name == "BOOLEAN" else physical(data)
            valid(value)  # such as the range of dates
        except (ValueError, OverflowError) as error:
            raise BadBytes(str(error)) from error
        return value

    return Encoding(type, "bytes", width, encode, decode, type.name in _EXACT)


def _to_text(type: DataType) -> Callable[[Any], bytes]:
    if type.name == "BOOLEAN":
        return lambda value: b"true" if value else b"false"
    return lambda value: str(value).encode()


def _from_text(type: DataType) -> Callable[[bytes], Any]:
    read, valid = _READERS["DECIMAL" if type.is_decimal else type.name], to_physical(type)

    def decode(data: bytes) -> Any:
        try:
            value = read(data.decode())
            valid(value)
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise BadBytes(f"{data[:40]!r} is no {type}") from error
        return value

    return decode


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "BOOLEAN": _boolean,
    "INT": int,
    "BIGINT": int,
    "DOUBLE": float,
    "DECIMAL": Decimal,
    "STRING": str,
    "DATE": date.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
}


def _filled(made: Encoding, width: int) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        data = made.encode(value)
        if len(data) > width or data.endswith(b"\0"):
            raise BadBytes(f"{value!r} does not fit into {width} bytes filled with zeros")
        return data.ljust(width, b"\0")

    return encode


def _stripped(made: Encoding, width: int) -> Callable[[bytes], Any]:
    return lambda data: made.decode(data.rstrip(b"\0"))
