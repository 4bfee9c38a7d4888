"""The log of one node: what is appended, where it begins and ends, and cuts found in it.

Law: offsets count operations and never go back; moments never fall from one segment to the next;
both hold across truncation, even of the whole log. A segment that is damaged or missing raises
Corrupt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from viewkeep.deferred import np
from viewkeep.errors import Corrupt, EpochGone
from viewkeep.stores.contract import LogBatch
from viewkeep.stores.lmdb import segments, sums
from viewkeep.stores.lmdb.environment import Cursor, Environment, Transaction, translated

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_OPERATIONS = 65_536
BATCH_BYTES = 32 << 20
_OFFSET = struct.Struct(">Q")
_FLOOR = struct.Struct("<QQQ")
_FLOOR_KEY = b"log"


class Position(NamedTuple):
    """A place between segments: operations before it, the last moment, and log bytes before it."""

    offset: int
    moment: int
    log_bytes: int


class Appending:
    """The end of a node's log in a write transaction, and what was appended since it began."""

    def __init__(self, node: Environment, txn: Transaction, end: Position):
        self.node, self.txn, self.end = node, txn, end
        self.segments: list[tuple[int, bytes]] = []  # by the offsets where they begin

    def append(self, count: int, moment: int, value: bytes) -> int:
        """Append one segment; the new end offset."""
        offset, _, log_bytes = self.end
        stop = append_value(self.node, self.txn, offset, count, value)
        self.segments.append((offset, value))
        self.end = Position(stop, moment, log_bytes + len(value))
        return stop

    def within(self, txn: Transaction) -> Appending:
        """The same for a transaction within this one."""
        inner = copy(self)
        inner.txn, inner.segments = txn, []
        return inner

    def adopt(self, inner: Appending) -> None:
        """The transaction within this one has become a part of it."""
        self.segments += inner.segments
        self.end = inner.end


def floor(node: Environment, txn: Transaction) -> Position:
    """Where the kept log begins: the end of what was truncated."""
    record = sums.get(node, txn, "info", _FLOOR_KEY)
    return Position(*_FLOOR.unpack(record)) if record else Position(0, 0, 0)


def end(node: Environment, txn: Transaction) -> Position:
    """Where the next segment goes."""
    with txn.cursor(db=node.dbs["log"]) as cursor:
        return _after(node, cursor) if cursor.last() else floor(node, txn)


def known_end(node: Environment, txn: Transaction) -> Position:
    """`end` in a write transaction that has appended nothing."""
    number, known = node.log_end
    return known if number == txn.id() - 1 else end(node, txn)


def append_value(node: Environment, txn: Transaction, at: int, count: int, value: bytes) -> int:
    """Append one segment at offset `at`; returns the new end offset."""
    txn.put(_OFFSET.pack(at), value, append=True, db=node.dbs["log"])
    return at + count


def read(
    node: Environment, start: int, stop: int, tables: frozenset[int] | None
) -> Iterator[LogBatch]:
    """The operations of a range, one batch per table for each bounded stretch of the log."""
    while start < stop:
        with node.reading() as txn:
            keys, values = gather(node, txn, start, stop)
        if not values:
            raise _missing(node, start)
        table_of, batch = parse(node, keys, values)
        reached = int(batch.offsets[-1]) + 1
        within = (batch.offsets >= start) & (batch.offsets < stop)
        for table in sorted(set(table_of.tolist())):
            if tables is not None and table not in tables:
                continue
            chosen = within & (table_of == table)
            if chosen.any():
                yield segments.choose(batch, chosen, table)
        start = reached


def parse(
    node: Environment, keys: list[bytes], values: list[bytes]
) -> tuple[NDArray[np.int64], LogBatch]:
    """`segments.parse`, with the checksums checked and the file named if there is damage."""
    sums.check(node, keys, values, "log")
    try:
        return segments.parse(keys, values)
    except Corrupt as error:
        raise Corrupt(f"{node.path / 'data.mdb'} is damaged: {error}") from error


