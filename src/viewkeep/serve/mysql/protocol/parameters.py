"""The values of prepared statements, as COM_STMT_EXECUTE carries them.

Law: each value becomes the constant that a text would have: numbers as they are, times as texts,
since a text in the place of a time means that time.

    bitmap of NULLs, 01 if types follow, types 2 bytes each, values that are neither NULL nor long
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from viewkeep.serve.mysql.literals import Constant
from viewkeep.serve.mysql.protocol.packets import Cursor, Malformed

_UNSIGNED = 0x8000
_WIDTHS = {1: 1, 2: 2, 13: 2, 3: 4, 9: 4, 8: 8}
_TEXTS = frozenset({0, 15, 16, 246, 247, 248, 253, 254, 245})
_BLOBS = frozenset({249, 250, 251, 252, 255})

Types = Sequence[int]


def read_parameters(
    cursor: Cursor, count: int, known: Types | None, long: Mapping[int, bytes], codec: str
) -> tuple[Types, list[Constant | None]]:
    """The types and values of an execution; `long` are values that came ahead in pieces."""
    if not count:
        return (), []
    nulls = int.from_bytes(cursor.take((count + 7) // 8), "little")
    if cursor.uint(1):
        known = [cursor.uint(2) for _ in range(count)]
    if known is None or len(known) != count:
        raise Malformed("an execution has no types for its values")
    values: list[Constant | None] = []
    for place, kind in enumerate(known):
        if place in long:
            raw = long[place]
            values.append(raw if kind & 0xFF in _BLOBS else raw.decode(codec, "replace"))
        elif nulls >> place & 1:
            values.append(None)
        else:
            values.append(_value(cursor, kind, codec))
    return known, values


def _value(cursor: Cursor, kind: int, codec: str) -> Constant | None:
    base = kind & 0xFF
    if base in _WIDTHS:
        width = _WIDTHS[base]
        return int.from_bytes(cursor.take(width), "little", signed=not kind & _UNSIGNED)
    if base == 4:
        return float(struct.unpack("<f", cursor.take(4))[0])
    if base == 5:
        return float(struct.unpack("<d", cursor.take(8))[0])
    if base == 6:
        return None
    if base in _TEXTS:
        return cursor.string().decode(codec, "replace")
    if base in _BLOBS:
        return cursor.string()
    if base in (7, 10, 12):
        return _moment(Cursor(cursor.take(cursor.uint(1))))
    if base == 11:
        return _duration(Cursor(cursor.take(cursor.uint(1))))
    raise Malformed(f"there is no type {base}")


def _moment(cursor: Cursor) -> str:
    year, month, day = (
        (cursor.uint(2), cursor.uint(1), cursor.uint(1)) if cursor.left else (0, 0, 0)
    )
    text = f"{year:04}-{month:02}-{day:02}"
    if cursor.left:
        text += f" {cursor.uint(1):02}:{cursor.uint(1):02}:{cursor.uint(1):02}"
    if cursor.left:
        text += f".{cursor.uint(4):06}"
    return text


def _duration(cursor: Cursor) -> str:
    if not cursor.left:
        return "00:00:00"
    sign, days = "-" if cursor.uint(1) else "", cursor.uint(4)
    hours, minutes, seconds = cursor.uint(1), cursor.uint(1), cursor.uint(1)
    fraction = f".{cursor.uint(4):06}" if cursor.left else ""
    return f"{sign}{days * 24 + hours:02}:{minutes:02}:{seconds:02}{fraction}"
