"""Damaged bytes are noticed: they give Corrupt or have no effect, never another value."""

import json
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from viewkeep.access.damage import damaged_tables
from viewkeep.errors import Corrupt
from viewkeep.plan.nodes import Source
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import START, StateWrite
from viewkeep.stores.lmdb.cuts import cut_at
from viewkeep.types import BIGINT, Column, Schema

from .conformance import TABLE, key, log_entries, put, row
from .processes import run_python

DAMAGING = str(Path(__file__).with_name("damaging.py"))
PAGE, LOWER = 4096, 12  # bytes of LMDB's pages; where a page says how far its records' places go
NAMED = "the-name-of-row-500"  # found in the files by this


@pytest.fixture
def path(tmp_path):
    """A database with rows of which one is easily found in its files."""
    path = tmp_path / "db"
    with closing(create_store(str(path), nodes=1, shards=1, durability="relaxed")) as store:
        store.tables.write([put(range(0, 1000, 2))])
        store.tables.write([put([500], NAMED)])
        rows = [b"%d in state" % number for number in range(0, 1000, 2)]
        write = StateWrite(TABLE, [key(number) for number in range(0, 1000, 2)], rows)
        store.state.apply(0, 1, 0, [write])
        store.meta.cas("a", None, b"1")
        store.meta.cas("b", None, b"the value of b")
        store.meta.cas("c", None, b"3")
    return path


def damage(path, folder, old, new):
    """Replace bytes wherever they are in a file."""
    file = path / folder / "data.mdb"
    content = file.read_bytes()
    assert old in content
    assert len(old) == len(new)
    file.write_bytes(content.replace(old, new))


def full(number):
    """The key of a row as it is in the file."""
    return TABLE.to_bytes(4, "big") + key(number)


def test_a_damaged_base_row(path):
    damage(path, "node-0", row(500, NAMED, 5000), row(500, NAMED, 5001))
    with closing(open_store(str(path))) as store:
        for read in (
            lambda: store.tables.get(TABLE, [key(500)]),
            lambda: store.tables.get(TABLE, [key(number) for number in range(1000)]),
            lambda: store.tables.scan(0, TABLE, limit=1000),
            lambda: store.tables.scan(0, TABLE, limit=1000, reverse=True),
            lambda: store.tables.write([put([500])]),
            lambda: store.tables.write([put([500, 502])]),
        ):
            with pytest.raises(Corrupt, match=r"node-0.*row of table 7 .*backup"):
                read()
        assert store.tables.get(TABLE, [key(502)]) == [row(502, "x", 5020)]
        store.tables.write([put([502])])


def test_a_damaged_page_that_hides_rows_is_found_by_verification(path):
    """A page says how many records it has: one fewer hides its last, in order, from all reads."""
    file = path / "node-0" / "data.mdb"
    content = bytearray(file.read_bytes())
    page = content.index(full(500) + row(500, NAMED, 5000)) // PAGE * PAGE
    lower = int.from_bytes(content[page + LOWER : page + LOWER + 2], sys.byteorder)
    content[page + LOWER : page + LOWER + 2] = (lower - 2).to_bytes(2, sys.byteorder)
    table = Source("t", TABLE, Schema((Column("a", BIGINT),), ("a",)))
    with closing(open_store(str(path))) as store:
        store.tables.check_counts(0)
        assert damaged_tables(store, [table]) == {}
    file.write_bytes(content)
    with closing(open_store(str(path))) as store:
        assert len(store.tables.scan(0, TABLE, limit=1000).keys) == 499, "no read can tell"
        message = r"node-0.*499 records of rows can be read, and 500 were written.*backup"
        with pytest.raises(Corrupt, match=message):
            store.tables.check_counts(0)
        assert "499 records" in damaged_tables(store, [table])["t"]


