"""Versioned state rows of one shard.

Law: a read at epoch e sees exactly the writes stamped at or before e, or raises EpochGone; applying
the writes of an epoch again changes nothing; an epoch older than the shard's is refused, and so is
one that was reverted.

    rows   table u32 · key                  -> version list (`codec.versions`)
    sweep  epoch u64 · table u32 · key      -> empty: the row was deleted at that epoch
    info   "shard"                          -> latest epoch seen u64 · horizon u64
           "size" · table u32               -> rows i64 · bytes i64, with all their versions
           "noted" ...                      -> which keys an epoch wrote; see `written_keys`

Values end in a checksum (`sums`), but for those of `sweep`: a damaged one sweeps nothing that is
not deleted.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, islice, repeat, takewhile
from operator import not_

from viewkeep.codec import versions
from viewkeep.codec.key_order import rising
from viewkeep.codec.keys import MAX_KEY
from viewkeep.codec.packed import Packed, longest, prefixed
from viewkeep.codec.patterns import KeyPattern
from viewkeep.errors import EpochGone, Fenced, InvalidRow
from viewkeep.stores.contract import (
    NONE,
    ROW_BYTES,
    Changed,
    Chunk,
    Floor,
    Found,
    KeyRange,
    StateWrite,
    TableSize,
)
from viewkeep.stores.lmdb import sums, written_keys
from viewkeep.stores.lmdb.environment import Cursor, Environment, Transaction, translated
from viewkeep.stores.lmdb.ranges import PREFIX, blocks, key_range, seek_before, walk

_INFO = struct.Struct("<QQ")
_INFO_KEY = b"shard"
_EPOCH = struct.Struct(">Q")
_SIZE = struct.Struct("<qq")
_SIZE_KEY = b"size"
_FEW = 200  # rows
_AT_ONCE = 50_000  # rows whose old and new versions are in memory
_NEAR = 32  # keys: where the next row is looked for first
_END = b"\xff" * (PREFIX + 1)  # after all records


def get(
    shard: Environment, table: int, keys: Sequence[bytes], at: int | None
) -> list[bytes | None]:
    """The rows of these keys as of epoch `at`, in their order."""
    prefix = table.to_bytes(PREFIX, "big")
    with translated, shard.begin() as txn:
        _check_kept(shard, txn, at)
        rows = shard.dbs["rows"]
        if len(keys) == 1:
            value = sums.get(shard, txn, "rows", prefix + keys[0])
            return [None if value is None else versions.visible(value, at)]
        # One lookup each costs less than a cursor's `getmulti`, which makes pairs.
        look_up = txn.get
        full = [prefix + key for key in keys]
        found = [look_up(key, None, rows) for key in full]
        if None in found:
            absent = sorted(compress(full, [value is None for value in found]))
            with txn.cursor(db=rows) as cursor:
                sums.gaps(shard, cursor, absent)
    sums.check_all(shard, full, found)
    return versions.visible_many(found, at, sums.SIZE)


def scan(
    shard: Environment,
    table: int,
    start: bytes,
    stop: bytes | None,
    limit: int,
    at: int | None,
    reverse: bool,
    only: KeyPattern | None = None,
) -> Chunk:
    """Up to `limit` rows of a range that exist as of epoch `at`."""
    low, high = key_range(table, start, stop)
    keys, rows = list[bytes](), list[bytes]()
    with translated, shard.begin() as txn, txn.cursor(db=shard.dbs["rows"]) as cursor:
        _check_kept(shard, txn, at)
        for block, values in blocks(shard, cursor, low, high, reverse, only):
            for key, row in zip(block, versions.visible_many(values, at), strict=True):
                if row is not None:
                    keys.append(key[PREFIX:])
                    rows.append(row)
            if len(rows) > limit:
                break
    return Chunk(keys[:limit], rows[:limit], len(rows) > limit)


def scan_ranges(
    shard: Environment,
    table: int,
    ranges: Sequence[KeyRange],
    at: int | None,
    limits: Sequence[int] | None,
    reverse: bool,
    size: int,
) -> Iterator[Found]:
    """The rows of each range as of epoch `at`: a transaction and a cursor for each batch."""
    visible = versions.visible
    seek = seek_before if reverse else sums.seek
    head, (_, end) = table.to_bytes(PREFIX, "big"), key_range(table, b"", None)
    place, taken, last = 0, 0, b""  # where to go on: a range, rows of it so far, the last key
    while place < len(ranges):
        places, keys, rows = list[int](), list[bytes](), list[bytes]()
        room = size * ROW_BYTES
        with translated, shard.begin() as txn, txn.cursor(db=shard.dbs["rows"]) as cursor:
            _check_kept(shard, txn, at)
            step = cursor.prev if reverse else cursor.next
            while place < len(ranges) and len(rows) < size and room > 0:
                start, stop = ranges[place]
                low, high = head + start, end if stop is None else head + stop
                limit = size if limits is None else limits[place]
                if last and reverse:
                    high = last
                elif last:
                    low = last + b"\0"
                found = low < high and seek(shard, cursor, high if reverse else low)
                while found and taken < limit and len(rows) < size and room > 0:
                    key, stored = cursor.item()
                    value = sums.opened(shard, key, stored)
                    if not low <= key < high:
                        if (key < low) != reverse:
                            raise sums.disordered(shard)
                        break
                    row = visible(value, at)
                    if row is not None:
                        places.append(place)
                        keys.append(key[PREFIX:])
                        rows.append(row)
                        room -= len(row)
                        taken += limits is not None
                    last = key
                    if reverse:
                        high = key
                    else:
                        low = key
                    found = step()
                else:
                    if found and taken < limit:
                        break  # the batch is full, and the range may have more
                place, taken, last = place + 1, 0, b""
        if rows:
            yield Found(places, keys, rows)


def floor(
    shard: Environment,
    table: int,
    keys: Sequence[bytes],
    lows: Sequence[tuple[bytes, int]],
    at: int | None,
) -> Floor:
    """For each key the last row from its low on as of epoch `at`: a seek for each row, or two.

    Rows that are not there as of `at`, such as those of a task's first run, are passed over once:
    whatever is at or before a key is so for the keys after it, unless another row lies between.
    """
    visible = versions.visible
    head = table.to_bytes(PREFIX, "big")
    found = Floor([], [], [])
    place, sought, following = 0, b"", b""  # no record lies after `sought` and before `following`
    with translated, shard.begin() as txn, txn.cursor(db=shard.dbs["rows"]) as cursor:
        _check_kept(shard, txn, at)
        for low, count in lows:
            first, end = place, place + count
            row_place, least = NONE, head + low
            if sought < least and head + keys[end - 1] < following:
                found.runs.append((NONE, count))
                place = end
            while place < end:
                sought = head + keys[place]
                following = _END
                there = cursor.set_range(sought + b"\0")
                if there:
                    following, stored = cursor.item()
                    sums.opened(shard, following, stored)
                there = cursor.prev() if there else cursor.last()
                if following <= sought or (there and cursor.key() > sought):
                    raise sums.disordered(shard)
                while there:
                    key, stored = cursor.item()
                    value = sums.opened(shard, key, stored)
                    if key < least:
                        break
                    row = visible(value, at)
                    if row is not None:
                        if found.keys[-1:] != [key[PREFIX:]]:
                            found.keys.append(key[PREFIX:])
                            found.rows.append(row)
                        row_place = len(found.keys) - 1
                        break
                    there = cursor.prev()
                # So it is for the keys after this one, up to the next record or the next low.
                until, least = end, following
                if following.startswith(head):
                    beyond, near = following[PREFIX:], place + _NEAR
                    if near < end and keys[near] >= beyond:
                        until = near
                    until = bisect_left(keys, beyond, place, until)
                found.add(row_place, until - place, is_new=place == first)
                place = until
    return found


def changes(
    shard: Environment,
    table: int,
    after: int,
    upto: int,
    start: bytes,
    stop: bytes | None,
    limit: int,
) -> Changed:
    """Up to `limit` rows of a range that epochs in (after, upto] have changed.

    Where an epoch wrote more keys than are listed it looks at every row of the range, 0.35 us each.
    """
    low, high = key_range(table, start, stop)
    newest, between = versions.newest_epoch, versions.between
    keys, found, more = list[bytes](), list[list[tuple[int, bytes | None]]](), False
    with translated, shard.begin() as txn, txn.cursor(db=shard.dbs["rows"]) as cursor:
        _check_kept(shard, txn, after)
        rows = walk(shard, cursor, low, high, False)
        few = list(islice(rows, _FEW)) if start else []
        if start and len(few) < _FEW:
            rows = iter(few)  # a narrow range is read faster than the lists are
        elif (written := written_keys.between(shard, txn, table, after, upto)) is not None:
            full = sorted(table.to_bytes(PREFIX, "big") + key for key in written)
            rows = sums.present(shard, cursor, [key for key in full if low <= key < high])
        else:
            rows = chain(few, rows)
        for key, value in rows:
            if newest(value) <= after:
                continue
            changed = between(value, after, upto)
            if len(changed) > 1:
                if len(keys) == limit:
                    more = True
                    break
                keys.append(key[PREFIX:])
                found.append(changed)
    return Changed(keys, found, more)


def apply(shard: Environment, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
    """Stamp these rows with `epoch` in one transaction."""
    check_writes(epoch, horizon, writes)
    with shard.writing() as txn:
        seen, kept_from = _info(shard, txn)
        if epoch < seen:
            raise Fenced(f"epoch {epoch} is over: epoch {seen} has already written to this shard")
        _advance(shard, txn, epoch, max(horizon, kept_from))
        written_keys.add(shard, txn, seen, epoch, writes)
        written_keys.forget(shard, txn, max(horizon, kept_from))
        few_keys, few_rows = list[bytes](), list[bytes | None]()  # of tables that get few
        for table, keys, rows, are_new in by_table(writes):
            prefix = table.to_bytes(PREFIX, "big")
            if len(keys) <= _FEW:
                few_keys += prefixed(prefix, keys)
                few_rows += rows
                continue
            for at in range(0, len(keys), _AT_ONCE):
                full, bodies = prefixed(prefix, keys[at : at + _AT_ONCE]), rows[at : at + _AT_ONCE]
                if are_new:
                    are_new = _insert(shard, txn, epoch, full, bodies)
                    if are_new:
                        continue
                _stamp(shard, txn, epoch, horizon, full, list(bodies))
        for at in range(0, len(few_keys), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            _stamp(shard, txn, epoch, horizon, few_keys[part], few_rows[part])


def check_writes(epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
    """Refuse what no shard can hold."""
    if horizon >= epoch:
        raise ValueError(f"horizon {horizon} must lie before epoch {epoch}")
    for write in writes:
        if longest(write.keys) > MAX_KEY:
            raise InvalidRow(f"a key is longer than {MAX_KEY} bytes; pass it through codec.bounded")


def seen(shard: Environment) -> tuple[int, int]:
    """The latest epoch that wrote here, and the horizon."""
    with shard.reading() as txn:
        return _info(shard, txn)


def go_on(shard: Environment, epoch: int, horizon: int) -> None:
    """Refuse epochs before this one from now on, and reads before this horizon."""
    with shard.writing() as txn:
        latest, kept_from = _info(shard, txn)
        _advance(shard, txn, max(latest, epoch), max(kept_from, horizon))


def whole(shard: Environment, at: int) -> Iterator[tuple[int, bytes, bytes]]:
    """All rows as of an epoch, as one snapshot: table, key and row, in order."""
    with translated, shard.begin() as txn, txn.cursor(db=shard.dbs["rows"]) as cursor:
        _check_kept(shard, txn, at)
        for keys, values in blocks(shard, cursor, b"\0", _END, False):
            for key, row in zip(keys, versions.visible_many(values, at), strict=True):
                if row is not None:
                    yield int.from_bytes(key[:PREFIX], "big"), key[PREFIX:], row


def by_table(
    writes: Sequence[StateWrite],
) -> Iterator[tuple[int, Sequence[bytes] | Packed, Sequence[bytes | None] | Packed, bool]]:
    """The rows of each table in key order, and whether all are new; of one key the last counts."""
    tables: dict[int, list[StateWrite]] = {}
    for write in writes:
        if len(write.keys):
            tables.setdefault(write.table, []).append(write)
    for table in sorted(tables):
        parts = tables[table]
        keys, rows = parts[0].keys, parts[0].rows
        if len(parts) > 1 or not rising(keys):
            whole = {k: r for part in parts for k, r in zip(part.key_list, part.rows, strict=True)}
            keys = sorted(whole)
            rows = [whole[key] for key in keys]
        yield table, keys, rows, all(part.are_new for part in parts)


def _insert(
    shard: Environment,
    txn: Transaction,
    epoch: int,
    full: Sequence[bytes],
    rows: Sequence[bytes | None] | Packed,
) -> bool:
    """Put rows of a table that should have no versions; if one has some, put none, return False.

    To look for the versions of a row takes as long as to put it.
    """
    if not (rows.all_present if isinstance(rows, Packed) else None not in rows):
        return False
    made = sums.sealed_all(full, versions.first_many(epoch, rows))
    with shard.within(txn) as attempt:
        with attempt.cursor(db=shard.dbs["rows"]) as cursor:
            _, added = cursor.putmulti(zip(full, made, strict=True), overwrite=False)
        if added < len(full):
            attempt.abort()
            return False
    gained = sum(map(len, full)) + sum(map(len, made))
    _add_sizes(shard, txn, {full[0][:PREFIX]: (added, gained)})
    return True


def _stamp(
    shard: Environment,
    txn: Transaction,
    epoch: int,
    horizon: int,
    full: Sequence[bytes],
    rows: Sequence[bytes | None],
) -> None:
    """Push a version of each row, of whatever tables, in the order of their keys.

    Whole lists at a time: every line of Python here is per row.
    """
    with txn.cursor(db=shard.dbs["rows"]) as cursor:
        old = _old_versions(shard, txn, cursor, full)
        if None in rows and b"" in old:
            # A row that never was needs no tombstone.
            kept = [row is not None or value for row, value in zip(rows, old, strict=True)]
            full, old = list(compress(full, kept)), list(compress(old, kept))
            rows = list(compress(rows, kept))
        new_versions = versions.push_many(old, epoch, rows, horizon, sums.SIZE)
        made = sums.sealed_all(full, new_versions)
        cursor.putmulti(zip(full, made, strict=True))
    if full:
        _add_sizes(shard, txn, _gains(full, old, made))
    if None in rows:
        stamp = _EPOCH.pack(epoch)
        gone = [stamp + key for key, row in zip(full, rows, strict=True) if row is None]
        with txn.cursor(db=shard.dbs["sweep"]) as cursor:
            cursor.putmulti(zip(gone, repeat(b"")))


def _gains(
    full: Sequence[bytes], old: Sequence[bytes], made: Sequence[bytes]
) -> dict[bytes, tuple[int, int]]:
    """The rows and bytes that each table gains by what is stored under these keys."""
    if full[0][:PREFIX] == full[-1][:PREFIX]:
        new = list(compress(full, map(not_, old))) if b"" in old else []
        gained = sum(map(len, made)) - sum(map(len, old)) + sum(map(len, new))
        return {full[0][:PREFIX]: (len(new), gained)}
    found: dict[bytes, tuple[int, int]] = {}
    for key, before, after in zip(full, old, made, strict=True):
        rows, size = found.get(key[:PREFIX], (0, 0))
        if not before:
            rows, size = rows + 1, size + len(key)
        found[key[:PREFIX]] = rows, size + len(after) - len(before)
    return found


def _old_versions(
    shard: Environment, txn: Transaction, cursor: Cursor, full: Sequence[bytes]
) -> list[bytes]:
    """What is stored under these keys, which are in order; b"" where there is nothing."""
    rows = shard.dbs["rows"]
    # Keys often rise with time; if no row lies between the first and the last, all are new.
    if not cursor.set_key(full[0]) and sums.gap(shard, cursor, full[0])[1] > full[-1]:
        return [b""] * len(full)
    look_up = txn.get
    found = [look_up(key, None, rows) for key in full]
    if None in found:
        sums.gaps(shard, cursor, list(compress(full, [value is None for value in found])))
        sums.check_all(shard, full, found)
        return [stored or b"" for stored in found]
    sums.check(shard, full, found)
    return found


def revert(shard: Environment, after: int, upto: int) -> None:
    """Remove the versions of epochs in (after, upto] and have the shard refuse these epochs."""
    with shard.reading() as txn:
        # Look before taking the write lock: it may have been done before. No later epoch writes to
        # a shard that was not reverted.
        if _info(shard, txn)[0] > upto:
            return
    with shard.writing() as txn:
        seen, kept_from = _info(shard, txn)
        if seen > upto:
            return
        _advance(shard, txn, upto + 1, kept_from)
        if seen <= after:
            return
        written = written_keys.tables(shard, txn, after, upto)
        for table, keys in {None: None}.items() if written is None else written.items():
            low, high = (b"\0", _END) if table is None else key_range(table, b"", None)
            with txn.cursor(db=shard.dbs["rows"]) as cursor:
                if keys is None:
                    _revert_rows(shard, txn, cursor, low, high, after, upto)
                else:
                    for key in sorted(keys):
                        full = low + key
                        _revert_rows(shard, txn, cursor, full, full + b"\0", after, upto)


def _revert_rows(
    shard: Environment,
    txn: Transaction,
    cursor: Cursor,
    low: bytes,
    high: bytes,
    after: int,
    upto: int,
) -> None:
    """Revert the rows with low <= key < high."""
    found = sums.seek(shard, cursor, low)
    while found:
        key, stored = cursor.item()
        value = sums.opened(shard, key, stored)
        if key >= high:
            break
        kept = versions.without(value, after, upto)
        if kept == value:
            found = cursor.next()
            continue
        change = len(kept) - len(value)
        if kept:
            cursor.put(key, sums.sealed(key, kept))
            if versions.is_deleted(kept):  # its own record may have been swept meanwhile
                record = _EPOCH.pack(versions.newest_epoch(kept)) + key
                txn.put(record, b"", db=shard.dbs["sweep"])
            found = cursor.next()
        else:
            change -= len(key) + sums.SIZE
            cursor.delete()
            found = bool(cursor.key())
        _add_sizes(shard, txn, {key[:PREFIX]: (0 if kept else -1, change)})


def sweep(shard: Environment, horizon: int, budget: int) -> bool:
    """Remove rows whose newest version is a tombstone at or before `horizon`."""
    with shard.reading() as txn, txn.cursor(db=shard.dbs["sweep"]) as cursor:
        # Look before taking the write lock: most epochs have nothing to sweep.
        if not cursor.first() or _EPOCH.unpack_from(cursor.key())[0] > horizon:
            return False
    with shard.writing() as txn:
        seen, kept_from = _info(shard, txn)
        _advance(shard, txn, seen, max(horizon, kept_from))
        with txn.cursor(db=shard.dbs["sweep"]) as cursor:
            ended = _EPOCH.pack(horizon + 1)
            records = takewhile(ended.__gt__, cursor.iternext(values=False))
            swept = list(islice(records, budget))
            cursor.first()
            for _ in swept:
                cursor.delete()
            more = bool(cursor.key()) and cursor.key() < ended
        _remove_deleted(shard, txn, horizon, [record[_EPOCH.size :] for record in swept])
    return more


def _remove_deleted(shard: Environment, txn: Transaction, horizon: int, keys: list[bytes]) -> None:
    """Remove those of these rows that are deleted as of `horizon`.

    One written again since is kept; if it was deleted again, a later record stands for that.
    """
    gone: dict[bytes, list[int]] = {}
    with txn.cursor(db=shard.dbs["rows"]) as cursor:
        for key in keys:
            if not cursor.set_key(key):
                continue
            stored = cursor.value()
            value = sums.opened(shard, key, stored)
            if versions.is_deleted(value) and versions.newest_epoch(value) <= horizon:
                cursor.delete()
                gone.setdefault(key[:PREFIX], []).append(len(key) + len(stored))
    if gone:
        lost = {table: (-len(sizes), -sum(sizes)) for table, sizes in gone.items()}
        _add_sizes(shard, txn, lost)


def sizes(shard: Environment) -> dict[int, TableSize]:
    """The rows and bytes of each state table."""
    with shard.reading() as txn, txn.cursor(db=shard.dbs["info"]) as cursor:
        start = len(_SIZE_KEY)
        records = walk(shard, cursor, _SIZE_KEY, _SIZE_KEY + b"\xff" * 5, False, db="info")
        return {
            int.from_bytes(key[start:], "big"): TableSize(*_SIZE.unpack(value))
            for key, value in records
        }


def forget_size(shard: Environment, table: int) -> None:
    """A state table is gone."""
    with shard.writing() as txn:
        txn.delete(_SIZE_KEY + table.to_bytes(PREFIX, "big"), db=shard.dbs["info"])


def _add_sizes(
    shard: Environment, txn: Transaction, gains: Mapping[bytes, tuple[int, int]]
) -> None:
    """Add rows and bytes to the sizes of tables."""
    with txn.cursor(db=shard.dbs["info"]) as cursor:
        names = sorted(_SIZE_KEY + table for table in gains)
        held = dict(sums.present(shard, cursor, names, "info"))
        made = []
        for name in names:
            rows, size = gains[name[len(_SIZE_KEY) :]]
            before, whole = _SIZE.unpack(held[name]) if name in held else (0, 0)
            made.append(_SIZE.pack(before + rows, whole + size))
        cursor.putmulti(zip(names, sums.sealed_all(names, made), strict=True))


def _info(shard: Environment, txn: Transaction) -> tuple[int, int]:
    """The latest epoch that wrote here, and the horizon: what is older may be gone."""
    record = sums.get(shard, txn, "info", _INFO_KEY)
    return _INFO.unpack(record) if record else (0, 0)


def _advance(shard: Environment, txn: Transaction, epoch: int, horizon: int) -> None:
    sums.put(shard, txn, "info", _INFO_KEY, _INFO.pack(epoch, horizon))


def _check_kept(shard: Environment, txn: Transaction, at: int | None) -> None:
    if at is None:
        return
    record = sums.remembered(shard, txn, "info", _INFO_KEY)
    horizon = _INFO.unpack(record)[1] if record else 0
    if at < horizon:
        raise EpochGone(f"epoch {at} is no longer kept: versions are kept from epoch {horizon} on")
