"""Stores by url: `lmdb:PATH`, or a plain path for the embedded default.

Law: a connector is found by the scheme of its url: ours by the table below, others among the entry
points of the group `viewkeep.stores`, where ours are registered too.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from os import getpid, register_at_fork
from threading import Lock
from typing import Protocol, cast

from viewkeep.errors import StoreError
from viewkeep.stores.contract import Store

__all__ = [
    "Store",
    "borrow_store",
    "compact_store",
    "create_store",
    "drop_store",
    "open_store",
]

GROUP = "viewkeep.stores"
_MOST_BORROWED = 12
_borrowed: deque[tuple[int, Store]] = deque()
_lock = Lock()
register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
# Known without entry points: to look for those takes a new worker of Spark 0.1 s, since it reads
# the index of pyspark.zip.
_BUILT_IN = {
    "apart": "viewkeep.stores.apart:ApartStore",
    "awkward": "viewkeep.testing.awkward:AwkwardStore",
    "bundle": "viewkeep.stores.bundle:Bundle",
    "hbase": "viewkeep.stores.hbase.store:HbaseStore",
    "lmdb": "viewkeep.stores.lmdb:LmdbStore",
}


class Connector(Protocol):
    """What an entry point names: a class that makes and opens stores of one kind."""

    def create(self, path: str, **options: object) -> Store: ...

    def open(self, path: str) -> Store: ...


def create_store(url: str, **options: object) -> Store:
    """Make an empty database at `url` and open it; the options are the connector's own."""
    connector, path = _resolve(url)
    try:
        signature(connector.create).bind(path, **options)
    except TypeError as error:
        raise StoreError(f"{url}: {error}") from error
    return connector.create(path, **options)


def drop_store(url: str) -> None:
    """Remove the database at `url`; StoreError if a process has it open."""
    connector, path = _resolve(url)
    drop = getattr(connector, "drop", None)
    if drop is None:
        raise StoreError(f"{url} is of a kind that is removed by hand: delete its folders")
    drop(path)


def compact_store(url: str) -> tuple[int, int]:
    """Make the files of the database at `url` smaller: their bytes before and after.

    StoreError, and nothing done, if a process has it open.
    """
    connector, path = _resolve(url)
    compact = getattr(connector, "compact", None)
    if compact is None:
        raise StoreError(f"{url} is of a kind that is not compacted: it has no files of its own")
    done = compact(path)
    return done.before, done.after


def open_store(url: str) -> Store:
    """Open the database at `url`.

    Cheap to call often: the stores of one process share its files and maps, and each is closed on
    its own. A forked process must open its own store.
    """
    connector, path = _resolve(url)
    return connector.open(path)


def borrow_store(url: str) -> Store:
    """Open the database at `url` for a short use in a process that lives on.

    It is closed by itself after a dozen later borrowings, whatever database they are of: files and
    maps stay open from one use to the next, but a process does not gather those of every database
    that it has ever seen.
    """
    store = open_store(url)
    with _lock:
        _borrowed.append((getpid(), store))
        owner, oldest = _borrowed.popleft() if len(_borrowed) > _MOST_BORROWED else (0, store)
    if owner == getpid():  # not what a parent process has borrowed
        oldest.close()
    return store


def _resolve(url: str) -> tuple[Connector, str]:
    scheme, colon, path = url.partition(":")
    # A single letter before the colon is a drive, and a slash makes it a path with a colon in it.
    if not colon or len(scheme) < 2 or "/" in scheme:
        scheme, path = "lmdb", url
    return _connector(scheme), path


@cache
def _connector(scheme: str) -> Connector:
    if scheme in _BUILT_IN:
        module, _, name = _BUILT_IN[scheme].partition(":")
        return cast(Connector, getattr(import_module(module), name))
    found = {point.name: point for point in entry_points(group=GROUP)}
    if scheme in found:
        return cast(Connector, found[scheme].load())
    known = sorted(_BUILT_IN.keys() | found.keys())
    raise StoreError(f"no store of kind {scheme!r}; known are {known}")
