"""A store that passes every call to another one through one method: the base of wrappers.

Law: but for what a wrapper's `call` does, every call of every part is the inner store's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from viewkeep.cells import CellOperation
from viewkeep.codec.patterns import KeyPattern
from viewkeep.stores.contract import (
    CellChunk,
    Changed,
    Chunk,
    Cut,
    Floor,
    Found,
    KeyRange,
    Log,
    LogBatch,
    LogSplit,
    Meta,
    NamedTable,
    NamedView,
    Sizes,
    State,
    StateWrite,
    Store,
    Tables,
    TableWrite,
    Views,
)


class WrappedStore(Store):
    """`inner`, with `call` around each of its methods.

    A method is named by its part, as in `state.apply`; those of the store itself have no part.
    """

    def __init__(self, inner: Store):
        self.inner = inner
        self.url, self.capabilities = inner.url, inner.capabilities
        self.log, self.tables = WrappedLog(self, inner.log), WrappedTables(self, inner.tables)
        self.state, self.views = WrappedState(self, inner.state), WrappedViews(self, inner.views)
        self.meta = WrappedMeta(self, inner.meta)

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Do the call; what it returns is what the caller gets."""
        return act(*args, **options)

    def learn(self, tables: Iterable[NamedTable], views: Callable[[], Iterable[NamedView]]) -> None:
        self.call("learn", self.inner.learn, tables, views)

    def ticks(self) -> object:
        return self.call("ticks", self.inner.ticks)

    def wait(self, seen: object, seconds: float) -> object:
        return self.call("wait", self.inner.wait, seen, seconds)

    def sizes(self) -> Sizes:
        return cast(Sizes, self.call("sizes", self.inner.sizes))

    def close(self) -> None:
        self.call("close", self.inner.close)


