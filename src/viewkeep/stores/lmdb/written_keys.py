"""Which keys an epoch has written, listed per table, so that changes are found without a scan.

Law: if `since` is at or before an epoch, and the epoch lies after the horizon, then the list of a
table names every key of it that the epoch wrote, or says that they were many; where there is no
list, it wrote none. Lists are written in the transaction of the rows.

    info   "noted" · epoch u64 · table u32   -> (length u16 · key)* , or empty: too many to list
           "since noted"                     -> epoch u64, the first whose writes were listed
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from viewkeep.stores.contract import StateWrite
from viewkeep.stores.lmdb import sums
from viewkeep.stores.lmdb.environment import Environment, Transaction
from viewkeep.stores.lmdb.ranges import walk

MOST = 2_000  # keys of a table and epoch that are listed; if it writes more, the table is scanned
_FORGOTTEN = 1_000  # lists removed at a time
_PREFIX = b"noted"
_SINCE = b"since noted"
_PLACE = struct.Struct(">QI")
_EPOCH = struct.Struct(">Q")
_PREFIX_SIZE = len(_PREFIX) + _PLACE.size
_LENGTH = struct.Struct("<H")


def add(
    shard: Environment, txn: Transaction, seen: int, epoch: int, writes: Sequence[StateWrite]
) -> None:
    """List the keys of some writes; `seen` is the latest epoch that wrote here before.

    Listing them again changes nothing.
    """
    if sums.get(shard, txn, "info", _SINCE) is None:
        # Tasks of this epoch may have written before lists were kept: count from the next.
        sums.put(shard, txn, "info", _SINCE, _EPOCH.pack(epoch + 1 if seen else 0))
    wanted: dict[bytes, list[StateWrite]] = {}
    for write in writes:
        if write.keys:
            wanted.setdefault(_PREFIX + _PLACE.pack(epoch, write.table), []).append(write)
    places = sorted(wanted)
    with txn.cursor(db=shard.dbs["info"]) as cursor:
        known = dict(sums.present(shard, cursor, places, "info"))
        changed = []
        for place in places:
            listed = known.get(place)
            for write in wanted[place]:
                listed = _with(listed, write)
            if listed is not None and listed != known.get(place):
                changed.append((place, listed))
        lists = sums.sealed_all([place for place, _ in changed], [keys for _, keys in changed])
        cursor.putmulti([(place, made) for (place, _), made in zip(changed, lists, strict=True)])


def _with(known: bytes | None, write: StateWrite) -> bytes:
    """A list with the keys of a write too."""
    if known == b"" or len(write.keys) > MOST:
        return b""
    keys = write.key_list
    if known is not None:
        keys = sorted({*_unpacked(known), *keys})
    return _packed(keys) if len(keys) <= MOST else b""


def forget(shard: Environment, txn: Transaction, horizon: int) -> None:
    """Remove the lists of epochs up to the horizon, some at a time."""
    with txn.cursor(db=shard.dbs["info"]) as cursor:
        found, left = cursor.set_range(_PREFIX), _FORGOTTEN
        while found and left:
            key = cursor.key()
            if len(key) != _PREFIX_SIZE or not key.startswith(_PREFIX):
                return
            if _PLACE.unpack_from(key, len(_PREFIX))[0] > horizon:
                return
            cursor.delete()
            found, left = bool(cursor.key()), left - 1


def between(
    shard: Environment, txn: Transaction, table: int, after: int, upto: int
) -> set[bytes] | None:
    """The keys that epochs in (after, upto] wrote; None if they are not listed."""
    since = sums.get(shard, txn, "info", _SINCE)
    if since is None or _EPOCH.unpack(since)[0] > after + 1:
        return None
    keys: set[bytes] = set()
    for epoch in range(after + 1, upto + 1):
        known = sums.get(shard, txn, "info", _PREFIX + _PLACE.pack(epoch, table))
        if known == b"":
            return None
        keys.update(_unpacked(known or b""))
    return keys


def tables(
    shard: Environment, txn: Transaction, after: int, upto: int
) -> dict[int, set[bytes] | None] | None:
    """The keys that epochs in (after, upto] wrote by table, None for many; None if not listed."""
    since = sums.get(shard, txn, "info", _SINCE)
    if since is None or _EPOCH.unpack(since)[0] > after + 1:
        return None
    found: dict[int, set[bytes] | None] = {}
    low, high = _PREFIX + _PLACE.pack(after + 1, 0), _PREFIX + _PLACE.pack(upto + 1, 0)
    with txn.cursor(db=shard.dbs["info"]) as cursor:
        for key, listed in walk(shard, cursor, low, high, False, db="info"):
            _, table = _PLACE.unpack_from(key, len(_PREFIX))
            known = found.setdefault(table, set())
            found[table] = (
                None if listed == b"" or known is None else known.union(_unpacked(listed))
            )
    return found


def _packed(keys: Sequence[bytes]) -> bytes:
    return b"".join([_LENGTH.pack(len(key)) + key for key in keys])


def _unpacked(listed: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(listed):
        (length,) = _LENGTH.unpack_from(listed, place)
        place += _LENGTH.size
        yield listed[place : place + length]
        place += length
