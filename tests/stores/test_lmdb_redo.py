"""A write over several nodes is whole wherever it is cut: on all its nodes, or on none."""

import itertools
from zlib import crc32

import lmdb
import pytest

from viewkeep.errors import OutcomeUnknown, StoreFull
from viewkeep.stores import create_store, drop_store, open_store
from viewkeep.stores.contract import Kind, TableWrite
from viewkeep.stores.lmdb import redo
from viewkeep.stores.lmdb import write as writing

from . import workers
from .conformance import ROWS, key, log_entries, row, scan_all
from .processes import Worker
from .workers import KEYS

TABLE = 1
EVERYWHERE = range(12)  # keys that lie on all three nodes


class Crash(BaseException):
    """The writer's death: nothing catches it."""


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "db"
    create_store(str(folder), nodes=3, shards=3, durability="relaxed").close()
    return str(folder)


def puts(numbers, name):
    rows = [row(number, name, number) for number in numbers]
    return TableWrite(TABLE, ROWS, Kind.PUT, [key(number) for number in numbers], rows)


def test_a_finished_write_is_not_read_again(path, monkeypatch):
    """Its record stays: other writers look at which operations it fills, and no further."""
    store = open_store(path)
    store.tables.write([puts(EVERYWHERE, "x" * 1000)])
    monkeypatch.setattr(redo, "_decode", None)
    for number in EVERYWHERE:
        store.tables.write([puts([number], "y")])
    store.tables.write([puts(EVERYWHERE, "z")])
    assert store.log.head().operations == 3 * len(EVERYWHERE)
    store.close()


def content(store):
    """All base rows by key."""
    return scan_all(store, TABLE)


def cut_after(monkeypatch, commits, error=Crash):
    """Let so many nodes commit; then the writer dies, or gets this error."""
    left = itertools.count(commits, -1)

    def commit(txn):
        if next(left) == 0:
            raise error()
        txn.commit()

    monkeypatch.setattr(writing, "commit", commit)


def crash(path, monkeypatch, commits, writes):
    store = open_store(path)
    with monkeypatch.context() as patch:
        cut_after(patch, commits)
        with pytest.raises(Crash):
            store.tables.write(writes)
    store.close()


def expected(numbers, name):
    return {key(number): row(number, name, number) for number in numbers}


@pytest.mark.parametrize("commits", [0, 1, 2])
@pytest.mark.parametrize("then", ["head", "one row", "many rows", "reopen"])
def test_a_crash_between_commits_leaves_all_or_nothing(path, monkeypatch, commits, then):
    store = open_store(path)
    store.tables.write([puts(EVERYWHERE, "before")])
    store.close()
    crash(path, monkeypatch, commits, [puts(EVERYWHERE, "after")])
    store = open_store(path)
    rows = expected(EVERYWHERE, "after" if commits else "before")
    if then == "one row":
        for number in EVERYWHERE:  # on each of the nodes
            store.tables.write([puts([number], "later")])
        rows = expected(EVERYWHERE, "later")
    elif then == "many rows":
        store.tables.write([puts([3, 4, 5], "later")])
        rows |= expected([3, 4, 5], "later")
    elif then == "head":
        store.log.head()
    assert content(store) == rows
    written = len(EVERYWHERE) * (2 if commits else 1)
    added = {"one row": len(EVERYWHERE), "many rows": 3}.get(then, 0)
    assert store.log.head().operations == written + added
    store.close()


@pytest.mark.parametrize("others", [(0,), (1,), (2,), (1, 2), (0, 2)])
def test_a_writer_killed_while_its_first_commit_is_synced(path, others):
    """Its write is decided, though nobody who only reads that node can see so."""
    store = open_store(path)
    worker = Worker("die_in_the_sync", path, len(EVERYWHERE))
    worker.process.wait()
    node_of = {number: crc32(KEYS.encode_one((number,))) % 3 for number in EVERYWHERE}
    mine = [next(n for n in EVERYWHERE if node_of[n] == node) for node in others]
    keys, rows = [KEYS.encode_one((n,)) for n in mine], [row(n, "later", n) for n in mine]
    store.tables.write([TableWrite(workers.TABLE, ROWS, Kind.PUT, keys, rows)])
    names = {n: "later" if n in mine else "whole" for n in EVERYWHERE}
    assert store.log.head().operations == len(EVERYWHERE) + len(mine)
    assert scan_all(store, workers.TABLE) == {
        KEYS.encode_one((n,)): row(n, name, n) for n, name in names.items()
    }
    store.close()


def test_a_database_that_cannot_be_completed_is_not_left_open(path, monkeypatch):
    crash(path, monkeypatch, 1, [puts(EVERYWHERE, "after")])
    with monkeypatch.context() as patch:

        def refuse(nodes):
            raise StoreFull("the disk is full")

        patch.setattr(redo, "complete", refuse)
        with pytest.raises(StoreFull):
            open_store(path)
    drop_store(path)  # refuses while a process has it open


def test_before_images_go_through_a_crash(path, monkeypatch):
    """Each operation in the logs starts from what the one before it left."""
    store = open_store(path)
    start = store.log.head()
    store.tables.write([puts(EVERYWHERE, "a")])
    store.close()
    crash(path, monkeypatch, 1, [puts(EVERYWHERE, "b")])
    store = open_store(path)
    deletes = TableWrite(TABLE, ROWS, Kind.DELETE, [key(number) for number in EVERYWHERE])
    store.tables.write([deletes])
    seen = {}
    for entries in log_entries(store, start, store.log.head()):
        for _, _, _, changed, after, before in entries:
            assert before == seen.get(changed)
            seen[changed] = after
    assert set(seen.values()) == {None}
    assert content(store) == {}
    store.close()


def test_two_crashes_one_upon_the_other(path, monkeypatch):
    """The second write dies after it has met what the first one left."""
    for name, commits in [("a", 1), ("b", 2), ("c", 1), ("d", 0)]:
        crash(path, monkeypatch, commits, [puts(EVERYWHERE, name)])
    store = open_store(path)
    store.log.head()
    assert content(store) == expected(EVERYWHERE, "c")
    assert store.log.head().operations == 3 * len(EVERYWHERE)
    store.close()


def test_no_cut_comes_between_the_parts(path, monkeypatch):
    store = open_store(path)
    start = store.log.head()
    crash(path, monkeypatch, 1, [puts(EVERYWHERE, "a")])
    head = store.log.head()
    assert head.operations == len(EVERYWHERE)
    assert store.log.bounded_cut(start, head, 1, 1 << 30) == head
    store.close()


def test_a_disk_that_fills_between_commits(path, monkeypatch):
    """The caller is told that the write will happen, and it does as soon as there is room."""
    store = open_store(path)
    with monkeypatch.context() as patch:
        cut_after(patch, 1, lambda: lmdb.DiskError("mdb_txn_commit: No space left on device"))
        with pytest.raises(OutcomeUnknown, match="disk is full"):
            store.tables.write([puts(EVERYWHERE, "a")])
    store.log.head()
    assert content(store) == expected(EVERYWHERE, "a")
    with monkeypatch.context() as patch:
        cut_after(patch, 0, lambda: lmdb.DiskError("mdb_txn_commit: No space left on device"))
        with pytest.raises(StoreFull):
            store.tables.write([puts(EVERYWHERE, "b")])
    assert content(store) == expected(EVERYWHERE, "a")
    store.close()
