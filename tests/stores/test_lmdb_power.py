"""Power loss at any byte: what a commit has synced is enough to find all of it again.

The tests write, and then put back what the disk need not have: a commit syncs its pages and its
record, and leaves the meta page that leads to them. Everything written after that sync may be there
in part. The campaign does the same by sectors, with a preloaded library, at any write or sync.
"""

import random
import shutil
from contextlib import closing
from itertools import pairwise

import lmdb
import pytest

from viewkeep.errors import StoreFull
from viewkeep.stores import compact_store, create_store, open_store
from viewkeep.stores.contract import START, Kind, TableWrite
from viewkeep.stores.lmdb import commit_record, write
from viewkeep.stores.lmdb.commit_record import SLOT, CommitRecord
from viewkeep.stores.lmdb.environment import Environment

from .conformance import ROWS, TABLE, delete, key, log_entries, put, row, scan_all
from .test_lmdb_files import change_settings
from .test_lmdb_group import Failing, together
from .test_lmdb_processes import replay

PAGE = 4096
SECTOR = 512


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "db"
    create_store(str(path), nodes=1, shards=1).close()
    return path


class Disk:
    """A database, and its node's file as a power loss may leave it."""

    def __init__(self, path):
        self.path, self.copies = path, 0
        self.store = open_store(str(path))
        self.node = self.store._database.nodes[0]
        self.file = path / "node-0" / "data.mdb"

    def image(self):
        return self.file.read_bytes()

    def state(self):
        return state(self.store)

    def commit(self, *writes):
        """Write; the file as it was before and is after, and the state that it holds."""
        before = self.image()
        for part in writes:
            self.store.tables.write(part)
        return before, self.image(), self.state()

    def meta(self):
        """Where the meta page of the last commit lies."""
        return PAGE * (self.node.last_transaction % 2)

    def slot(self):
        return self.node.record._slot(self.node.last_transaction)

    def found(self, image, *, goes_on=True):
        """What a process finds that opens the file when the power is back, and may write to."""
        self.copies += 1
        copy = self.path.with_name(f"copy-{self.copies}")
        shutil.copytree(self.path, copy, ignore=shutil.ignore_patterns("lock.mdb"))
        (copy / "node-0" / "data.mdb").write_bytes(image)
        try:
            with closing(open_store(str(copy))) as store:
                first = state(store)
                if not goes_on:
                    return first
                store.tables.write([put([999], "goes on")])
            with closing(open_store(str(copy))) as store:
                again = state(store)
        finally:
            shutil.rmtree(copy)
        rows, operations = first
        assert again == (rows | {key(999): row(999, "goes on", 9990)}, operations + 1)
        return first


def state(store):
    """All rows, and how many operations the log has, which lead to them."""
    rows, head = scan_all(store, TABLE, limit=100), store.log.head()
    (entries,) = log_entries(store, START, head)
    assert len(entries) == head.operations
    assert replay(entries) == rows
    return rows, head.operations


def kept(newer, older, at, size):
    """The newer file, of which a stretch is as in the older one."""
    return newer[:at] + older[at : at + size].ljust(size, b"\0") + newer[at + size :]


COMMITS = {
    "one row": [put([1], "one")],
    "a change": [put([2], "changed")],
    "a deletion": [delete([3])],
    "some columns": [TableWrite(TABLE, ROWS, Kind.PUT, [key(2)], [row(2, "part")], columns=(0, 1))],
    "rows that come again": [put([4, 5, 6]), delete([5, 7]), put([5, 4], "again")],
    "nothing": [delete([100])],
    "more than a record takes": [put(range(200, 220), "x" * 4000)],
}


@pytest.mark.parametrize("writes", COMMITS.values(), ids=COMMITS)
def test_an_acknowledged_commit_survives_without_its_meta_page(path, writes):
    disk = Disk(path)
    disk.commit([put(range(2, 8), "first")])
    before, after, acknowledged = disk.commit(writes)
    if disk.node.record.read(disk.node.last_transaction) is not None:
        after = kept(after, before, disk.meta(), PAGE)
    # Without a record, the last commit was synced once more.
    assert disk.node.durable == disk.node.last_transaction
    assert disk.found(after) == acknowledged
    disk.store.close()


def test_compaction_keeps_a_commit_without_its_meta_page(path):
    disk = Disk(path)
    disk.commit([put(range(2, 800), "first" * 20)], [delete(range(8, 800))])
    before, after, acknowledged = disk.commit([put([1], "one")])
    image = kept(after, before, disk.meta(), PAGE)
    disk.store.close()
    disk.file.write_bytes(image)
    assert compact_store(str(path))[1] < len(image)
    with closing(open_store(str(path))) as store:
        assert state(store) == acknowledged


