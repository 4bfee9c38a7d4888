"""Parts of several stores as one store: the shared suites, and views over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from viewkeep.engine.epochs import Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.stores import create_store
from viewkeep.stores.bundle import Bundle
from viewkeep.stores.contract import (
    START,
    Chunk,
    Cut,
    LogBatch,
    LogSplit,
    Store,
    TableWrite,
)
from viewkeep.stores.wrapped import WrappedLog, WrappedStore, WrappedTables

from ..engine.history import History
from .conformance import BaseSuite, LogSuite, MetaSuite, ScanSuite, StateSuite, store  # noqa: F401

VIEWS = [
    "SELECT id, part, g, x FROM items WHERE x > 3",
    "SELECT g, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m FROM items GROUP BY g",
    "SELECT a.id, a.part, b.x FROM items a JOIN items b ON a.x = b.id AND b.part = 0",
    "SELECT id, part, x FROM items ORDER BY x DESC LIMIT 3",
]


def bundle(folder: Path) -> Bundle:
    url = f"bundle:{folder / 'base'}|{folder / 'state'}|{folder / 'meta'}"
    made = create_store(url, nodes=2, shards=3, durability="relaxed")
    assert isinstance(made, Bundle)
    return made


@pytest.fixture
def store_factory(tmp_path: Path) -> Any:
    return lambda: bundle(tmp_path)


class TestBase(BaseSuite):
    pass


class TestScan(ScanSuite):
    pass


class TestLog(LogSuite):
    pass


class TestState(StateSuite):
    pass


class TestMeta(MetaSuite):
    pass


class StrangeStore(WrappedStore):
    """Base tables that are older than their logs, whose positions have gaps and other names.

    What the inner store had logged when this was made has never been in a log.
    """

    def __init__(self, inner: Store):
        super().__init__(inner)
        self.origin = inner.log.head()
        self.log, self.tables = StrangeLog(self, inner.log), StrangeTables(self, inner.tables)

    def outer(self, cut: Cut) -> Cut:
        positions = {
            f"late {name}": 3 * max(0, at - self.origin.position(name))
            for name, at in cut.positions.items()
        }
        operations = max(0, cut.operations - self.origin.operations)
        return Cut(positions, cut.watermark, operations, begun=1)

    def back(self, cut: Cut) -> Cut:
        positions = {
            name: at + cut.position(f"late {name}") // 3
            for name, at in self.origin.positions.items()
        }
        return Cut(positions, cut.watermark, cut.operations + self.origin.operations, begun=1)


class StrangeLog(WrappedLog):
    _store: StrangeStore

    def head(self) -> Cut:
        return self._store.outer(self.inner.head())

    def kept(self) -> Cut:
        return self._store.outer(self.inner.kept())

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        back = self._store.back
        return self._store.outer(self.inner.bounded_cut(back(start), back(stop), operations, size))

    def first_after(self, cut: Cut) -> int | None:
        return self.inner.first_after(self._store.back(cut))

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        back = self._store.back
        return [
            LogSplit(
                f"late {log.log}",
                start.position(f"late {log.log}"),
                stop.position(f"late {log.log}"),
                log.operations,
                log.part,
            )
            for log in self.inner.splits(back(start), back(stop))
        ]

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        return [split]

    def read(self, split: LogSplit, tables: frozenset[int] | None = None) -> Iterator[LogBatch]:
        begin, end = (self._store.back(Cut({split.log: at})) for at in (split.start, split.stop))
        (mine,) = [
            log
            for log in self.inner.splits(begin, end)
            if f"late {log.log}" == split.log and not log.is_empty
        ]
        return self.inner.read(mine, tables)

    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        return self.inner.truncate(self._store.back(before), budget)


class StrangeTables(WrappedTables):
    _store: StrangeStore

    def write(self, writes: Sequence[TableWrite]) -> Cut:
        return self._store.outer(self.inner.write(writes))

    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        return self.inner.get(table, keys, None if at is None else self._store.back(at))

    def scan(self, part: int, table: int, *, at: Cut | None = None, **range_: Any) -> Chunk:
        past = None if at is None else self._store.back(at)
        return self.inner.scan(part, table, at=past, **range_)

    def may_have_rows(self, part: int, table: int, at: Cut) -> bool:
        return True


class ManyPartedLog(StrangeLog):
    """One that does not say which part its rows are of."""

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        return [log._replace(part=None) for log in super().splits(start, stop)]


def write(history: History, random: Random) -> None:
    history.put(
        [
            {"id": i, "part": random.randrange(2), "g": random.choice("abc"), "x": i * 7 % 11}
            for i in random.sample(range(20), random.randrange(1, 8))
        ]
    )
    history.delete([(random.randrange(20), random.randrange(2))])


def follow(history: History, seed: int) -> None:
    """Write, and keep views that come one after the other."""
    random = Random(seed)
    for number in range(8):
        write(history, random)
        if number % 2 == 0:
            history.create_view(f"CREATE VIEW v{number} AS {VIEWS[number // 2]}")
        catch_up(history.store, Limits(operations=random.randrange(3, 20), chunk=4))
        history.check()
        housekeep(history.store)


@pytest.mark.parametrize("seed", range(3))
def test_views_over_a_bundle(tmp_path: Path, seed: int) -> None:
    with closing(bundle(tmp_path)) as made:
        follow(History(made), seed)


@pytest.mark.parametrize("how", ["parts", "one part", "a bundle"])
def test_views_of_tables_that_are_older_than_their_logs(tmp_path: Path, how: str) -> None:
    nodes = 1 if how == "one part" else 2
    inner = (
        bundle(tmp_path)
        if how == "a bundle"
        else create_store(str(tmp_path / "db"), nodes=nodes, durability="relaxed")
    )
    with closing(inner):
        history = History(inner)
        write(history, Random(7))
        strange = StrangeStore(inner)
        if how == "one part":
            strange.log = ManyPartedLog(strange, inner.log)
        history.store = strange
        history.catalog.store = strange
        history.writes = [replace(one, positions={"before all logs": 0}) for one in history.writes]
        assert strange.log.head().covers(START)
        assert START.covers(strange.log.head())
        follow(history, 1)