@pytest.mark.parametrize("other", [1, 499, 501, 999])
def test_a_damaged_key_hides_no_base_row(path, other):
    stored = row(500, NAMED, 5000)
    damage(path, "node-0", full(500) + stored, full(other) + stored)
    with closing(open_store(str(path))) as store:
        for read in (
            lambda: store.tables.get(TABLE, [key(500)]),
            lambda: store.tables.get(TABLE, [key(number) for number in range(1000)]),
            lambda: store.tables.scan(0, TABLE, limit=1000),
            lambda: store.tables.scan(0, TABLE, start=key(500), limit=1),
            lambda: store.tables.scan(0, TABLE, start=key(400), stop=key(501), limit=1000),
            lambda: store.tables.scan(0, TABLE, stop=key(501), limit=1, reverse=True),
            lambda: store.tables.write([put([500])]),
            lambda: store.tables.write([put([500, 502])]),
        ):
            with pytest.raises(Corrupt, match="node-0"):
                read()
        assert store.tables.get(TABLE, [key(300)]) == [row(300, "x", 3000)]


def test_a_damaged_state_row(path):
    damage(path, "shard-0", b"500 in state", b"600 in state")
    with closing(open_store(str(path))) as store:
        for read in (
            lambda: store.state.get(0, TABLE, [key(500)], 1),
            lambda: store.state.get(0, TABLE, [key(number) for number in range(1000)], 1),
            lambda: store.state.scan(0, TABLE, limit=1000, at=1),
            lambda: list(store.state.find(0, TABLE, [key(500)], 1)),
            lambda: list(store.state.scan_ranges(0, TABLE, [(key(500), None)], 1, limits=[1])),
            lambda: list(
                store.state.scan_ranges(
                    0, TABLE, [(b"", key(500) + b"\0")], 1, limits=[1], reverse=True
                )
            ),
            lambda: store.state.floor(0, TABLE, [key(501)], [(b"", 1)], 1),
            lambda: store.state.changes(0, TABLE, 0, 1, limit=1000),
            lambda: store.state.apply(0, 2, 1, [StateWrite(TABLE, [key(500)], [b"new"])]),
        ):
            with pytest.raises(Corrupt, match=r"shard-0.*row of table 7 .*verify --repair"):
                read()
        assert store.state.get(0, TABLE, [key(502)], 1) == [b"502 in state"]


@pytest.mark.parametrize("other", [1, 499, 501, 999])
def test_a_damaged_key_hides_no_state_row(path, other):
    stamp = (1).to_bytes(8, "little")
    damage(path, "shard-0", full(500) + stamp, full(other) + stamp)
    with closing(open_store(str(path))) as store:
        for read in (
            lambda: store.state.get(0, TABLE, [key(500)], 1),
            lambda: store.state.get(0, TABLE, [key(number) for number in range(1000)], 1),
            lambda: store.state.scan(0, TABLE, limit=1000, at=1),
            lambda: list(store.state.find(0, TABLE, [key(500)], 1)),
            lambda: list(store.state.scan_ranges(0, TABLE, [(key(500), None)], 1, limits=[1])),
            lambda: list(
                store.state.scan_ranges(
                    0, TABLE, [(b"", key(500) + b"\0")], 1, limits=[1], reverse=True
                )
            ),
            lambda: store.state.floor(0, TABLE, [key(500)], [(b"", 1)], 1),
            lambda: store.state.changes(0, TABLE, 0, 1, limit=1000),
            lambda: store.state.apply(0, 2, 1, [StateWrite(TABLE, [key(500)], [b"new"])]),
        ):
            with pytest.raises(Corrupt, match="shard-0"):
                read()


def zero_header(path, folder, key):
    """LMDB then takes the record of this key for one without key and value, of no bytes at all."""
    file = path / folder / "data.mdb"
    content = file.read_bytes()
    assert key in content
    file.write_bytes(content.replace(content[(at := content.rindex(key)) - 8 : at], bytes(8)))


