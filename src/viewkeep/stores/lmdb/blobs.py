"""Blobs in an environment of their own: a record under its name.

Law: that of the contract. A transaction removes a bounded number of bytes' worth of records.
"""

from __future__ import annotations

from viewkeep.errors import StoreError
from viewkeep.stores.contract import Blobs, Missing
from viewkeep.stores.lmdb import sums
from viewkeep.stores.lmdb.environment import Environment
from viewkeep.stores.lmdb.parts import Opened

_DB = "blobs"
_AT_ONCE = 100  # blobs removed in a transaction: each may have megabytes


class LmdbBlobs(Blobs):
    """The blobs of one database; `close` closes what it was opened with."""

    def __init__(self, opened: Opened):
        self._opened = opened

    def close(self) -> None:
        self._opened.close()

    @property
    def _environment(self) -> Environment:
        environment = self._opened.database.blobs
        if environment is None:
            raise StoreError("this database was made without room for a changelog")
        return environment

    def put(self, name: str, data: bytes) -> bool:
        environment, key = self._environment, name.encode()
        with environment.writing() as txn:
            if sums.get(environment, txn, _DB, key) is not None:
                return False
            sums.put(environment, txn, _DB, key, data)
        return True

    def get(self, name: str) -> bytes:
        environment = self._environment
        with environment.reading() as txn:
            data = sums.get(environment, txn, _DB, name.encode())
        if data is None:
            raise Missing(f"there is no blob {name}")
        return data

    def names(self, folder: str) -> list[str]:
        environment, prefix = self._environment, _prefix(folder)
        found = list[str]()
        with environment.reading(buffers=True) as txn, txn.cursor(environment.dbs[_DB]) as cursor:
            there = cursor.set_range(prefix) if prefix else cursor.first()
            while there and (key := bytes(cursor.key())).startswith(prefix):
                name, slash, _ = key[len(prefix) :].partition(b"/")
                found.append(name.decode())
                there = cursor.set_range(prefix + name + b"0") if slash else cursor.next()
        return sorted(set(found))

    def size(self, name: str) -> int:
        environment = self._environment
        with environment.reading(buffers=True) as txn:
            stored = txn.get(name.encode(), None, environment.dbs[_DB])
            return 0 if stored is None else len(stored) - sums.SIZE

    def remove(self, name: str) -> None:
        environment = self._environment
        with environment.writing() as txn:
            txn.delete(name.encode(), db=environment.dbs[_DB])

    def remove_folder(self, name: str) -> None:
        environment, prefix = self._environment, _prefix(name)
        more = True
        while more:
            with environment.writing() as txn, txn.cursor(environment.dbs[_DB]) as cursor:
                left, more = _AT_ONCE, cursor.set_range(prefix)
                while more and left and (more := bytes(cursor.key()).startswith(prefix)):
                    cursor.delete()
                    left, more = left - 1, bool(cursor.key())


def _prefix(folder: str) -> bytes:
    return f"{folder}/".encode() if folder else b""
