"""What is on disk: creation, format versions, damage, full maps, and sharing within a process."""

import contextlib
import json
import os
import threading

import lmdb
import pytest

from viewkeep.errors import Corrupt, FormatVersion, StoreError, StoreFull
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import START, StateWrite

from .conformance import TABLE, key, log_entries, names, put, scan_all
from .processes import run_python


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def settings_of(path):
    return json.loads((path / "viewkeep.json").read_text())


def change_settings(path, **changes):
    (path / "viewkeep.json").write_text(json.dumps({**settings_of(path), **changes}))


def test_defaults_and_reopening(path):
    with_defaults = create_store(str(path))
    assert (with_defaults.tables.parts, with_defaults.state.shards) == (2, 2)
    assert with_defaults.url == f"lmdb:{path}"
    with_defaults.tables.write([put(range(10), "kept")])
    with_defaults.state.apply(1, 1, 0, [StateWrite(TABLE, [key(1)], [b"kept"])])
    with_defaults.meta.cas("a", None, b"kept")
    head = with_defaults.log.head()
    with_defaults.close()
    again = open_store(f"lmdb:{path}")
    assert names(again, range(10)) == ["kept"] * 10
    assert again.state.get(1, TABLE, [key(1)], 1) == [b"kept"]
    assert again.meta.get("a") == b"kept"
    assert again.log.head() == head
    again.close()


def test_settings_are_kept(path):
    create_store(str(path), nodes=3, shards=6, durability="relaxed").close()
    assert settings_of(path) == {
        "format": 6,
        "nodes": 3,
        "shards": 6,
        "durability": "relaxed",
        "map_size": 1 << 40,
        "lock_seconds": 30.0,
    }
    opened = open_store(str(path))
    assert (opened.tables.parts, opened.state.shards) == (3, 6)
    opened.close()


@pytest.mark.parametrize(
    "options",
    [{"nodes": 0}, {"nodes": 2, "shards": 3}, {"durability": "maybe"}, {"colour": "red"}],
)
def test_bad_options_are_refused(path, options):
    with pytest.raises(StoreError):
        create_store(str(path), **options)
    assert not (path / "viewkeep.json").exists()


def test_unknown_kind_of_store():
    with pytest.raises(StoreError, match="known are"):
        open_store("carrier-pigeon:coop")


def test_creating_twice_is_refused(path):
    create_store(str(path)).close()
    with pytest.raises(StoreError, match="already"):
        create_store(str(path))


def test_other_peoples_files_are_left_alone(path):
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="such as letter"):
        create_store(str(path))
    (path / "letter.txt").unlink()
    path.rmdir()
    path.write_text("a file")
    with pytest.raises(StoreError, match="file"):
        create_store(str(path))


def test_an_interrupted_creation_is_taken_over(path):
    create_store(str(path)).close()
    (path / "viewkeep.json").unlink()
    with pytest.raises(StoreError, match="no database"):
        open_store(str(path))
    create_store(str(path)).close()


def test_opening_nothing(path):
    with pytest.raises(StoreError, match="no database"):
        open_store(str(path))


@pytest.mark.parametrize(("version", "word"), [(5, "older"), (7, "newer")])
def test_other_format_versions(path, version, word):
    create_store(str(path)).close()
    change_settings(path, format=version)
    with pytest.raises(FormatVersion, match=word):
        open_store(str(path))


DAMAGED = [
    "",
    "{",
    "[]",
    "{}",
    '{"format": "1"}',
    '{"format": 6, "nodes": 0}',
    '{"format": 6, "x": 2}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_settings(path, content):
    create_store(str(path)).close()
    (path / "viewkeep.json").write_text(content)
    with pytest.raises(Corrupt, match="damaged"):
        open_store(str(path))


def test_damaged_environment(path):
    create_store(str(path)).close()
    data = path / "node-0" / "data.mdb"
    data.write_bytes(b"rubbish!" * 2048)
    with pytest.raises(Corrupt):
        open_store(str(path))


def test_a_file_that_was_cut_short(path):
    store = create_store(str(path), durability="relaxed")
    store.tables.write([put(range(20_000))])
    store.close()
    data = path / "node-1" / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)
    with pytest.raises(Corrupt, match="cut short"):
        open_store(str(path))


