"""Log segments: operations of one table, written together, as one record of a node log.

Law: parsing what `pack` made gives the operations back, however many segments are parsed at once.

    key   = offset of the first operation, u64 big-endian
    value = table u32 · flags u8 · count u32 · moment u64 · log bytes u64        25 bytes
          · checksum u32 of the key and these 25 bytes, since cuts read no more of a segment
          · kinds u8[count]
          · key lengths u32[count] · row lengths i32[count] · before lengths i32[count]
          · keys · rows · before-images, each back to back
          · checksum u32 of the key and all before it (`sums`)

All numbers of the value are little-endian; a length of -1 stands for an absent row.
`log bytes` counts the bytes of all segments since the log's beginning, this one included, so the
size of any range is a subtraction. `flags` is 0; it leaves room for timestamps per operation and
for logs without before-images.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeep.codec.packed import Packed, windows
from viewkeep.deferred import np
from viewkeep.errors import Corrupt
from viewkeep.stores.contract import LogBatch
from viewkeep.stores.lmdb import sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = struct.Struct("<IBIQQ")
MAX_OPERATIONS = 4096
MAX_BYTES = 1 << 20
HEAD = HEADER.size + sums.SIZE
_FIXED = 13  # kind and three lengths, per operation
_OFFSET = struct.Struct(">Q")
_ONE = struct.Struct("<BIii")
_FIELDS = [
    ("table", "<u4"),
    ("flags", "u1"),
    ("count", "<u4"),
    ("moment", "<u8"),
    ("log_bytes", "<u8"),
]


@dataclass(frozen=True)
class Operations:
    """Operations of one table on one node, in order, with the rows after and before each."""

    table: int
    kinds: list[int]
    keys: list[bytes]
    rows: list[bytes | None]
    befores: list[bytes | None]


def pack_one(
    table: int,
    kind: int,
    key: bytes,
    row: bytes | None,
    before: bytes | None,
    moment: int,
    log_bytes: int,
    offset: int,
) -> bytes:
    """The segment of a single operation at an offset; `log_bytes` is that before it."""
    row_length = -1 if row is None else len(row)
    before_length = -1 if before is None else len(before)
    size = HEAD + _FIXED + len(key) + max(row_length, 0) + max(before_length, 0) + sums.SIZE
    head = _head(offset, table, 1, moment, log_bytes + size)
    lengths = _ONE.pack(kind, len(key), row_length, before_length)
    return sums.sealed(
        _OFFSET.pack(offset), b"".join([head, lengths, key, row or b"", before or b""])
    )


def _head(offset: int, table: int, count: int, moment: int, log_bytes: int) -> bytes:
    header = HEADER.pack(table, 0, count, moment, log_bytes)
    return sums.sealed(_OFFSET.pack(offset), header)


def pack(
    operations: Operations, moment: int, log_bytes: int, offset: int
) -> Iterator[tuple[int, bytes]]:
    """Segments of bounded size, each with its count, for an offset on.

    `log_bytes` is that before the first.
    """
    keys = operations.keys
    count = len(keys)
    key_lengths = np.fromiter(map(len, keys), np.int64, count)
    row_lengths = _lengths(operations.rows)
    before_lengths = _lengths(operations.befores)
    spans = key_lengths + np.maximum(row_lengths, 0) + np.maximum(before_lengths, 0) + _FIXED
    ends = np.cumsum(spans)
    kinds = np.asarray(operations.kinds, np.uint8)
    start = 0
    while start < count:
        reached = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, reached + MAX_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + MAX_OPERATIONS, count)
        log_bytes += HEAD + int(ends[stop - 1]) - reached + sums.SIZE
        at = offset + start
        segment = b"".join(
            [
                _head(at, operations.table, stop - start, moment, log_bytes),
                kinds[start:stop].tobytes(),
                key_lengths[start:stop].astype("<u4").tobytes(),
                row_lengths[start:stop].astype("<i4").tobytes(),
                before_lengths[start:stop].astype("<i4").tobytes(),
                *keys[start:stop],
                *(row for row in operations.rows[start:stop] if row is not None),
                *(row for row in operations.befores[start:stop] if row is not None),
            ]
        )
        yield stop - start, sums.sealed(_OFFSET.pack(at), segment)
        start = stop


def parse(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[NDArray[np.int64], LogBatch]:
    """All operations of consecutive segments: the table of each, and the rest as one batch.

    The work is vectorised over segments, since most applications write one row at a time and so
    make one segment per operation.
    """
    buffer = np.frombuffer(b"".join(values), np.uint8)
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    starts = np.cumsum(sizes) - sizes
    if int(sizes.min()) < HEAD + sums.SIZE:
        raise Corrupt("a log segment is cut short")
    headers = windows(buffer, HEADER.size)[starts].view(np.dtype(_FIELDS))
    counts = headers["count"].astype(np.int64)
    fixed = HEAD + counts * _FIXED + sums.SIZE
    if bool(headers["flags"].any()) or bool((fixed > sizes).any()):
        raise Corrupt("a log segment's header does not fit its size")
    total = int(counts.sum())
    opening = np.cumsum(counts) - counts  # index of each segment's first operation
    offsets = np.frombuffer(b"".join(keys), ">u8").astype(np.int64)
    first = int(offsets[0])
    if bool((offsets != first + opening).any()):
        raise Corrupt("a log segment is missing")
    within = np.arange(total, dtype=np.int64) - np.repeat(opening, counts)
    body = starts + HEAD
    spread = np.repeat(body, counts)
    count_of = np.repeat(counts, counts)
    kinds = buffer[spread + within]
    word = windows(buffer, 4)
    lengths_at = spread + count_of + 4 * within
    key_lengths = word[lengths_at].view("<i4").astype(np.int64)
    row_lengths = word[lengths_at + 4 * count_of].view("<i4").astype(np.int64)
    before_lengths = word[lengths_at + 8 * count_of].view("<i4").astype(np.int64)
    place = body + counts * _FIXED
    keys_at, place = _spread(key_lengths, counts, opening, place)
    rows_at, place = _spread(np.maximum(row_lengths, 0), counts, opening, place)
    befores_at, place = _spread(np.maximum(before_lengths, 0), counts, opening, place)
    if bool((place + sums.SIZE != starts + sizes).any()):
        raise Corrupt("a log segment's lengths do not add up to its size")
    batch = LogBatch(
        table=-1,
        offsets=first + np.arange(total, dtype=np.int64),
        kinds=kinds,
        keys=Packed(buffer, keys_at, key_lengths),
        rows=Packed(buffer, rows_at, row_lengths),
        before=Packed(buffer, befores_at, before_lengths),
    )
    return np.repeat(headers["table"].astype(np.int64), counts), batch


def choose(batch: LogBatch, chosen: NDArray[np.bool_], table: int) -> LogBatch:
    """The chosen operations of a batch, as a batch of this table."""
    whole = bool(chosen.all())
    return LogBatch(
        table=table,
        offsets=batch.offsets if whole else batch.offsets[chosen],
        kinds=batch.kinds if whole else batch.kinds[chosen],
        keys=batch.keys if whole else batch.keys.take(chosen),
        rows=batch.rows if whole else batch.rows.take(chosen),
        before=batch.before if whole or batch.before is None else batch.before.take(chosen),
    )


def _lengths(rows: Sequence[bytes | None]) -> NDArray[np.int64]:
    return np.fromiter((-1 if row is None else len(row) for row in rows), np.int64, len(rows))


def _spread(
    spans: NDArray[np.int64],
    counts: NDArray[np.int64],
    opening: NDArray[np.int64],
    place: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each operation's bytes start if each segment's begin at `place`, and where they end."""
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(spans)])
    opened = running[opening]
    at = running[:-1] + np.repeat(place - opened, counts)
    return at, place + running[opening + counts] - opened
