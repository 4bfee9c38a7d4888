"""Key ranges of one table within a db that holds many: u32 table number, then the table's key.

Law: a range never leaves its table.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeep.codec.patterns import KeyPattern
from viewkeep.stores.lmdb.environment import Cursor, Environment

PREFIX = 4
_LAST_TABLE = (1 << 32) - 1


def key_range(table: int, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """The db keys low <= key < high of a table's keys start <= key < stop."""
    prefix = table.to_bytes(PREFIX, "big")
    if stop is not None:
        return prefix + start, prefix + stop
    if table == _LAST_TABLE:
        # No number follows; no key is longer than 511 bytes.
        return prefix + start, prefix + b"\xff" * 512
    return prefix + start, (table + 1).to_bytes(PREFIX, "big")


def walk(
    cursor: Cursor, low: bytes, high: bytes, reverse: bool, only: KeyPattern | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """The records with low <= key < high, in key order or backwards.

    With `only`, those of one table whose keys match the pattern.
    """
    if low >= high:
        return
    if only is not None:
        matching = _matching_back if reverse else _matching
        yield from matching(cursor, low, high, only)
        return
    if not reverse:
        if cursor.set_range(low):
            for item in cursor.iternext():
                if item[0] >= high:
                    return
                yield item
        return
    if cursor.prev() if cursor.set_range(high) else cursor.last():
        for item in cursor.iterprev():
            if item[0] < low:
                return
            yield item


def _matching(
    cursor: Cursor, low: bytes, high: bytes, only: KeyPattern
) -> Iterator[tuple[bytes, bytes]]:
    """Matching records in key order.

    Measured: 4.4 us for each 100 records of which one matches; where every seek leads only to the
    next record, 1.0 to 1.2 us a record, against 0.7 us in a scan of all.
    """
    table = low[:PREFIX]
    found = cursor.set_range(low)
    while found:
        key = cursor.key()
        if key >= high:
            return
        gap = only.gap(key[PREFIX:])
        if gap is None:
            yield cursor.item()
            found = cursor.next()
            continue
        target = only.after(key[PREFIX:], gap)
        if target is None:
            return
        found = cursor.set_range(table + target)


def _matching_back(
    cursor: Cursor, low: bytes, high: bytes, only: KeyPattern
) -> Iterator[tuple[bytes, bytes]]:
    """Matching records backwards."""
    table = low[:PREFIX]
    found = cursor.prev() if cursor.set_range(high) else cursor.last()
    while found:
        key = cursor.key()
        if key < low:
            return
        gap = only.gap(key[PREFIX:])
        if gap is None:
            yield cursor.item()
            found = cursor.prev()
            continue
        target = only.before(key[PREFIX:], gap)
        if target is None:
            return
        found = cursor.prev() if cursor.set_range(table + target) else cursor.last()


def drop_rows(environment: Environment, table: int, budget: int) -> tuple[int, bool]:
    """Remove up to `budget` records of a table; how many were, and whether more remain."""
    low, high = key_range(table, b"", None)
    removed = 0
    with environment.writing() as txn, txn.cursor(db=environment.dbs["rows"]) as cursor:
        found = cursor.set_range(low)
        while found and cursor.key() < high:
            if removed >= budget:
                return removed, True
            cursor.delete()
            removed += 1
            found = bool(cursor.key())
    return removed, False
