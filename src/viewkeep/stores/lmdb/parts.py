"""The parts of the contract over the environments of one database folder.

Law: they share one open database; once it is closed, every call of any part says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from viewkeep.codec.patterns import KeyPattern
from viewkeep.errors import StoreError
from viewkeep.stores.contract import (
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
    State,
    StateWrite,
    Tables,
    TableWrite,
    Views,
)
from viewkeep.stores.lmdb import base, cuts, living, log, meta, ranges, state, sums
from viewkeep.stores.lmdb.database import DatabaseFolder
from viewkeep.stores.lmdb.room import Door
from viewkeep.stores.lmdb.write import write


class Opened:
    """The open database of one store, until it is closed."""

    def __init__(self, url: str, database: DatabaseFolder):
        self._url = url
        self._database: DatabaseFolder | None = database

    @property
    def database(self) -> DatabaseFolder:
        if self._database is None:
            raise StoreError(f"{self._url} is closed; open it again")
        return self._database

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()


class LmdbLog(Log):
    """The logs of all nodes."""

    def __init__(self, opened: Opened):
        self._opened = opened

    def head(self) -> Cut:
        return cuts.head(self._opened.database.nodes)

    def kept(self) -> Cut:
        return cuts.kept(self._opened.database.nodes)

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        return cuts.bounded_cut(self._opened.database.nodes, start, stop, operations, size)

    def first_after(self, cut: Cut) -> int | None:
        return cuts.first_after(self._opened.database.nodes, cut)

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        nodes = len(self._opened.database.nodes)
        spans = zip(cuts.offsets_of(start, nodes), cuts.offsets_of(stop, nodes), strict=True)
        return [
            LogSplit(cuts.name(node), low, high, high - low, part=node)
            for node, (low, high) in enumerate(spans)
        ]

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        inner = accumulate(operations[:-1], initial=split.start)
        ends = [*(min(end, split.stop) for end in inner), split.stop]
        return [
            split._replace(start=low, stop=high, operations=high - low)
            for low, high in pairwise(ends)
        ]

    def read(self, split: LogSplit, tables: frozenset[int] | None = None) -> Iterator[LogBatch]:
        node = self._opened.database.nodes[cuts.number(split.log)]
        return log.read(node, split.start, split.stop, tables)

    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        more, nodes = False, self._opened.database.nodes
        for node, offset in zip(nodes, cuts.offsets_of(before, len(nodes)), strict=True):
            dropped, remain = log.truncate(node, offset, budget)
            budget -= dropped
            more = more or remain
            node.forget_dead_readers()
        return more


class LmdbTables(Tables):
    """Base rows, a part to a node."""

    def __init__(self, opened: Opened):
        self._opened, self._door = opened, Door()
        self.parts = opened.database.settings.nodes

    def write(self, writes: Sequence[TableWrite]) -> Cut:
        self._door.check(self._opened.database, writes)
        return cuts.cut_of_write(write(self._opened.database.nodes, writes))

    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        nodes = self._opened.database.nodes
        offsets = None if at is None else cuts.offsets_of(at, len(nodes))
        return base.get(nodes, table, keys, offsets)

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
        offset = None if at is None else at.position(cuts.name(part))
        environment = self._opened.database.nodes[part]
        return base.scan(environment, table, start, stop, limit, offset, reverse, only)

    def may_have_rows(self, part: int, table: int, at: Cut) -> bool:
        # Rows come by the log alone, so there are none before its first operation.
        return at.position(cuts.name(part)) > 0

    def drop(self, table: int, budget: int = 10_000) -> bool:
        for node in self._opened.database.nodes:
            removed, more = ranges.drop_rows(node, table, budget)
            budget -= removed
            if more:
                return True
        return False

    def check_counts(self, part: int) -> None:
        sums.check_counts(self._opened.database.nodes[part])


class LmdbState(State, Views):
    """Versioned rows of the shards; views are among them."""

    def __init__(self, opened: Opened):
        self._opened = opened
        self.shards = opened.database.settings.shards

    def get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        return state.get(self._opened.database.shards[shard], table, keys, at)

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
        environment = self._opened.database.shards[shard]
        return state.scan(environment, table, start, stop, limit, at, reverse, only)

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
        environment = self._opened.database.shards[shard]
        return state.scan_ranges(environment, table, ranges, at, limits, reverse, size)

    def floor(
        self,
        shard: int,
        table: int,
        keys: Sequence[bytes],
        lows: Sequence[tuple[bytes, int]],
        at: int | None,
    ) -> Floor:
        return state.floor(self._opened.database.shards[shard], table, keys, lows, at)

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
        environment = self._opened.database.shards[shard]
        return state.changes(environment, table, after, upto, start, stop, limit)

    def apply(self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
        state.apply(self._opened.database.shards[shard], epoch, horizon, writes)

    def revert(self, shard: int, after: int, upto: int) -> None:
        state.revert(self._opened.database.shards[shard], after, upto)

    def sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        environment = self._opened.database.shards[shard]
        environment.forget_dead_readers()
        return state.sweep(environment, horizon, budget)

    def drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        environment = self._opened.database.shards[shard]
        more = ranges.drop_rows(environment, table, budget)[1]
        if not more:
            state.forget_size(environment, table)
        return more


class LmdbMeta(Meta):
    """Meta records, in an environment of their own."""

    def __init__(self, opened: Opened):
        self._opened = opened

    def get(self, key: str) -> bytes | None:
        return meta.get(self._opened.database.meta, key)

    def mark(self) -> str:
        return living.mark()

    def lives(self, mark: str) -> bool | None:
        return living.lives(mark)

    def cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        return meta.cas(self._opened.database.meta, key, old, new)

    def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        return meta.scan(self._opened.database.meta, prefix)