class WrappedLog(Log):
    def __init__(self, store: WrappedStore, inner: Log):
        self._store, self.inner = store, inner

    def head(self) -> Cut:
        return cast(Cut, self._store.call("log.head", self.inner.head))

    def kept(self) -> Cut:
        return cast(Cut, self._store.call("log.kept", self.inner.kept))

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        act = self.inner.bounded_cut
        return cast(Cut, self._store.call("log.bounded_cut", act, start, stop, operations, size))

    def first_after(self, cut: Cut) -> int | None:
        return cast(int | None, self._store.call("log.first_after", self.inner.first_after, cut))

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        found = self._store.call("log.splits", self.inner.splits, start, stop)
        return cast(list[LogSplit], found)

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        found = self._store.call("log.divide", self.inner.divide, split, operations)
        return cast(list[LogSplit], found)

    def read(self, split: LogSplit, tables: frozenset[int] | None = None) -> Iterator[LogBatch]:
        found = self._store.call("log.read", self.inner.read, split, tables)
        return cast(Iterator[LogBatch], found)

    def cells(
        self, split: LogSplit, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        found = self._store.call("log.cells", self.inner.cells, split, tables)
        return cast(Iterator[CellOperation], found)

    def settled(self, cut: Cut) -> int | None:
        return cast("int | None", self._store.call("log.settled", self.inner.settled, cut))

    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        return cast(bool, self._store.call("log.truncate", self.inner.truncate, before, budget))


class WrappedTables(Tables):
    def __init__(self, store: WrappedStore, inner: Tables):
        self._store, self.inner, self.parts = store, inner, inner.parts

    def adopt(self, shape: NamedTable) -> None:
        self._store.call("tables.adopt", self.inner.adopt, shape)

    def write(self, writes: Sequence[TableWrite]) -> Cut:
        return cast(Cut, self._store.call("tables.write", self.inner.write, writes))

    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        found = self._store.call("tables.get", self.inner.get, table, keys, at)
        return cast(list[bytes | None], found)

    def scan(
        self,
        part: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: Cut | None = None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        range_ = {"start": start, "stop": stop, "limit": limit, "reverse": reverse, "only": only}
        found = self._store.call("tables.scan", self.inner.scan, part, table, at=at, **range_)
        return cast(Chunk, found)

    def scan_cells(self, part: int, table: int, *, start: bytes, limit: int) -> CellChunk:
        act, range_ = self.inner.scan_cells, {"start": start, "limit": limit}
        return cast(CellChunk, self._store.call("tables.scan_cells", act, part, table, **range_))

    def may_have_rows(self, part: int, table: int, at: Cut) -> bool:
        act = self.inner.may_have_rows
        return cast(bool, self._store.call("tables.may_have_rows", act, part, table, at))

    def drop(self, table: int, budget: int = 10_000) -> bool:
        return cast(bool, self._store.call("tables.drop", self.inner.drop, table, budget))

    def check_counts(self, part: int) -> None:
        self._store.call("tables.check_counts", self.inner.check_counts, part)


class _WrappedVersions(Views):
    """The methods that state and views have in common."""

    part: str
    inner: Any
    _store: WrappedStore

    def get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        found = self._store.call(f"{self.part}.get", self.inner.get, shard, table, keys, at)
        return cast(list[bytes | None], found)

    def scan(
        self,
        shard: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: int | None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        range_ = {"start": start, "stop": stop, "limit": limit, "reverse": reverse, "only": only}
        act = self.inner.scan
        return cast(
            Chunk, self._store.call(f"{self.part}.scan", act, shard, table, at=at, **range_)
        )

    def changes(
        self,
        shard: int,
        table: int,
        after: int,
        upto: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
    ) -> Changed:
        range_ = {"start": start, "stop": stop, "limit": limit}
        method, act = f"{self.part}.changes", self.inner.changes
        return cast(Changed, self._store.call(method, act, shard, table, after, upto, **range_))

    def apply(self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
        self._store.call(f"{self.part}.apply", self.inner.apply, shard, epoch, horizon, writes)

    def revert(self, shard: int, after: int, upto: int) -> None:
        self._store.call(f"{self.part}.revert", self.inner.revert, shard, after, upto)

    def sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        method, act = f"{self.part}.sweep", self.inner.sweep
        return cast(bool, self._store.call(method, act, shard, horizon, budget))

    def drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        method, act = f"{self.part}.drop", self.inner.drop
        return cast(bool, self._store.call(method, act, shard, table, budget))


class WrappedViews(_WrappedVersions):
    part = "views"

    def __init__(self, store: WrappedStore, inner: Views):
        self._store, self.inner = store, inner


class WrappedState(_WrappedVersions, State):
    part = "state"

    def __init__(self, store: WrappedStore, inner: State):
        self._store, self.inner, self.shards = store, inner, inner.shards

    def find(
        self,
        shard: int,
        table: int,
        prefixes: Sequence[bytes],
        at: int | None,
        *,
        limits: Sequence[int] | None = None,
        size: int = 20_000,
    ) -> Iterator[Found]:
        options = {"limits": limits, "size": size}
        act = self.inner.find
        found = self._store.call("state.find", act, shard, table, prefixes, at, **options)
        return cast(Iterator[Found], found)

    def scan_ranges(
        self,
        shard: int,
        table: int,
        ranges: Sequence[KeyRange],
        at: int | None,
        *,
        limits: Sequence[int] | None = None,
        reverse: bool = False,
        size: int = 20_000,
    ) -> Iterator[Found]:
        options = {"limits": limits, "reverse": reverse, "size": size}
        act = self.inner.scan_ranges
        found = self._store.call("state.scan_ranges", act, shard, table, ranges, at, **options)
        return cast(Iterator[Found], found)

    def floor(
        self,
        shard: int,
        table: int,
        keys: Sequence[bytes],
        lows: Sequence[tuple[bytes, int]],
        at: int | None,
    ) -> Floor:
        found = self._store.call("state.floor", self.inner.floor, shard, table, keys, lows, at)
        return cast(Floor, found)


class WrappedMeta(Meta):
    def __init__(self, store: WrappedStore, inner: Meta):
        self._store, self.inner = store, inner

    def get(self, key: str) -> bytes | None:
        return cast("bytes | None", self._store.call("meta.get", self.inner.get, key))

    def watch(self, key: str, seen: bytes | None, seconds: float) -> bytes | None:
        found = self._store.call("meta.watch", self.inner.watch, key, seen, seconds)
        return cast(bytes | None, found)

    def mark(self) -> str:
        return cast(str, self._store.call("meta.mark", self.inner.mark))

    def lives(self, mark: str) -> bool | None:
        return cast(bool | None, self._store.call("meta.lives", self.inner.lives, mark))

    def cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        return cast(bool, self._store.call("meta.cas", self.inner.cas, key, old, new))

    def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        found = self._store.call("meta.scan", self.inner.scan, prefix)
        return cast(list[tuple[str, bytes]], found)
