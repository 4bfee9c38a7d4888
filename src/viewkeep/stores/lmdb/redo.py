"""Redo records: a write over several nodes is whole, though LMDB commits one node at a time.

Law: once the lowest node of a write has committed, the write happens on all its nodes, whatever
crashes; before that, on none.

The transaction of the lowest node also stores what the other nodes have yet to commit, as bytes:
rows, log segments, and the stretch of the log that they fill. A part is pending while its node's
log ends before that stretch does. Whoever locks a node next applies its pending parts first, so no
write and no cut ever comes between the parts of a write. The record stays until the next such
write replaces it, which first makes sure that nothing of it is pending.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from viewkeep.errors import Corrupt
from viewkeep.stores.lmdb import log
from viewkeep.stores.lmdb.environment import Environment, Transaction

_KEY = b"redo"
_PART = struct.Struct("<IQQIII")  # node, start, stop; numbers of puts, deletes and segments
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Part:
    """What one write does on one node: its log grows from offset `start` to `stop`."""

    start: int
    stop: int
    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    segments: Sequence[tuple[int, int, bytes]] = field(repr=False)  # offset, operations, bytes


def apply_part(node: Environment, txn: Transaction, part: Part) -> None:
    """Store a part's rows and append its segments."""
    rows = node.dbs["rows"]
    with txn.cursor(db=rows) as cursor:
        cursor.putmulti(part.puts)
    for key in part.deletes:
        txn.delete(key, db=rows)
    for offset, count, segment in part.segments:
        log.append_value(node, txn, offset, count, segment)


def save(node: Environment, txn: Transaction, parts: Mapping[int, Part]) -> None:
    """Store the parts of the other nodes with the lowest node's own."""
    txn.put(_KEY, _encode(parts), db=node.dbs["info"])


def finish(nodes: Sequence[Environment], index: int, txn: Transaction) -> bool:
    """Apply what is pending for a node in its write transaction; whether there was anything."""
    node, applied = nodes[index], False
    found = [part for lower in range(index) if (part := _read(nodes[lower], index)) is not None]
    # Of two parts that are pending, the later one was made on top of the earlier one.
    for part in sorted(found, key=lambda part: part.start):
        end = log.end(node, txn).offset
        if end >= part.stop:
            continue
        if end != part.start:
            raise Corrupt(
                f"{node.path}: the log ends at {end}, but an unfinished write begins at "
                f"{part.start}; restore a backup"
            )
        apply_part(node, txn, part)
        applied = True
    return applied


def complete(nodes: Sequence[Environment]) -> None:
    """Finish every write that a crash has left half committed. Takes one lock at a time."""
    for index in range(1, len(nodes)):
        if _is_pending(nodes, index):
            with nodes[index].writing() as txn:
                finish(nodes, index, txn)


def any_pending(nodes: Sequence[Environment]) -> bool:
    """Whether some write is half committed, by a writer that died or is at it now."""
    return any(_is_pending(nodes, index) for index in range(1, len(nodes)))


def _is_pending(nodes: Sequence[Environment], index: int) -> bool:
    stops = [part.stop for lower in range(index) if (part := _read(nodes[lower], index))]
    if not stops:
        return False
    with nodes[index].reading() as txn:
        return log.end(nodes[index], txn).offset < max(stops)


def _read(node: Environment, wanted: int) -> Part | None:
    """The part of one node in the record that another one holds."""
    with node.reading() as txn:
        record = txn.get(_KEY, db=node.dbs["info"])
        return None if record is None else _decode(record, wanted)


def _encode(parts: Mapping[int, Part]) -> bytes:
    pieces: list[bytes] = []

    def add(value: bytes) -> None:
        pieces.append(_LENGTH.pack(len(value)))
        pieces.append(value)

    for index, part in parts.items():
        counts = len(part.puts), len(part.deletes), len(part.segments)
        begin = len(pieces)
        pieces.append(_PART.pack(index, part.start, part.stop, *counts))
        for key, row in part.puts:
            add(key)
            add(row)
        for key in part.deletes:
            add(key)
        for offset, count, segment in part.segments:
            pieces.append(struct.pack("<QI", offset, count))
            add(segment)
        body = b"".join(pieces[begin:])
        pieces[begin:] = [struct.pack("<Q", len(body)), body]
    return b"".join(pieces)


def _decode(record: bytes, wanted: int) -> Part | None:
    place = 0
    while place < len(record):
        (size,) = struct.unpack_from("<Q", record, place)
        place += 8
        index, start, stop, puts, deletes, segments = _PART.unpack_from(record, place)
        if index == wanted:
            return _decode_part(record, place + _PART.size, start, stop, puts, deletes, segments)
        place += size
    return None


def _decode_part(
    record: bytes, place: int, start: int, stop: int, puts: int, deletes: int, segments: int
) -> Part:
    def take() -> bytes:
        nonlocal place
        (length,) = _LENGTH.unpack_from(record, place)
        place += _LENGTH.size + length
        return record[place - length : place]

    put_rows = [(take(), take()) for _ in range(puts)]
    deleted = [take() for _ in range(deletes)]
    logged = []
    for _ in range(segments):
        offset, count = struct.unpack_from("<QI", record, place)
        place += 12
        logged.append((offset, count, take()))
    return Part(start, stop, put_rows, deleted, logged)