def test_a_compacted_file_has_no_records_of_earlier_transactions(path):
    """Its transactions are numbered anew, and will come to the numbers of old records."""
    disk = Disk(path)
    disk.commit([put(range(2, 800), "first" * 20)], [delete(range(8, 800))], [put([1], "one")])
    numbers = [disk.node.last_transaction - 1, disk.node.last_transaction]
    assert None not in map(disk.node.record.read, numbers[1:])
    disk.store.close()
    compact_store(str(path))
    disk = Disk(path)
    assert disk.node.last_transaction < numbers[0]
    assert [disk.node.record.read(number) for number in numbers] == [None, None]
    disk.store.close()


def test_calls_of_several_threads_are_in_one_record(path):
    disk = Disk(path)
    before = disk.image()
    groups = [[put([n, 100 + n], f"{n}")] for n in range(6)]
    failing = [put([50]), TableWrite(TABLE, ROWS, Kind.PUT, [key(9)], [row(9)], expect=[b"no"])]
    together(disk.store, *(lambda g=g: disk.store.tables.write(g) for g in [*groups, failing]))
    acknowledged = disk.state()
    assert acknowledged[1] == 12
    assert disk.found(kept(disk.image(), before, disk.meta(), PAGE)) == acknowledged
    disk.store.close()


def test_a_record_that_is_torn_at_any_byte_is_none(path):
    """The next commit was under way: its record is written from its beginning to some byte."""
    disk = Disk(path)
    disk.commit([put(range(6))])
    before, acknowledged_file, acknowledged = disk.commit([put([1], "acknowledged")])
    meta = disk.meta()
    _, under_way, complete = disk.commit([put([2, 7], "under way")])
    at = disk.slot()
    without_meta = kept(acknowledged_file, before, meta, PAGE)
    written = under_way[at:][: 16 + int.from_bytes(under_way[at:][8:12], "little")]
    assert 150 < len(written) < 250
    for torn in range(len(written) + 1):
        base = (acknowledged_file, without_meta)[torn % 2]
        image = base[:at] + written[:torn] + base[at + torn :]
        is_whole = image[at:].startswith(written)
        assert disk.found(image, goes_on=False) == (complete if is_whole else acknowledged)
    assert disk.found(kept(under_way, base, disk.meta(), PAGE)) == complete
    disk.store.close()


def test_any_part_of_the_next_commit_may_be_there(path):
    """Of what is not synced, any sectors are on the disk: pages, the record and the meta page."""
    rng = random.Random(17)
    disk = Disk(path)
    states = [disk.commit([put(range(40), "x" * 50)])]
    metas = [disk.meta()]
    for step in range(12):
        size = rng.choice((1, 1, 2, 30))
        numbers = [rng.randrange(60) for _ in range(size)]
        states.append(disk.commit([put(numbers, f"{step}" * rng.randrange(1, 40))]))
        metas.append(disk.meta())
    for ((before, synced, acknowledged), meta), ((_, after, complete), next_meta) in pairwise(
        zip(states, metas, strict=True)
    ):
        for _ in range(4):
            image = bytearray(synced)
            if rng.random() < 0.5:
                image[meta : meta + PAGE] = before[meta : meta + PAGE]
            image += bytes(len(after) - len(image))
            share = rng.choice((0.1, 0.5, 0.9, 1.0))
            for at in range(0, len(after), SECTOR):
                # LMDB writes the meta page once the rest is on the disk.
                if not next_meta <= at < next_meta + PAGE and rng.random() < share:
                    image[at : at + SECTOR] = after[at : at + SECTOR]
            if rng.random() < 0.5:  # the meta page of the acknowledged commit
                image[meta : meta + PAGE] = synced[meta : meta + PAGE]
            assert disk.found(bytes(image)) in (acknowledged, complete)
    disk.store.close()


def test_a_commit_that_failed_does_not_happen_later(path, monkeypatch):
    disk = Disk(path)
    disk.commit([put([1])])
    acknowledged = disk.state()
    begin = Environment.begin
    full = lmdb.DiskError("mdb_txn_commit: No space left on device")

    def begin_failing(self, *, write=False, buffers=False):
        txn = begin(self, write=write, buffers=buffers)
        return Failing(txn, full) if write else txn

    with monkeypatch.context() as patched:
        patched.setattr(Environment, "begin", begin_failing)
        with pytest.raises(StoreFull):
            disk.store.tables.write([put([2])])
    assert disk.node.record.read(disk.node.last_transaction + 1) is None
    assert disk.found(disk.image()) == acknowledged
    disk.store.close()


