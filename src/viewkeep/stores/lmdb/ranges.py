"""Key ranges of one table within a db that holds many: u32 table number, then the table's key.

Law: a range never leaves its table.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def walk(cursor: Cursor, low: bytes, high: bytes, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    """The records with low <= key < high, in key order or backwards."""
    if low >= high:
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