def gather(
    node: Environment, txn: Transaction, start: int, stop: int
) -> tuple[list[bytes], list[bytes]]:
    """The segments from the one that holds `start`, up to `stop` or the bound of a batch.

    Their keys and values; none if the log ends before `start`.
    """
    begins = floor(node, txn).offset
    if start < begins:
        raise EpochGone(f"the log is kept from operation {begins}; {start} was asked for")
    keys: list[bytes] = []
    values: list[bytes] = []
    with txn.cursor(db=node.dbs["log"]) as cursor:
        if not _seek(node, cursor, start):
            return keys, values
        first = _OFFSET.unpack(cursor.key())[0]
        limit = _OFFSET.pack(min(stop, first + BATCH_OPERATIONS))
        size = 0
        for key, value in cursor.iternext():
            if key >= limit or size > BATCH_BYTES:
                break
            keys.append(key)
            values.append(value)
            size += len(value)
    return keys, values


def position_at(node: Environment, txn: Transaction, moment: int, low: int, high: int) -> int:
    """The offset between `low` and `high` before the first segment later than `moment`."""
    with txn.cursor(db=node.dbs["log"]) as cursor:
        while low < high:
            if not _seek(node, cursor, (low + high) // 2):
                return high
            after = _after(node, cursor)
            if after.moment > moment:
                high = int(_OFFSET.unpack(cursor.key())[0])
            else:
                low = after.offset
    return low


def first_moment(node: Environment, txn: Transaction, offset: int) -> int | None:
    """The moment of the segment that holds `offset`; None at the end of the log."""
    with txn.cursor(db=node.dbs["log"]) as cursor:
        return _after(node, cursor).moment if _seek(node, cursor, offset) else None


def bytes_before(node: Environment, txn: Transaction, offset: int) -> int:
    """Log bytes of all segments before this offset."""
    with txn.cursor(db=node.dbs["log"]) as cursor:
        found = cursor.prev() if cursor.set_range(_OFFSET.pack(offset)) else cursor.last()
        return (_after(node, cursor) if found else floor(node, txn)).log_bytes


def truncate(node: Environment, before: int, budget: int) -> tuple[int, bool]:
    """Drop segments that lie wholly before an offset; how many were, and whether more remain."""
    with node.reading(buffers=True) as txn, txn.cursor(db=node.dbs["log"]) as cursor:
        # Look before taking the write lock, which costs the application's writers a turn.
        if not cursor.first() or _after(node, cursor).offset > before:
            return 0, False
        if budget <= 0:
            return 0, True
    dropped = 0
    last: Position | None = None
    more = False
    with node.writing(buffers=True) as txn, txn.cursor(db=node.dbs["log"]) as cursor:
        found = cursor.first()
        while found:
            after = _after(node, cursor)
            if after.offset > before:
                break
            if dropped >= budget:
                more = True
                break
            last = after
            dropped += 1
            cursor.delete()
            found = bool(cursor.key())
        if last is not None:
            record = _FLOOR.pack(last.offset, last.moment, last.log_bytes)
            sums.put(node, txn, "info", _FLOOR_KEY, record)
    return dropped, more


def kept_operations(node: Environment) -> int:
    """How many operations the log holds."""
    with translated, node.begin() as txn:
        return end(node, txn).offset - floor(node, txn).offset


def _seek(node: Environment, cursor: Cursor, offset: int) -> bool:
    """Move to the segment that holds `offset`; False if the log ends before it."""
    if cursor.set_range(sought := _OFFSET.pack(offset)):
        if cursor.key() == sought:
            return True
        if not cursor.prev() or _after(node, cursor).offset <= offset:
            raise _missing(node, offset)
        return True
    return bool(cursor.last()) and _after(node, cursor).offset > offset


def _after(node: Environment, cursor: Cursor) -> Position:
    """The position after the segment under the cursor."""
    key, value = cursor.item()
    head = value[: segments.HEAD]
    if crc32(head, crc32(key)) or not head:
        raise sums.damaged(node, bytes(key), "log")
    _, _, count, moment, log_bytes = segments.HEADER.unpack_from(head)
    return Position(int(_OFFSET.unpack(key)[0]) + count, moment, log_bytes)


def _missing(node: Environment, offset: int) -> Corrupt:
    return Corrupt(
        f"{node.path / 'data.mdb'} is damaged: its log lacks operation {offset}. "
        "Restore the database from a backup"
    )
