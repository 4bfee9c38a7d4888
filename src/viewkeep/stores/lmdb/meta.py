"""Meta records: small values under text keys, replaced by compare-and-set.

Law: each call is one transaction, and a change that was reported done survives power loss.
"""

from __future__ import annotations

from viewkeep.stores.lmdb.environment import Environment, translated


def get(meta: Environment, key: str) -> bytes | None:
    """The value of a record, or None."""
    with translated, meta.begin() as txn:
        value: bytes | None = txn.get(key.encode(), db=meta.dbs["records"])
        return value


def cas(meta: Environment, key: str, old: bytes | None, new: bytes | None) -> bool:
    """Replace the record by `new` (None: remove it) if it still equals `old` (None: absent)."""
    name, records = key.encode(), meta.dbs["records"]
    with meta.writing() as txn:
        if txn.get(name, db=records) != old:
            return False
        if new is not None:
            txn.put(name, new, db=records)
        elif old is not None:
            txn.delete(name, db=records)
        return True


def scan(meta: Environment, prefix: str) -> list[tuple[str, bytes]]:
    """All records whose key starts with `prefix`, in key order."""
    low = prefix.encode()
    found: list[tuple[str, bytes]] = []
    with translated, meta.begin() as txn, txn.cursor(db=meta.dbs["records"]) as cursor:
        if cursor.set_range(low) if low else cursor.first():
            for key, value in cursor.iternext():
                if not key.startswith(low):
                    break
                found.append((key.decode(), value))
    return found
