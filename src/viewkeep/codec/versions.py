"""Version lists: the value of a state row holds its body at several epochs, newest first.

Law: `visible(value, at)` is the body pushed last at or before `at`, for every `at` not before the
horizon of the last push; pushing the same body at the same epoch again changes nothing.

    value = entry entry ...                         newest first, epochs strictly falling
    entry = epoch u64 · length i32 · body           little-endian; length -1: the row was deleted

Functions for many values take them as they are stored, with `tail` bytes after each, so that nobody
copies them only to cut a checksum off.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from viewkeep.codec.packed import Packed, prefixed
from viewkeep.deferred import np
from viewkeep.errors import Corrupt

_ENTRY = struct.Struct("<Qi")
_HEADER = _ENTRY.size
_unpack = _ENTRY.unpack_from
_FEW = 50  # values up to which one at a time is faster than the fixed cost of arrays


def visible(value: bytes, at: int | None, tail: int = 0) -> bytes | None:
    """The body as of epoch `at` (None: the newest); None if there was no row."""
    end = len(value) - tail
    try:
        epoch, length = _unpack(value)
        place = _HEADER
        if at is not None:
            while epoch > at:
                place += length if length > 0 else 0
                if place >= end:
                    return None
                epoch, length = _unpack(value, place)
                place += _HEADER
    except struct.error as error:
        raise Corrupt("a version list is cut short") from error
    if length < 0:
        return None
    if place + length > end:
        raise Corrupt("a version list is cut short")
    return value[place : place + length]


def visible_many(
    values: Sequence[bytes | None], at: int | None, tail: int = 0
) -> list[bytes | None]:
    """`visible` of each value, None for None."""
    if len(values) > _FEW and (end := _all_newest(values, at, tail)):
        return [value and value[_HEADER:end] for value in values]
    least = _HEADER + tail
    found: list[bytes | None] = []
    append = found.append
    for value in values:
        if value is None:
            append(None)
            continue
        if len(value) < least:
            raise Corrupt("a version list is cut short")
        # The newest version is nearly always the one: take it without a call.
        epoch, length = _unpack(value)
        if (at is None or epoch <= at) and 0 <= length <= len(value) - least:
            append(value[_HEADER : _HEADER + length])
        else:
            append(visible(value, at, tail))
    return found


def _all_newest(values: Sequence[bytes | None], at: int | None, tail: int) -> int:
    """Where bodies end if all values are of one size, hold one version, and show it; 0 if not."""
    sizes = set(map(len, filter(None, values)))
    if len(sizes) != 1 or (end := (size := sizes.pop()) - tail) < _HEADER:
        return 0
    entry = np.dtype([("epoch", "<u8"), ("length", "<i4"), ("rest", f"V{size - _HEADER}")])
    entries = np.frombuffer(b"".join(filter(None, values)), entry)
    if bool((entries["length"] != end - _HEADER).any()):
        return 0
    return end if at is None or bool((entries["epoch"] <= at).all()) else 0


def push(value: bytes | None, epoch: int, body: bytes | None, horizon: int) -> bytes:
    """The value with `body` (None: deleted) as of `epoch`, which must lie after `horizon`.

    An entry of the same epoch is replaced. Kept are the versions after `horizon` and the newest at
    or before it: all that a reader at or after `horizon` can ask for.
    """
    entry = _ENTRY.pack(epoch, -1) if body is None else _ENTRY.pack(epoch, len(body)) + body
    if not value:
        return entry
    if len(value) < _HEADER:
        raise Corrupt("a version list is cut short")
    newest, length = _unpack(value)
    if newest <= horizon:
        # The usual case: one older version is enough.
        return entry + value[: _HEADER + max(length, 0)]
    newer = rest = end = 0  # where later versions end, and where earlier ones start and end
    for kept_epoch, end in _entries(value):
        if kept_epoch > epoch:
            newer = rest = end
        elif kept_epoch == epoch:
            rest = end
        if kept_epoch <= horizon:
            break
    return value[:newer] + entry + value[rest:end]


def push_many(
    values: Sequence[bytes | None],
    epoch: int,
    bodies: Sequence[bytes | None],
    horizon: int,
    tail: int = 0,
) -> list[bytes]:
    """`push` of each body to the value beside it; what is made has no tail."""
    entries = first_many(epoch, bodies)
    if not any(values):
        return entries
    # Rows last written by the same epoch, with bodies of one length, begin with the same bytes:
    # what is kept of them is found out once.
    kept: dict[bytes, int] = {}
    for head in {value[:_HEADER] for value in values if value}:
        if len(head) < _HEADER:
            raise Corrupt("a version list is cut short")
        newest, length = _unpack(head)
        if newest > horizon:
            pairs = zip(values, bodies, strict=True)
            return [
                push(value and value[: len(value) - tail], epoch, body, horizon)
                for value, body in pairs
            ]
        kept[head] = _HEADER + max(length, 0)
    return [
        entry + value[: kept[value[:_HEADER]]] if value else entry
        for value, entry in zip(values, entries, strict=True)
    ]


def first_many(epoch: int, bodies: Sequence[bytes | None] | Packed) -> list[bytes]:
    """`push` of each body to no value: lists of one version."""
    if isinstance(bodies, Packed):
        matrix = bodies.matrix
        if matrix is not None:
            return prefixed(_ENTRY.pack(epoch, matrix.shape[1]), bodies)
        bodies = bodies.to_list()
    there = [body for body in bodies if body is not None]
    heads = {length: _ENTRY.pack(epoch, length) for length in set(map(len, there))}
    if len(there) < len(bodies):
        gone = _ENTRY.pack(epoch, -1)
        return [gone if body is None else heads[len(body)] + body for body in bodies]
    if len(heads) == 1:
        (head,) = heads.values()
        return [head + body for body in there]
    return [heads[len(body)] + body for body in there]


def between(value: bytes, after: int, upto: int) -> list[tuple[int, bytes | None]]:
    """The body as of `after`, stamped so, then each change in (after, upto], oldest first."""
    found: list[tuple[int, bytes | None]] = []
    start: bytes | None = None
    place = 0
    for epoch, end in _entries(value):
        if end > len(value):
            raise Corrupt("a version list is cut short")
        if epoch <= upto:
            deleted = _unpack(value, place)[1] < 0
            body = None if deleted else value[place + _HEADER : end]
            if epoch <= after:
                start = body
                break
            found.append((epoch, body))
        place = end
    changes = [(after, start)]
    for epoch, body in reversed(found):
        if body != changes[-1][1]:
            changes.append((epoch, body))
    return changes


def without(value: bytes, after: int, upto: int) -> bytes:
    """The value without the versions of epochs in (after, upto]; empty if there are no others."""
    kept, place = b"", 0
    for epoch, end in _entries(value):
        if epoch <= after:
            return kept + value[place:]
        if epoch > upto:
            kept += value[place:end]
        place = end
    return kept


def newest_epoch(value: bytes) -> int:
    """The epoch of the newest version."""
    return int.from_bytes(value[:8], "little")


def is_deleted(value: bytes) -> bool:
    """Whether the newest version is a tombstone."""
    return value[8:12] == b"\xff\xff\xff\xff"


def _entries(value: bytes) -> Iterator[tuple[int, int]]:
    """Epoch and end of each entry, newest first."""
    place = 0
    while place < len(value):
        try:
            epoch, length = _unpack(value, place)
        except struct.error as error:
            raise Corrupt("a version list is cut short") from error
        after = place + _HEADER + max(length, 0)
        yield epoch, after
        place = after