def test_a_missing_environment(path):
    create_store(str(path)).close()
    (path / "shard-1" / "data.mdb").unlink()
    with pytest.raises(Corrupt, match="shard-1"):
        open_store(str(path))


def test_a_full_map_refuses_whole_and_keeps_what_was_acknowledged(path):
    store = create_store(str(path), durability="relaxed", map_size=1 << 20)
    written = 0
    with contextlib.suppress(StoreFull):
        while True:
            store.tables.write([put(range(written, written + 50), "x" * 100)])
            written += 50
    assert written
    with pytest.raises(StoreFull, match="map_size"):
        store.tables.write([put(range(written, written + 500), "x" * 1000)])
    rows = scan_all(store, TABLE, limit=1000)
    assert sorted(rows) == [key(number) for number in range(written)]
    entries = log_entries(store, START, store.log.head())
    assert sum(map(len, entries)) == written
    with pytest.raises(StoreFull):
        store.state.apply(0, 1, 0, [StateWrite(TABLE, [key(1)], [b"x" * (1 << 20)])])
    assert store.state.get(0, TABLE, [key(1)], None) == [None]
    store.close()
    # The cure that the message names.
    change_settings(path, map_size=1 << 24)
    larger = open_store(str(path))
    larger.tables.write([put(range(50, 100), "y" * 100)])
    assert names(larger, [50]) == ["y" * 100]
    larger.close()


def test_stores_of_one_process_share_files_and_close_apart(path):
    first = create_store(str(path), durability="relaxed")
    second = open_store(str(path))
    first.tables.write([put([1], "shared")])
    first.close()
    assert names(second, [1]) == ["shared"]
    second.close()
    third = open_store(str(path))
    assert names(third, [1]) == ["shared"]
    third.close()


class Unsyncable:
    """An LMDB environment whose disk fails."""

    def __init__(self, env):
        self.env = env

    def sync(self, force):
        raise lmdb.DiskError("mdb_env_sync: Input/output error")

    def close(self):
        self.env.close()


def test_a_sync_that_fails_leaves_nothing_open(path):
    store = create_store(str(path), durability="relaxed")
    store.tables.write([put([1, 2, 3], "kept")])
    for environment in (store._database.nodes[0], store._database.shards[1]):
        environment.env = Unsyncable(environment.env)
    with pytest.raises(StoreError, match="error"):
        store.close()
    again = open_store(str(path))
    assert names(again, [1, 2, 3]) == ["kept"] * 3
    again.close()


def test_threads(path):
    store = create_store(str(path), durability="relaxed")
    failures = []

    def work(worker):
        try:
            mine = open_store(str(path))
            for step in range(50):
                mine.tables.write([put([worker * 1000 + step, worker * 1000 + step + 500])])
                assert names(store, [worker * 1000 + step]) == ["x"]
                mine.log.head()
            mine.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.log.head().operations == 4 * 50 * 2
    store.close()


def test_a_smaller_map_where_memory_is_limited(path):
    """A container may refuse the large map: the store takes what it gets, and grows with others."""
    create_store(str(path), durability="relaxed").close()
    script = f"""
import resource
from viewkeep.stores import open_store
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
store = open_store({str(path)!r})
assert store.meta.cas("a", None, b"small map")
store.close()
"""
    run_python("-c", script)
    store = open_store(str(path))
    assert store.meta.get("a") == b"small map"
    store.close()


def test_a_forked_child_opens_its_own(path):
    """In a process of its own, since forking a threaded test runner is not safe."""
    script = f"""
import os
from viewkeep.errors import StoreError
from viewkeep.stores import create_store
from viewkeep.stores.lmdb import LmdbStore
store = create_store({str(path)!r}, durability="relaxed")
store.meta.cas("a", None, b"parent")
child = os.fork()
if not child:
    try:
        store.meta.get("a")
        os._exit(2)
    except StoreError:
        store.close()
    mine = LmdbStore.open({str(path)!r})
    good = mine.meta.cas("a", b"parent", b"child")
    mine.close()
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert store.meta.get("a") == b"child"
store.close()
"""
    run_python("-c", script)
