"""Checksums: every record ends in four bytes that make its crc32 zero, so damage is noticed.

Law: a value that is returned was stored under its key, and a key is reported absent only if sound
records, in order, lie on both sides of where it would be. All else raises Corrupt.

    stored value = value · (crc32(key · value) ^ CLOSING) u32 little-endian

so crc32(key · stored value) is 0, and so is the crc32 of any number of such records, one after the
other: one pass checks them all, whatever their lengths. So is the crc32 of nothing: LMDB takes a
record whose header was zeroed for one of no bytes, which no stored value is. Records beside an
absent key are checked because a damaged key hides its record: a search for the old key ends next to
it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, cast
from zlib import crc32

from viewkeep.codec.key_order import hash_rows
from viewkeep.codec.packed import list_rows
from viewkeep.deferred import np
from viewkeep.errors import Corrupt

if TYPE_CHECKING:
    from viewkeep.stores.lmdb.environment import Cursor, Environment, Transaction

SIZE = 4
CLOSING = 0x6DD90A9D  # the crc32 of anything followed by its own crc32 ^ this is 0
LAST = b"\xff" * 512  # after all keys
_MOST_REMEMBERED = 64
_FEW = 50  # records up to which a call for each is faster than arrays


def sealed(key: bytes, value: bytes) -> bytes:
    """The value to store under a key."""
    return value + (crc32(value, crc32(key)) ^ CLOSING).to_bytes(SIZE, "little")


def sealed_all(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """`sealed` of each value with the key beside it."""
    if len(values) > _FEW and len(set(map(len, keys))) == len(set(map(len, values))) == 1:
        return _sealed_rows(keys, values)
    sums = np.fromiter(map(crc32, values, map(crc32, keys)), "<u4", len(values)) ^ CLOSING
    ends = list_rows(sums.view(np.uint8).reshape(-1, SIZE)) if len(values) else []
    return [value + end for value, end in zip(values, ends, strict=True)]


def _sealed_rows(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """`sealed_all` of keys of one length and values of one length: a tenth of the calls."""
    count, width, end = len(keys), len(keys[0]), len(keys[0]) + len(values[0])
    records = np.empty((count, end + SIZE), np.uint8)
    records[:, :width] = np.frombuffer(b"".join(keys), np.uint8).reshape(count, width)
    records[:, width:end] = np.frombuffer(b"".join(values), np.uint8).reshape(count, -1)
    sums = (hash_rows(records[:, :end]) ^ np.uint32(CLOSING)).astype("<u4")
    records[:, end:] = sums.view(np.uint8).reshape(count, SIZE)
    return list_rows(records[:, width:])


def opened(environment: Environment, key: bytes, stored: bytes, db: str = "rows") -> bytes:
    """The value of what is stored under a key."""
    if crc32(stored, crc32(key)) or not stored:
        raise damaged(environment, key, db)
    return stored[:-SIZE]


def opened_present(
    environment: Environment, keys: Sequence[bytes], stored: Sequence[bytes], db: str = "rows"
) -> list[bytes]:
    """The value of each record with the key beside it."""
    check(environment, keys, stored, db)
    return [value[:-SIZE] for value in stored]


def check(
    environment: Environment, keys: Sequence[bytes], stored: Sequence[bytes], db: str = "rows"
) -> None:
    """Raise Corrupt unless all of these records are sound."""
    if crc32(b"".join(chain.from_iterable(zip(keys, stored, strict=True)))) or not all(stored):
        for key, value in zip(keys, stored, strict=True):
            opened(environment, key, value, db)


def check_all(
    environment: Environment, keys: Sequence[bytes], stored: Sequence[bytes | None]
) -> None:
    """`check` of the rows that are there; the caller checks with `gaps` that others are not."""
    if None in stored:
        keys = list(compress(keys, [value is not None for value in stored]))
        stored = [value for value in stored if value is not None]
    check(environment, keys, cast(Sequence[bytes], stored))


def present(
    environment: Environment, cursor: Cursor, keys: Sequence[bytes], db: str = "rows"
) -> Iterator[tuple[bytes, bytes]]:
    """Those of these keys, which are in order, that have records, with their values."""
    found: list[tuple[bytes, bytes]] = cursor.getmulti(keys)
    there = [key for key, _ in found]
    if len(found) < len(keys):
        known = set(there)
        absent = [key for key in keys if key not in known] if known else keys
        gaps(environment, cursor, absent, db)
    values = opened_present(environment, there, [stored for _, stored in found], db)
    return zip(there, values, strict=True)


def get(environment: Environment, txn: Transaction, db: str, key: bytes) -> bytes | None:
    """The value under a key; None if there is certainly none."""
    records = environment.dbs[db]
    stored: bytes | None = txn.get(key, None, records)
    if stored is None:
        gap(environment, txn.cursor(records), key, db)
        return None
    if crc32(stored, crc32(key)) or not stored:
        raise damaged(environment, key, db)
    return stored[:-SIZE]


def remembered(environment: Environment, txn: Transaction, db: str, key: bytes) -> bytes | None:
    """`get` in a snapshot, without a look if nothing was committed since it was read last.

    For the few records that every read looks at.
    """
    number, values = environment.memory
    if number != txn.id():
        values = {}
        environment.memory = (txn.id(), values)
    try:
        return values[db, key]
    except KeyError:
        value = get(environment, txn, db, key)
        if len(values) < _MOST_REMEMBERED:
            values[db, key] = value
        return value


def put(environment: Environment, txn: Transaction, db: str, key: bytes, value: bytes) -> None:
    """Store a value under a key."""
    txn.put(key, sealed(key, value), db=environment.dbs[db])


def gap(
    environment: Environment, cursor: Cursor, key: bytes, db: str = "rows"
) -> tuple[bytes, bytes]:
    """The sound keys on both sides of a key that is absent; b"" and LAST stand for none."""
    low, high = b"", LAST
    if cursor.set_range(key):
        high, stored = cursor.item()
        if crc32(stored, crc32(high)) or not stored:
            raise damaged(environment, high, db)
        there = cursor.prev()
    else:
        there = cursor.last()
    if there:
        low, stored = cursor.item()
        if crc32(stored, crc32(low)) or not stored:
            raise damaged(environment, low, db)
    low, high = bytes(low), bytes(high)  # they may be views of the map
    if not low < key < high:
        raise disordered(environment)
    return low, high


def gaps(environment: Environment, cursor: Cursor, keys: Sequence[bytes], db: str = "rows") -> None:
    """`gap` of each of these absent keys, which are in order."""
    place = 0
    while place < len(keys):
        _, high = gap(environment, cursor, keys[place], db)
        place += 1
        if place < len(keys) and keys[place] < high:
            place = bisect_left(keys, high, place)


def seek(environment: Environment, cursor: Cursor, key: bytes, db: str = "rows") -> bool:
    """Move to the first record at or after a key, which is for the caller to check."""
    found = cursor.set_range(key)
    if cursor.prev() if found else cursor.last():
        before, stored = cursor.item()
        if crc32(stored, crc32(before)) or not stored:
            raise damaged(environment, before, db)
        if before >= key:
            raise disordered(environment)
        cursor.next()
    elif found:
        cursor.first()
    return bool(found)


def check_counts(environment: Environment) -> None:
    """Corrupt if a file has another number of records than LMDB has counted as it wrote them.

    LMDB's pages have no checksums. A damaged one that shows fewer records than it has hides the
    others, in order and between sound ones; the count stands elsewhere, beside the root.
    """
    with environment.reading() as txn:
        for name, db in environment.dbs.items():
            counted = txn.stat(db)["entries"]
            with txn.cursor(db) as cursor:
                found = sum(1 for _ in cursor.iternext(keys=True, values=False))
            if found != counted:
                raise Corrupt(
                    f"{environment.path / 'data.mdb'} is damaged: {found:,} records of {name} can "
                    f"be read, and {counted:,} were written. {_way_on(environment)}"
                )


def damaged(environment: Environment, key: bytes, db: str = "rows") -> Corrupt:
    """The error for a record whose checksum does not match."""
    what = {
        "rows": f"a row of table {int.from_bytes(key[:4], 'big')}",
        "log": f"the log segment at operation {int.from_bytes(key[:8], 'big')}",
    }.get(db, f"the record {key[:40]!r}")
    return Corrupt(
        f"{environment.path / 'data.mdb'} is damaged: the checksum of {what} does not match. "
        f"{_way_on(environment)}"
    )


def disordered(environment: Environment) -> Corrupt:
    """The error for records that are not where they must be."""
    return Corrupt(
        f"{environment.path / 'data.mdb'} is damaged: its records are not in the order of their "
        f"keys. {_way_on(environment)}"
    )


def _way_on(environment: Environment) -> str:
    if environment.path.name.startswith("shard-"):
        return "Base rows are not affected: `viewkeep verify --repair` rebuilds damaged views"
    return "Restore the database from a backup"
