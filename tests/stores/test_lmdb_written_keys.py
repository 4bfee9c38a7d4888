"""Lists of the keys that epochs wrote: changes are the same with them, without, and half way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from viewkeep.stores.contract import StateWrite
from viewkeep.stores.lmdb import state, written_keys
from viewkeep.stores.lmdb.store import LmdbStore

from .conformance import TABLE, changes_of, key, rows_at


@pytest.fixture
def store(tmp_path: Path) -> LmdbStore:
    return LmdbStore.create(tmp_path / "db", nodes=1, shards=2, durability="relaxed")


def lists(store: LmdbStore) -> list[int]:
    """The epochs that have lists, once per table."""
    shard = store._database.shards[0]
    with shard.reading() as txn, txn.cursor(db=shard.dbs["info"]) as cursor:
        found = [k for k, _ in cursor if k.startswith(b"noted")]
    return [int.from_bytes(k[5:13], "big") for k in found]


def check(store: LmdbStore, after: int, upto: int) -> None:
    """Changes are the differences of the rows at each two epochs."""
    found = changes_of(store, after, upto, 3, b"", None)
    expected: dict[bytes, list[tuple[int, bytes | None]]] = {}
    for epoch in range(after + 1, upto + 1):
        old, new = rows_at(store, epoch - 1), rows_at(store, epoch)
        for changed in old.keys() | new.keys():
            if old.get(changed) != new.get(changed):
                start = [(after, rows_at(store, after).get(changed))]
                expected.setdefault(changed, start).append((epoch, new.get(changed)))
    assert found == expected


@pytest.mark.parametrize("most", [0, 3, 1000])
@pytest.mark.parametrize("few", [1, 5])
def test_many_or_few_keys(
    store: LmdbStore, most: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_keys, "MOST", most)
    monkeypatch.setattr(state, "_FEW", few)
    source = random.Random(most)
    keys = [key(number) for number in range(15)]
    for epoch in range(1, 10):
        for _ in range(source.randrange(3)):  # several tasks may write to one table
            chosen = source.sample(keys, source.randrange(5))
            rows = [source.choice([None, b"a", b"b"]) for _ in chosen]
            store.state.apply(0, epoch, min(epoch - 1, 2), [StateWrite(TABLE, chosen, rows)])
    store.state.apply(0, 9, 2, [])
    for after in range(2, 10):
        check(store, after, 9)
        for start, stop in ((keys[3], None), (keys[2], keys[9]), (keys[4], keys[5])):
            part = changes_of(store, after, 9, 2, start, stop)
            whole = changes_of(store, after, 9, 99, b"", None)
            assert part == {
                k: v for k, v in whole.items() if k >= start and (stop is None or k < stop)
            }


def test_a_database_from_before_lists(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs that were not listed are scanned for; the one in which lists began is too."""
    with monkeypatch.context() as patch:
        patch.setattr(written_keys, "add", lambda *args: None)
        for epoch in (1, 2, 3):
            write = StateWrite(TABLE, [key(epoch), key(9)], [b"x", b"%d" % epoch])
            store.state.apply(0, epoch, 0, [write])
    store.state.apply(0, 3, 0, [StateWrite(TABLE, [key(5)], [b"y"])])
    store.state.apply(0, 4, 0, [StateWrite(TABLE, [key(6), key(9)], [b"z", b"4"])])
    for after in range(4):
        check(store, after, 4)


def test_lists_go_with_the_horizon(store: LmdbStore) -> None:
    for epoch in range(1, 8):
        store.state.apply(0, epoch, epoch - 1, [StateWrite(TABLE, [key(1)], [b"%d" % epoch])])
        assert lists(store) == [epoch]
    for epoch in range(8, 12):
        store.state.apply(0, epoch, 7, [StateWrite(TABLE, [key(1)], [b"%d" % epoch])])
    assert lists(store) == [8, 9, 10, 11]
    check(store, 7, 11)


def test_noting_again_changes_nothing(store: LmdbStore) -> None:
    writes = [StateWrite(TABLE, [key(2), key(1)], [b"a", b"b"])]
    shard = store._database.shards[0]
    seen = []
    for _ in range(3):
        store.state.apply(0, 1, 0, writes)
        with shard.reading() as txn:
            seen.append(written_keys.between(shard, txn, TABLE, 0, 1))
    assert seen == [{key(1), key(2)}] * 3