@pytest.mark.parametrize("is_seen", [False, True])
def test_what_a_head_did_not_see_is_not_made_later(path, is_seen):
    """A writer died, or its disk failed, between its record and its commit."""
    disk = Disk(path)
    before, _, complete = disk.commit([put([1], "dead")])
    number = disk.node.last_transaction
    record = disk.node.record.read(number)
    disk.store.close()
    disk.file.write_bytes(before)
    disk = Disk(path)
    assert disk.node.last_transaction == number - 1
    assert disk.node.record.write(number, record)
    if is_seen:
        assert disk.store.log.head().operations == 0
    assert disk.found(disk.image()) == (({}, 0) if is_seen else complete)
    disk.store.close()


def test_the_record_of_a_dead_writer_gives_way(path):
    """It died before its commit: the next commit takes its number, with a record or without."""
    for following in ([put([2], "next")], [put(range(200, 220), "x" * 4000)]):
        disk = Disk(path)
        disk.commit([put([1])])
        number = disk.node.last_transaction + 1
        disk.commit([put([2], "dead")])
        (record,) = [disk.node.record.read(number)]
        disk.store.close()
        disk = Disk(path)
        number, end = disk.node.last_transaction + 1, disk.store.log.head().operations
        dead = [(end, segment) for _, segment in record]
        assert disk.node.record.write(number, dead)
        _, after, acknowledged = disk.commit(following)
        assert disk.found(after) == acknowledged
        disk.store.close()


def test_a_write_over_two_nodes_is_synced_on_each(tmp_path):
    create_store(str(tmp_path / "two"), nodes=2, shards=2).close()
    with closing(open_store(str(tmp_path / "two"))) as store:
        store.tables.write([put(range(8))])
        for node in store._database.nodes:
            assert node.durable == node.last_transaction > 0


def test_the_redo_record_is_not_replaced_before_its_parts_are_on_the_disk(tmp_path, monkeypatch):
    """The writer before died after the commit on its last node, which it had yet to sync."""
    create_store(str(tmp_path / "two"), nodes=2, shards=2).close()
    with closing(open_store(str(tmp_path / "two"))) as store:
        _, second = store._database.nodes
        with monkeypatch.context() as patched:
            patched.setattr(write, "_sync", lambda node: None)
            store.tables.write([put(range(8), "before")])
        assert second.durable != second.last_transaction
        last = second.last_transaction
        seen = []
        commit = write.commit

        def looking(txn):
            seen.append(second.durable)
            commit(txn)

        monkeypatch.setattr(write, "commit", looking)
        store.tables.write([put(range(8), "after")])
        assert seen[0] == last


def test_a_head_survives_what_its_writer_did_not_sync(path, monkeypatch):
    disk = Disk(path)
    with monkeypatch.context() as patched:
        patched.setattr(Environment, "sync", lambda node: None)
        disk.store.tables.write([put(range(200, 220), "x" * 4000)])
    assert disk.node.durable != disk.node.last_transaction
    disk.store.log.head()
    assert disk.node.durable == disk.node.last_transaction
    disk.store.close()


def test_a_database_without_a_record_gets_one(tmp_path):
    path = tmp_path / "older"
    create_store(str(path), nodes=1, shards=1, durability="relaxed").close()
    with closing(open_store(str(path))) as store:
        store.tables.write([put([1])])
        assert store._database.nodes[0].record is None
    change_settings(path, durability="full")
    disk = Disk(path)
    before, after, acknowledged = disk.commit([put([2])])
    assert disk.found(kept(after, before, disk.meta(), PAGE)) == acknowledged
    disk.store.close()


def test_where_no_record_can_be_each_commit_is_synced_twice(path, monkeypatch):
    def refuse(*args):
        raise OSError

    monkeypatch.setattr(commit_record, "_place", refuse)
    disk = Disk(path)
    assert disk.node.record is None
    disk.commit([put([1])])
    assert disk.node.durable == disk.node.last_transaction
    disk.store.close()


def test_slots_are_read_as_they_were_written(path):
    disk = Disk(path)
    record = disk.node.record
    segments = [(5, b"a" * 10), (6, b""), (7, b"c" * 1000)]
    assert record.write(100, segments)
    assert record.write(101, [])
    assert record.read(100) == segments
    assert record.read(101) == []
    assert record.read(102) is None
    assert not record.write(102, [(1, bytes(SLOT))])
    record.erase(101)
    assert record.read(101) is None
    most = SLOT - len(bytes(16)) - 12
    assert record.write(103, [(1, bytes(most))])
    assert not record.write(103, [(1, bytes(most + 1))])
    assert record.read(100) == segments
    assert isinstance(record, CommitRecord)
    disk.store.close()