@pytest.mark.parametrize("number", [500, 996])
def test_a_record_of_no_bytes_is_damaged(path, number):
    """The crc32 of nothing is that of a sound record."""
    zero_header(path, "node-0", full(number))
    zero_header(path, "shard-0", full(number))
    with closing(open_store(str(path))) as store:
        for read in (
            lambda: store.tables.get(TABLE, [key(number)]),
            lambda: store.tables.get(TABLE, [key(number) for number in range(1000)]),
            lambda: store.tables.scan(0, TABLE, limit=1000),
            lambda: store.tables.scan(0, TABLE, limit=1000, reverse=True),
            lambda: store.tables.scan(0, TABLE, start=key(number), limit=1),
            lambda: store.tables.scan(0, TABLE, start=key(number), stop=key(number + 1), limit=1),
            lambda: store.tables.scan(0, TABLE, stop=key(number + 1), limit=1, reverse=True),
            lambda: store.tables.write([put([number])]),
            lambda: store.tables.write([put([number, 2])]),
            lambda: store.state.get(0, TABLE, [key(number)], 1),
            lambda: store.state.get(0, TABLE, [key(number) for number in range(1000)], 1),
            lambda: store.state.scan(0, TABLE, limit=1000, at=1),
            lambda: store.state.scan(0, TABLE, limit=1000, at=1, reverse=True),
            lambda: list(store.state.find(0, TABLE, [key(number)], 1)),
            lambda: list(store.state.scan_ranges(0, TABLE, [(key(number), None)], 1, limits=[1])),
            lambda: list(
                store.state.scan_ranges(
                    0, TABLE, [(b"", key(number) + b"\0")], 1, limits=[1], reverse=True
                )
            ),
            lambda: store.state.floor(0, TABLE, [key(number)], [(b"", 1)], 1),
            lambda: store.state.changes(0, TABLE, 0, 1, limit=1000),
            lambda: store.state.apply(0, 2, 1, [StateWrite(TABLE, [key(number)], [b"new"])]),
        ):
            with pytest.raises(Corrupt):
                read()


def test_a_log_segment_of_no_bytes_is_damaged(path):
    """The last segment: its key stands in the file after others of the same bytes."""
    with closing(open_store(str(path))) as store:
        end = store.log.head().operations
        put_at = end.to_bytes(8, "big")
        store.tables.write([put([500])])
    zero_header(path, "node-0", put_at)
    with closing(open_store(str(path))) as store:
        for read in (
            lambda: store.log.head(),
            lambda: log_entries(store, START, cut_at(0, (end + 1,))),
            lambda: store.tables.write([put([500])]),
        ):
            with pytest.raises(Corrupt):
                read()


def test_a_damaged_log(path):
    logged = key(500) + row(500, NAMED, 5000)
    damage(path, "node-0", logged, key(500) + row(500, NAMED, 5001))
    expected = pytest.raises(Corrupt, match=r"node-0.*log segment at operation 500")
    with closing(open_store(str(path))) as store, expected:
        log_entries(store, START, store.log.head())


def test_a_damaged_head_of_a_log_segment(path):
    """Cuts read no more of a segment than its head."""
    with closing(open_store(str(path))) as store:
        head = store.log.head()
    moment = head.watermark.to_bytes(8, "little")
    damage(path, "node-0", moment, (head.watermark + 1).to_bytes(8, "little"))
    with closing(open_store(str(path))) as store, pytest.raises(Corrupt, match="operation 500"):
        store.log.head()


def test_a_damaged_meta_record(path):
    damage(path, "meta", b"the value of b", b"the value of B")
    with closing(open_store(str(path))) as store:
        for use in (
            lambda: store.meta.get("b"),
            lambda: store.meta.get("bb"),  # absent, beside the damaged one
            lambda: store.meta.scan(""),
            lambda: store.meta.scan("b"),
            lambda: store.meta.cas("b", b"the value of b", b"new"),
        ):
            with pytest.raises(Corrupt, match="meta"):
                use()
        assert store.meta.get("a") == b"1"


def test_a_damaged_redo_record(tmp_path, monkeypatch):
    """A write that a crash has cut is not completed with other bytes."""
    path = tmp_path / "db"
    store = create_store(str(path), nodes=2, durability="relaxed")
    with monkeypatch.context() as patched:
        patched.setattr("viewkeep.stores.lmdb.write.commit", _commit_one())
        with pytest.raises(KeyboardInterrupt):
            store.tables.write([put(range(100), NAMED)])
    store.close()
    damage(path, "node-0", b"row-500", b"row-501")
    with pytest.raises(Corrupt, match="node-0"):
        open_store(str(path))


def _commit_one():
    done = []

    def commit(txn):
        if done:
            raise KeyboardInterrupt
        done.append(1)
        txn.commit()

    return commit


def test_random_damage(tmp_path):
    *told, counts = run_python(DAMAGING, str(tmp_path / "db"), "1", "40").splitlines()
    outcomes = json.loads(counts)
    killed = {f"ended {-number}" for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV)}
    assert outcomes.keys() <= {"same", "refused"} | killed, told
    assert outcomes["refused"] > 8
