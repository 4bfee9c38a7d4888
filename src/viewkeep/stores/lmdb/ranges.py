"""Key ranges of one table within a db that holds many: u32 table number, then the table's key.

Law: a range never leaves its table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from operator import gt, lt
from typing import TypeAlias

from viewkeep.codec.patterns import KeyPattern
from viewkeep.stores.lmdb import sums
from viewkeep.stores.lmdb.environment import Cursor, Environment

PREFIX = 4
Block: TypeAlias = tuple[list[bytes], list[bytes]]  # keys and values
_LAST_TABLE = (1 << 32) - 1
_FIRST_BLOCK, _LARGEST_BLOCK = 8, 4096  # records


def key_range(table: int, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """The db keys low <= key < high of a table's keys start <= key < stop."""
    prefix = table.to_bytes(PREFIX, "big")
    if stop is not None:
        return prefix + start, prefix + stop
    if table == _LAST_TABLE:
        # No number follows; no key is longer than 511 bytes.
        return prefix + start, sums.LAST
    return prefix + start, (table + 1).to_bytes(PREFIX, "big")


def walk(
    environment: Environment,
    cursor: Cursor,
    low: bytes,
    high: bytes,
    reverse: bool,
    only: KeyPattern | None = None,
    db: str = "rows",
) -> Iterator[tuple[bytes, bytes]]:
    """The records of `blocks`, one by one."""
    for keys, values in blocks(environment, cursor, low, high, reverse, only, db):
        yield from zip(keys, values, strict=True)


def blocks(
    environment: Environment,
    cursor: Cursor,
    low: bytes,
    high: bytes,
    reverse: bool,
    only: KeyPattern | None = None,
    db: str = "rows",
) -> Iterator[Block]:
    """Keys and values with low <= key < high, in key order or backwards, checked block by block.

    With `only`, those of one table whose keys match the pattern. The records on both sides of the
    range are checked too, since damage may have moved one out of it. Blocks grow, so that little
    is read in vain.
    """
    if low >= high:
        return
    if only is not None:
        matching = _matching_back if reverse else _matching
        for key, value in matching(environment, cursor, low, high, only):
            yield [key], [value]
        return
    if reverse:
        found = seek_before(environment, cursor, high, db)
        records, last, size = cursor.iterprev(), high, _FIRST_BLOCK
    else:
        found = sums.seek(environment, cursor, low, db)
        records, last, size = cursor.iternext(), b"", _FIRST_BLOCK
    while found and (block := list(islice(records, size))):
        keys = [key for key, _ in block]
        found = low <= keys[-1] < high
        if not found:
            # What lies further out is no matter of this range, damaged or not.
            within = sum(1 for _ in takewhile(lambda key: low <= key < high, keys))
            del keys[within + 1 :], block[within + 1 :]
        values = sums.opened_present(environment, keys, [stored for _, stored in block], db)
        if not all(map(gt if reverse else lt, [last, *keys], keys)):
            raise sums.disordered(environment)
        last = keys[-1]
        if not found:
            del keys[-1], values[-1]
        if keys:
            yield keys, values
        size = min(4 * size, _LARGEST_BLOCK)


def seek_before(environment: Environment, cursor: Cursor, key: bytes, db: str = "rows") -> bool:
    """Move to the last record before a key, which is for the caller to check."""
    if not cursor.set_range(key):
        return bool(cursor.last())
    after, stored = cursor.item()
    sums.opened(environment, after, stored, db)
    if after < key:
        raise sums.disordered(environment)
    return bool(cursor.prev())


def _matching(
    environment: Environment, cursor: Cursor, low: bytes, high: bytes, only: KeyPattern
) -> Iterator[tuple[bytes, bytes]]:
    """Matching records in key order.

    Measured: 4.4 us for each 100 records of which one matches; where every seek leads only to the
    next record, 1.0 to 1.2 us a record, against 0.7 us in a scan of all.
    """
    table, target = low[:PREFIX], low
    found = sums.seek(environment, cursor, low)
    while found:
        key, stored = cursor.item()
        value = sums.opened(environment, key, stored)
        if key < target:
            raise sums.disordered(environment)
        if key >= high:
            return
        gap = only.gap(key[PREFIX:])
        if gap is None:
            yield key, value
            found = cursor.next()
            continue
        after = only.after(key[PREFIX:], gap)
        if after is None:
            return
        target = table + after
        found = sums.seek(environment, cursor, target)


def _matching_back(
    environment: Environment, cursor: Cursor, low: bytes, high: bytes, only: KeyPattern
) -> Iterator[tuple[bytes, bytes]]:
    """Matching records backwards."""
    table, target = low[:PREFIX], high
    found = seek_before(environment, cursor, high)
    while found:
        key, stored = cursor.item()
        value = sums.opened(environment, key, stored)
        if key >= target:
            raise sums.disordered(environment)
        if key < low:
            return
        gap = only.gap(key[PREFIX:])
        if gap is None:
            yield key, value
            found = cursor.prev()
            continue
        before = only.before(key[PREFIX:], gap)
        if before is None:
            return
        target = table + before
        found = seek_before(environment, cursor, target)


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
