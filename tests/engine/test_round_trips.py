"""Calls of the store: an epoch makes as many for a thousand rows as for ten, and waiting is one."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from viewkeep.engine import local
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.lease import Lease
from viewkeep.engine.pace import Work
from viewkeep.engine.resident import Assignment, assign, new_id, reside
from viewkeep.engine.rows import epoch as rows_lane
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store
from viewkeep.stores.wrapped import WrappedStore

from .history import FOLDER, History

VIEWS = {
    "keyed": "SELECT id, part, g, x FROM items WHERE x > 3",
    "sums": "SELECT g, COUNT(*) AS n, SUM(x) AS s, AVG(d) AS d FROM items GROUP BY g",
    "distinct": "SELECT g, COUNT(DISTINCT x) AS n FROM items GROUP BY g",
    "semi": "SELECT id, part FROM items WHERE x IN (SELECT id FROM items WHERE part = 1)",
    "top": "SELECT g, id, part, x FROM items "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY x DESC, id, part) <= 2",
    "sums_of_sums": "SELECT n, COUNT(*) AS times FROM "
    "(SELECT g, COUNT(*) AS n FROM items GROUP BY g) GROUP BY n",
    "lost": "SELECT g, MIN(x) AS low, MAX(x) AS high, MAX_BY(id, x) AS top, "
    "MIN(CASE WHEN d = 0 THEN x END) AS none FROM items GROUP BY g",
    "threshold": "SELECT i.id, i.part FROM items i "
    "JOIN (SELECT g, AVG(x) AS a FROM items GROUP BY g) k ON i.g = k.g WHERE i.x > k.a",
    "running": "SELECT id, part, SUM(x) OVER (PARTITION BY g ORDER BY id, part) AS s FROM items",
}
MOST = {  # calls of an epoch of few rows, over two logs and two shards
    "log.head": 1,
    "log.bounded_cut": 1,
    "log.splits": 4,
    "log.read": 2,
    "meta.get": 4,
    "meta.scan": 2,  # the newest plan, and pins
    "meta.cas": 2,  # opened, and published
    "state.get": 12,  # a lookup for each state table and shard
    "state.floor": 6,  # for each table of values and shard
    "state.scan_ranges": 10,  # for lost extremes: each table of values, shard and end, and again
    "state.apply": 4,
}


class CountingStore(WrappedStore):
    """Counts the calls, each of which takes `latency` seconds."""

    def __init__(self, inner: Store, latency: float = 0.0):
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.latency = latency

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.calls[method] += 1
        if self.latency:
            time.sleep(self.latency)
        return act(*args, **options)


@pytest.fixture
def store() -> Iterator[CountingStore]:
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        closing(create_store(f"{folder}/db", durability="relaxed")) as inner,
    ):
        yield CountingStore(inner)


def rows(count: int, turn: int) -> list[dict[str, Any]]:
    """Some rows of groups of five, other than in the turn before."""
    return [
        {"id": i, "part": 0, "g": f"g{i // 5}", "x": (i + turn) % 97, "d": float(turn)}
        for i in range(count)
    ]


@pytest.mark.parametrize("lane", ["rows", "columns"])
@pytest.mark.parametrize("view", VIEWS)
def test_calls_of_an_epoch_do_not_grow_with_its_rows(
    store: CountingStore, view: str, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lane == "columns":
        monkeypatch.setattr(rows_lane, "FEW", 0)
    history = History(store.inner)
    history.put(rows(2_000, 0))
    history.create_view(f"CREATE VIEW v AS {VIEWS[view]}")
    term = Epochs(store).acquire().term
    while local.advance(store, term):
        pass
    counts = []
    for turn, count in enumerate([10, 100, 1_000], start=1):
        history.put(rows(count, turn))
        store.calls.clear()
        assert local.advance(store, term) is not None
        counts.append(Counter(store.calls))
    history.check()
    assert sum(counts[2].values()) <= sum(counts[0].values()) + 12  # batches of wide parts
    if lane == "rows":
        over = {name: n for name, n in counts[0].items() if n > MOST.get(name, 2)}
        assert not over, "calls of a small epoch"


def test_a_second_epoch_of_a_plan_does_not_read_the_plan(store: CountingStore) -> None:
    history = History(store.inner)
    history.create_view(f"CREATE VIEW v AS {VIEWS['sums']}")
    term = Epochs(store).acquire().term
    local.advance(store, term)
    read: list[str] = []
    store.meta.inner = Recorder(store.inner.meta, read)  # type: ignore[attr-defined]
    history.put(rows(5, 1))
    assert local.advance(store, term) is not None
    assert [key for key in read if key.startswith(("plan/", "definition/"))] == []
    assert read.count("epoch") <= 2


class Recorder:
    """Meta records, and the keys that are asked for."""

    def __init__(self, inner: Any, read: list[str]):
        self._inner, self._read = inner, read

    def get(self, key: str) -> bytes | None:
        self._read.append(key)
        found: bytes | None = self._inner.get(key)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def lease(store: CountingStore) -> Lease:
    return Epochs(store).acquire()


def test_waiting_is_few_calls(store: CountingStore) -> None:
    epochs = Epochs(store)
    before = epochs.read().published
    store.calls.clear()
    assert epochs.wait(before.epoch, 0.2) == before
    assert store.calls == {"meta.get": 1, "meta.watch": 1}


def test_a_waiter_hears_of_a_publication(store: CountingStore) -> None:
    history, term = History(store.inner), Epochs(store).acquire().term
    history.create_view(f"CREATE VIEW v AS {VIEWS['sums']}")
    heard: list[int] = []
    waiter = threading.Thread(target=lambda: heard.append(Epochs(store).wait(0, 60.0).epoch))
    waiter.start()
    local.advance(store.inner, term)
    waiter.join()
    assert heard == [1]


def test_an_idle_resident_makes_few_calls(store: CountingStore, lease: Lease) -> None:
    history = History(store.inner)
    history.create_view(f"CREATE VIEW v AS {VIEWS['sums']}")
    while local.advance(store, lease.term):
        pass
    given = Assignment(new_id(), lease.term, Limits(), Work(), seconds=1.0)
    assign(store, given)
    store.calls.clear()
    reside(store, given)
    assert sum(store.calls.values()) < 60, store.calls


def test_an_epoch_over_a_store_with_latency(store: CountingStore) -> None:
    """A millisecond for each call: what an epoch of a thousand rows waits is some of them."""
    history = History(store.inner)
    history.create_view(f"CREATE VIEW v AS {VIEWS['sums']}")
    term = Epochs(store).acquire().term
    local.advance(store, term)
    history.put(rows(1_000, 1))
    store.latency = 0.001
    store.calls.clear()
    epoch = Epochs(store).open_next(term, Limits())
    assert epoch is not None
    Epochs(store).publish(term, epoch, local.run_epoch(store, epoch))
    assert sum(store.calls.values()) < 30
    store.latency = 0.0
    history.check()
