"""The LMDB connector: the store contract over a database folder. It only puts the parts together.

Law: closing one store does not disturb another of the same process; the environments are shared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from viewkeep.codec.patterns import KeyPattern
from viewkeep.errors import StoreError
from viewkeep.stores.contract import (
    Capabilities,
    Changed,
    Chunk,
    Cut,
    Floor,
    Found,
    LogBatch,
    Sizes,
    StateWrite,
    Store,
    TableSize,
    TableWrite,
)
from viewkeep.stores.lmdb import base, cuts, log, meta, ranges, redo, state, sums
from viewkeep.stores.lmdb.database import (
    DEFAULT_MAP,
    DatabaseFolder,
    FolderSettings,
    create_database,
    open_database,
)
from viewkeep.stores.lmdb.write import write


class LmdbStore(Store):
    """A database in a local folder, usable by many processes at once."""

    capabilities = Capabilities()

    def __init__(self, database: DatabaseFolder):
        self.url = f"lmdb:{database.path}"
        self.path = database.path
        self.nodes = database.settings.nodes
        self.shards = database.settings.shards
        self._open_database: DatabaseFolder | None = database

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        nodes: int = 2,
        shards: int = 2,
        durability: str = "full",
        map_size: int = DEFAULT_MAP,
    ) -> LmdbStore:
        """Make an empty database in a new folder and open it."""
        folder = Path(path).absolute()
        create_database(folder, FolderSettings(nodes, shards, durability, map_size))
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LmdbStore:
        """Open an existing database; after a fork, the child opens its own."""
        database = open_database(Path(path).absolute())
        redo.complete(database.nodes)
        return cls(database)

    @property
    def _database(self) -> DatabaseFolder:
        if self._open_database is None:
            raise StoreError(f"{self.url} is closed; open it again")
        return self._open_database

    # -- base side ---------------------------------------------------------------------------

    def write(self, writes: Sequence[TableWrite]) -> dict[int, int]:
        return write(self._database.nodes, writes)

    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        return base.get(self._database.nodes, table, keys, at)

    def scan(
        self,
        node: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: Cut | None = None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        offset = None if at is None else at.offsets[node]
        environment = self._database.nodes[node]
        return base.scan(environment, table, start, stop, limit, offset, reverse, only)

    def head(self) -> Cut:
        return cuts.head(self._database.nodes)

    def ticks(self) -> object:
        database = self._database
        return tuple(part.last_transaction for part in (database.meta, *database.nodes))

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        return cuts.bounded_cut(self._database.nodes, start, stop, operations, size)

    def read_log(
        self, node: int, start: int, stop: int, tables: frozenset[int] | None = None
    ) -> Iterator[LogBatch]:
        return log.read(self._database.nodes[node], start, stop, tables)

    def truncate_log(self, before: Cut, budget: int = 10_000) -> bool:
        more = False
        for node, offset in zip(self._database.nodes, before.offsets, strict=True):
            dropped, remain = log.truncate(node, offset, budget)
            budget -= dropped
            more = more or remain
            node.forget_dead_readers()
        return more

    def drop_table(self, table: int, budget: int = 10_000) -> bool:
        for node in self._database.nodes:
            removed, more = ranges.drop_rows(node, table, budget)
            budget -= removed
            if more:
                return True
        return False

    # -- state side --------------------------------------------------------------------------

    def state_get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        return state.get(self._database.shards[shard], table, keys, at)

    def state_scan(
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
        environment = self._database.shards[shard]
        return state.scan(environment, table, start, stop, limit, at, reverse, only)

    def state_find(
        self,
        shard: int,
        table: int,
        prefixes: Sequence[bytes],
        at: int | None,
        *,
        limits: Sequence[int] | None = None,
        size: int = 20_000,
    ) -> Iterator[Found]:
        return state.find(self._database.shards[shard], table, prefixes, at, limits, size)

    def state_floor(
        self,
        shard: int,
        table: int,
        keys: Sequence[bytes],
        lows: Sequence[tuple[bytes, int]],
        at: int | None,
    ) -> Floor:
        return state.floor(self._database.shards[shard], table, keys, lows, at)

    def state_changes(
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
        environment = self._database.shards[shard]
        return state.changes(environment, table, after, upto, start, stop, limit)

    def state_apply(
        self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]
    ) -> None:
        state.apply(self._database.shards[shard], epoch, horizon, writes)

    def state_revert(self, shard: int, after: int, upto: int) -> None:
        state.revert(self._database.shards[shard], after, upto)

    def state_sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        self._database.shards[shard].forget_dead_readers()
        return state.sweep(self._database.shards[shard], horizon, budget)

    def state_drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        environment = self._database.shards[shard]
        more = ranges.drop_rows(environment, table, budget)[1]
        if not more:
            state.forget_size(environment, table)
        return more

    # -- meta side ---------------------------------------------------------------------------

    def meta_get(self, key: str) -> bytes | None:
        return meta.get(self._database.meta, key)

    def meta_cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        return meta.cas(self._database.meta, key, old, new)

    def meta_scan(self, prefix: str) -> list[tuple[str, bytes]]:
        return meta.scan(self._database.meta, prefix)

    # -- housekeeping ------------------------------------------------------------------------

    def check_counts(self, node: int) -> None:
        sums.check_counts(self._database.nodes[node])

    def sizes(self) -> Sizes:
        database = self._database
        return Sizes(
            base_bytes=sum(node.used_bytes for node in database.nodes),
            state_bytes=sum(shard.used_bytes for shard in database.shards),
            log_operations=tuple(log.kept_operations(node) for node in database.nodes),
            tables=_added(state.sizes(shard) for shard in database.shards),
        )

    def close(self) -> None:
        database, self._open_database = self._open_database, None
        if database is not None:
            database.close()


def _added(shards: Iterable[Mapping[int, TableSize]]) -> dict[int, TableSize]:
    """The sizes of tables over all shards."""
    found: dict[int, TableSize] = {}
    for sizes in shards:
        for table, size in sizes.items():
            found[table] = found.get(table, TableSize()) + size
    return found
