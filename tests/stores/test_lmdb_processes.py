"""Several processes at once, and processes that are killed."""

from contextlib import closing

import pytest

from viewkeep.errors import EpochGone
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import START, Kind, StateWrite, TableWrite

from .conformance import ROWS, TABLE, key, log_entries, put, row, scan_all
from .processes import Worker

WIDTH = 8


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def replay(entries):
    """The rows that a log leads to, with each before-image checked on the way."""
    rows = {}
    for _, _, _, entry_key, after, before in entries:
        assert rows.get(entry_key) == before
        rows[entry_key] = after
    return {entry_key: after for entry_key, after in rows.items() if after is not None}


def votes(rows):
    return {ROWS.decode_one(data)[2] for data in rows.values()}


def test_writers_and_readers_of_several_processes(path):
    store = create_store(str(path), nodes=2, durability="relaxed")
    workers = [Worker("increments", path, 100) for _ in range(3)]
    while any(worker.process.poll() is None for worker in workers):
        store.tables.get(TABLE, [key(1)])
        store.log.head()
    for worker in workers:
        worker.finish()
    assert store.tables.get(TABLE, [key(1)]) == [row(1, "counter", 300)]
    assert store.meta.get("counter") == b"300"
    entries = log_entries(store, START, store.log.head())
    assert sum(map(len, entries)) == 300
    for node in entries:
        replay(node)
    store.close()


def test_no_cut_splits_a_write(path):
    store = create_store(str(path), nodes=2, durability="relaxed")
    worker = Worker("rounds", path, WIDTH)
    worker.line()
    cut = store.log.head()
    for _ in range(60):
        after = store.log.head()
        assert (after.operations - cut.operations) % WIDTH == 0
        assert len(votes(scan_all(store, TABLE, limit=100, at=after))) == 1
        step = store.log.bounded_cut(cut, after, 3 * WIDTH, 1 << 40)
        assert step.operations - cut.operations <= 3 * WIDTH
        assert len(votes(scan_all(store, TABLE, limit=100, at=step))) == 1
        between = log_entries(store, cut, step)
        assert sum(map(len, between)) % WIDTH == 0
        cut = step
    worker.kill()
    store.close()


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_killed_writers_lose_nothing_acknowledged(path, durability, nodes):
    create_store(str(path), nodes=nodes, durability=durability).close()
    for attempt in range(4):
        worker = Worker("rounds", path, WIDTH)
        acknowledged = 0
        for _ in range(5 + 3 * attempt):
            acknowledged = int(worker.line())
        lines = worker.kill()
        acknowledged = int(lines[-1]) if lines else acknowledged
        store = open_store(str(path))
        rows = scan_all(store, TABLE, limit=100)
        # The round that was cut off is there whole or not at all.
        assert len(votes(rows)) <= 1
        for node, entries in enumerate(log_entries(store, START, store.log.head())):
            left = store.tables.scan(node, TABLE, limit=100)
            assert replay(entries) == dict(zip(left.keys, left.rows, strict=True))
        store.tables.write([put(range(WIDTH))])
        store.close()


def test_a_killed_epoch_is_whole_or_absent(path):
    create_store(str(path), durability="relaxed").close()
    worker = Worker("epochs", path, 2000)
    for _ in range(5):
        acknowledged = int(worker.line())
    lines = worker.kill()
    acknowledged = int(lines[-1]) if lines else acknowledged
    store = open_store(str(path))
    keys = [key(number) for number in range(2000)]
    newest = set(store.state.get(0, TABLE, keys, None))
    assert newest in ({b"%d" % acknowledged}, {b"%d" % (acknowledged + 1)})
    epoch = int(newest.pop() or b"0")
    assert set(store.state.get(0, TABLE, keys, epoch - 1)) == {b"%d" % (epoch - 1)}
    store.state.apply(0, epoch + 1, epoch, [StateWrite(TABLE, keys, [b"next"] * 2000)])
    with pytest.raises(EpochGone):
        store.state.get(0, TABLE, keys, epoch - 1)
    store.close()


def test_a_full_disk_refuses_whole_and_keeps_what_was_acknowledged(path):
    create_store(str(path), nodes=1).close()
    *rounds, last = Worker("fill", path, 2 << 20).finish()
    assert last.startswith("full the disk is full")
    assert len(rounds) > 10
    with closing(open_store(str(path))) as store:
        kept = [
            row
            for node in range(store.tables.parts)
            for row in store.tables.scan(node, TABLE, limit=10**6).rows
        ]
        logged = [
            key
            for split in store.log.splits(START, store.log.head())
            for batch in store.log.read(split)
            for key in batch.keys.to_list()
        ]
        assert len(kept) == 20 * len(rounds)
        assert len(logged) == len(kept)
        store.tables.write(
            [TableWrite(TABLE, ROWS, Kind.PUT, [b"more"], [ROWS.encode_one((1, "", 1))])]
        )
