"""Threads of one process that write to a node at once share a commit, and nothing else."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import lmdb
import pytest

from viewkeep.claims import Claim
from viewkeep.errors import Conflict, DuplicateKey, Locked, OutcomeUnknown, StoreFull, Timeout
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import ABSENT, START, Cut, Kind, TableWrite
from viewkeep.stores.lmdb.environment import Environment

from .conformance import ROWS, TABLE, key, log_entries, put, row, scan_all
from .processes import Worker
from .test_lmdb_files import change_settings
from .test_lmdb_processes import replay


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "db"
    create_store(str(path), nodes=1, shards=1, durability="relaxed").close()
    return path


@pytest.fixture
def store(path):
    with closing(open_store(str(path))) as store:
        yield store


def together(store, *works):
    """Run works in threads of their own, all of them waiting at once; what each gave or raised."""
    node = store._database.nodes[0]
    with ThreadPoolExecutor(len(works)) as pool:
        with node.lock:
            futures = [pool.submit(work) for work in works]
            while len(node.calls._waiting) < len(works):
                time.sleep(0.001)
        return [future.exception() or future.result() for future in futures]


def writes(store, *groups):
    return together(store, *(lambda group=group: store.tables.write(group) for group in groups))


def commits(store):
    return store._database.nodes[0].env.info()["last_txnid"]


def absent(number, name):
    return TableWrite(
        TABLE, ROWS, Kind.PUT, [key(number)], [row(number, name, number)], expect=ABSENT
    )


def check_log(store, count):
    """The log has so many operations and leads to the rows."""
    (entries,) = log_entries(store, START, store.log.head())
    assert len(entries) == count
    assert replay(entries) == scan_all(store, TABLE)


def test_writers_that_wait_share_a_commit(store):
    before = commits(store)
    results = writes(store, *([put(range(10 * n, 10 * n + n + 1), f"{n}")] for n in range(8)))
    assert commits(store) == before + 1
    assert sorted(result.position("node-0") for result in results)[-1] == sum(range(1, 9))
    assert len(scan_all(store, TABLE)) == sum(range(1, 9))
    check_log(store, sum(range(1, 9)))


def test_cuts_lie_between_writes_of_one_commit(store):
    writes(store, *([put([10 * n, 10 * n + 1])] for n in range(6)))
    cut, head = START, store.log.head()
    for stop in range(2, 13, 2):
        cut = store.log.bounded_cut(cut, head, 2, 1 << 40)
        assert cut.operations == stop


def test_a_write_that_fails_leaves_the_others_alone(store):
    store.tables.write([put([1, 2], "first")])
    half = [put([3, 4], "half"), absent(1, "half")]  # the second part is refused
    results = writes(
        store,
        [put([5], "kept")],
        half,
        [absent(6, "one of two")],
        [absent(6, "one of two")],
        [TableWrite(TABLE, ROWS, Kind.PUT, [key(2)], [row(2, "x", 2)], expect=[None])],
        [put([7, 8], "kept")],
    )
    failures = [type(result) for result in results if not isinstance(result, Cut)]
    assert sorted(kind.__name__ for kind in failures) == sorted(
        [DuplicateKey.__name__, DuplicateKey.__name__, Conflict.__name__]
    )
    assert isinstance(results[1], DuplicateKey)
    assert set(scan_all(store, TABLE)) == {key(number) for number in (1, 2, 5, 6, 7, 8)}
    check_log(store, 6)


def test_one_write_that_is_too_large_leaves_room_for_the_others(tmp_path):
    with closing(
        create_store(str(tmp_path / "small"), nodes=1, durability="relaxed", map_size=1 << 20)
    ) as store:
        large = [put(range(100, 600), "x" * 4000)]
        results = writes(store, [put([1])], large, [put([2, 3])], large, [put([4])])
        assert [type(result) for result in results] == [Cut, StoreFull, Cut, StoreFull, Cut]
        check_log(store, 4)
        store.tables.write([put([5])])
        check_log(store, 5)


class Failing:
    """A write transaction that does not commit."""

    def __init__(self, txn, error):
        self.txn, self.error = txn, error

    def __getattr__(self, name):
        return getattr(self.txn, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.txn.abort()
        raise self.error


@pytest.mark.parametrize(
    ("error", "others"),
    [
        (lmdb.DiskError("mdb_txn_commit: No space left on device"), StoreFull),
        (KeyboardInterrupt(), OutcomeUnknown),
    ],
    ids=["full", "interrupted"],
)
def test_a_commit_that_fails_is_told_to_all(store, monkeypatch, error, others):
    begin, within = Environment.begin, Environment.within

    def begin_failing(self, *, write=False, buffers=False):
        txn = begin(self, write=write, buffers=buffers)
        return Failing(txn, error) if write else txn

    monkeypatch.setattr(Environment, "begin", begin_failing)
    monkeypatch.setattr(Environment, "within", lambda self, txn: within(self, txn.txn))
    results = writes(store, *([put([number])] for number in range(5)))
    monkeypatch.undo()
    own = [result for result in results if isinstance(result, KeyboardInterrupt)]
    assert len(own) == isinstance(error, KeyboardInterrupt)
    assert all(isinstance(result, others) for result in results if result not in own)
    assert len(set(map(id, results))) == 5, "threads do not share an exception"
    assert scan_all(store, TABLE) == {}
    store.tables.write([put([1])])
    check_log(store, 1)


def test_all_that_wait_for_a_stopped_process_have_a_deadline(path):
    change_settings(path, lock_seconds=0.3)
    with closing(open_store(str(path))) as store:
        holder = Worker("hold", path)
        assert holder.line() == "holds"
        os.kill(holder.process.pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(6) as pool:
                results = [pool.submit(store.tables.write, [put([number])]) for number in range(6)]
                errors = [result.exception() for result in results]
        finally:
            holder.kill()
        assert {type(error) for error in errors} == {Locked}
        assert all(f"process {holder.process.pid}" in str(error) for error in errors)
        assert scan_all(store, TABLE) == {}
        store.tables.write([put([1])])
        check_log(store, 1)


def test_a_write_that_was_given_up_never_happens(store):
    claims = [Claim(60.0) for _ in range(6)]
    node = store._database.nodes[0]
    with ThreadPoolExecutor(6) as pool:
        with node.lock:
            futures = [
                pool.submit(claim.run, store.tables.write, [put([number])])
                for number, claim in enumerate(claims)
            ]
            while len(node.calls._waiting) < 6:
                time.sleep(0.001)
            assert all(claim.give_up() for claim in claims[:3])
        errors = [future.exception() for future in futures]
    assert all(isinstance(error, Timeout | Locked) for error in errors[:3])
    assert errors[3:] == [None] * 3
    assert all(claim.begun for claim in claims[3:])
    assert set(scan_all(store, TABLE)) == {key(3), key(4), key(5)}


def test_threads_count_together(store):
    """Many threads that write over the same row by compare-and-set."""
    store.tables.write([put([1])])
    (start,) = store.tables.get(TABLE, [key(1)])
    first = ROWS.decode_one(start)[2]

    def count():
        for _ in range(40):
            while True:
                (old,) = store.tables.get(TABLE, [key(1)])
                new = row(1, "counted", ROWS.decode_one(old)[2] + 1)
                write = TableWrite(TABLE, ROWS, Kind.PUT, [key(1)], [new], expect=[old])
                try:
                    store.tables.write([write])
                    break
                except Conflict:
                    continue

    threads = [threading.Thread(target=count) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.tables.get(TABLE, [key(1)]) == [row(1, "counted", first + 240)]
    check_log(store, 241)


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_killed_processes_of_many_threads_lose_nothing_acknowledged(tmp_path, durability):
    path = tmp_path / "db"
    create_store(str(path), nodes=2, shards=2, durability=durability).close()
    workers = [Worker("pairs", path, 1_000_000 * first) for first in range(2)]
    acknowledged = [int(worker.line()) for worker in workers for _ in range(60)]
    for worker in workers:
        acknowledged += map(int, worker.kill())
    with closing(open_store(str(path))) as store:
        rows = scan_all(store, TABLE, limit=10**6)
        missing = [number for number in acknowledged if key(number) not in rows]
        assert not missing
        pairs = {ROWS.decode_one(data)[0] // 2 for data in rows.values()}
        assert len(rows) == 2 * len(pairs), "each write is a pair of rows"
        for node, entries in enumerate(log_entries(store, START, store.log.head())):
            left = store.tables.scan(node, TABLE, limit=10**6)
            assert replay(entries) == dict(zip(left.keys, left.rows, strict=True))
        store.tables.write([put(range(8))])
