"""Versioned state rows of one shard.

Law: a read at epoch e sees exactly the writes stamped at or before e, or raises EpochGone; applying
the writes of an epoch again changes nothing; an epoch older than the shard's is refused.

    rows   table u32 · key                  -> version list (`codec.versions`)
    sweep  epoch u64 · table u32 · key      -> empty: the row was deleted at that epoch
    info   "shard"                          -> latest epoch seen u64 · horizon u64
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice

from viewkeep.codec import versions
from viewkeep.codec.keys import MAX_KEY
from viewkeep.errors import EpochGone, Fenced, InvalidRow
from viewkeep.stores.contract import Chunk, StateWrite
from viewkeep.stores.lmdb.environment import Environment, Transaction, translated
from viewkeep.stores.lmdb.ranges import PREFIX, key_range, walk

_INFO = struct.Struct("<QQ")
_INFO_KEY = b"shard"
_EPOCH = struct.Struct(">Q")


def get(
    shard: Environment, table: int, keys: Sequence[bytes], at: int | None
) -> list[bytes | None]:
    """The rows of these keys as of epoch `at`, in their order."""
    prefix = table.to_bytes(PREFIX, "big")
    with translated, shard.begin() as txn:
        _check_kept(shard, txn, at)
        if len(keys) == 1:
            value = txn.get(prefix + keys[0], db=shard.dbs["rows"])
            return [None if value is None else versions.visible(value, at)]
        full = [prefix + key for key in keys]
        with txn.cursor(db=shard.dbs["rows"]) as cursor:
            found = dict(cursor.getmulti(sorted(full)))
    return versions.visible_many([found.get(key) for key in full], at)


def scan(
    shard: Environment,
    table: int,
    start: bytes,
    stop: bytes | None,
    limit: int,
    at: int | None,
    reverse: bool,
) -> Chunk:
    """Up to `limit` rows of a range that exist as of epoch `at`."""
    low, high = key_range(table, start, stop)
    visible = versions.visible
    with translated, shard.begin() as txn, txn.cursor(db=shard.dbs["rows"]) as cursor:
        _check_kept(shard, txn, at)
        rows = (
            (key, row)
            for key, value in walk(cursor, low, high, reverse)
            if (row := visible(value, at)) is not None
        )
        taken = list(islice(rows, limit + 1))
    more = len(taken) > limit
    del taken[limit:]
    return Chunk([key[PREFIX:] for key, _ in taken], [row for _, row in taken], more)


def apply(shard: Environment, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
    """Stamp these rows with `epoch` in one transaction."""
    if horizon >= epoch:
        raise ValueError(f"horizon {horizon} must lie before epoch {epoch}")
    rows: dict[bytes, bytes | None] = {}
    for write in writes:
        if write.keys and max(map(len, write.keys)) > MAX_KEY:
            raise InvalidRow(f"a key is longer than {MAX_KEY} bytes; pass it through codec.bounded")
        prefix = write.table.to_bytes(PREFIX, "big")
        rows.update(zip([prefix + key for key in write.keys], write.rows, strict=True))
    keys = sorted(rows)
    push = versions.push
    with shard.writing() as txn:
        seen, kept_from = _info(shard, txn)
        if epoch < seen:
            raise Fenced(f"epoch {epoch} is over: epoch {seen} has already written to this shard")
        _advance(shard, txn, epoch, max(horizon, kept_from))
        with txn.cursor(db=shard.dbs["rows"]) as cursor:
            old = dict(cursor.getmulti(keys))
            # A row that never was needs no tombstone.
            changed = [key for key in keys if rows[key] is not None or key in old]
            cursor.putmulti(
                [(key, push(old.get(key), epoch, rows[key], horizon)) for key in changed]
            )
        stamp = _EPOCH.pack(epoch)
        with txn.cursor(db=shard.dbs["sweep"]) as cursor:
            cursor.putmulti([(stamp + key, b"") for key in changed if rows[key] is None])


def sweep(shard: Environment, horizon: int, budget: int) -> bool:
    """Remove rows whose newest version is a tombstone at or before `horizon`."""
    with shard.reading() as txn, txn.cursor(db=shard.dbs["sweep"]) as cursor:
        # Look before taking the write lock: most epochs have nothing to sweep.
        if not cursor.first() or _EPOCH.unpack_from(cursor.key())[0] > horizon:
            return False
    rows = shard.dbs["rows"]
    with shard.writing() as txn:
        seen, kept_from = _info(shard, txn)
        _advance(shard, txn, seen, max(horizon, kept_from))
        with txn.cursor(db=shard.dbs["sweep"]) as cursor:
            found = cursor.first()
            while found:
                record = cursor.key()
                if _EPOCH.unpack_from(record)[0] > horizon:
                    return False
                if budget <= 0:
                    return True
                budget -= 1
                key = record[_EPOCH.size :]
                value = txn.get(key, db=rows)
                # A row written again since is kept; if it was deleted again, a later record of
                # this db stands for that.
                if (
                    value is not None
                    and versions.is_deleted(value)
                    and versions.newest_epoch(value) <= horizon
                ):
                    txn.delete(key, db=rows)
                cursor.delete()
                found = bool(cursor.key())
    return False


def _info(shard: Environment, txn: Transaction) -> tuple[int, int]:
    """The latest epoch that wrote here, and the horizon: what is older may be gone."""
    record = txn.get(_INFO_KEY, db=shard.dbs["info"])
    return _INFO.unpack(record) if record else (0, 0)


def _advance(shard: Environment, txn: Transaction, epoch: int, horizon: int) -> None:
    txn.put(_INFO_KEY, _INFO.pack(epoch, horizon), db=shard.dbs["info"])


def _check_kept(shard: Environment, txn: Transaction, at: int | None) -> None:
    if at is None:
        return
    horizon = _info(shard, txn)[1]
    if at < horizon:
        raise EpochGone(f"epoch {at} is no longer kept: versions are kept from epoch {horizon} on")
