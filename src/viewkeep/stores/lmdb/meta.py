"""Meta records: small values under text keys, replaced by compare-and-set.

Law: each call is one transaction, and a change that was reported done survives power loss.
"""

from __future__ import annotations

from viewkeep.stores.lmdb import sums
from viewkeep.stores.lmdb.environment import Environment, translated
from viewkeep.stores.lmdb.ranges import walk


def get(meta: Environment, key: str) -> bytes | None:
    """The value of a record, or None."""
    with translated, meta.begin() as txn:
        return sums.remembered(meta, txn, "records", key.encode())


def cas(meta: Environment, key: str, old: bytes | None, new: bytes | None) -> bool:
    """Replace the record by `new` (None: remove it) if it still equals `old` (None: absent)."""
    name, records = key.encode(), meta.dbs["records"]
    with meta.writing() as txn:
        if sums.get(meta, txn, "records", name) != old:
            return False
        if new is not None:
            sums.put(meta, txn, "records", name, new)
        elif old is not None:
            txn.delete(name, db=records)
        return True


def scan(meta: Environment, prefix: str) -> list[tuple[str, bytes]]:
    """All records whose key starts with `prefix`, in key order."""
    low = prefix.encode()
    found: list[tuple[str, bytes]] = []
    with translated, meta.begin() as txn, txn.cursor(db=meta.dbs["records"]) as cursor:
        for key, value in walk(meta, cursor, low or b"\0", sums.LAST, False, db="records"):
            if not key.startswith(low):
                break
            found.append((key.decode(), value))
    return found
