"""The LMDB connector: the store contract over a database folder. It only puts the parts together.

Law: closing one store does not disturb another of the same process; the environments are shared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from viewkeep.errors import StoreError
from viewkeep.stores.contract import Capabilities, Sizes, Store, TableSize
from viewkeep.stores.lmdb import base, cuts, log, redo, state
from viewkeep.stores.lmdb.compact import Compaction, compact_database
from viewkeep.stores.lmdb.database import (
    DEFAULT_MAP,
    DatabaseFolder,
    FolderSettings,
    create_database,
    drop_database,
    open_database,
)
from viewkeep.stores.lmdb.parts import LmdbLog, LmdbMeta, LmdbState, LmdbTables, Opened
from viewkeep.stores.lmdb.room import room


class LmdbStore(Store):
    """A database in a local folder, usable by many processes at once."""

    capabilities = Capabilities()

    def __init__(self, database: DatabaseFolder):
        self.url = f"lmdb:{database.path}"
        self.path = database.path
        self._opened = opened = Opened(self.url, database)
        self.log, self.tables, self.meta = LmdbLog(opened), LmdbTables(opened), LmdbMeta(opened)
        self.state = self.views = LmdbState(opened)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        nodes: int = 2,
        shards: int = 2,
        durability: str = "full",
        map_size: int = DEFAULT_MAP,
        max_size: int | None = None,
    ) -> LmdbStore:
        """Make an empty database in a new folder and open it."""
        folder = Path(path).absolute()
        settings = FolderSettings(nodes, shards, durability, map_size, max_size=max_size)
        create_database(folder, settings)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LmdbStore:
        """Open an existing database; after a fork, the child opens its own."""
        database = open_database(Path(path).absolute())
        if database.settings.changelog:
            database.close()
            raise StoreError(
                f"the state of the database at {path} is kept apart from it; "
                f"open it as apart:{path}?state=FOLDER"
                + ("" if database.settings.blobs else "&changelog=FOLDER")
            )
        try:
            redo.complete(database.nodes)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @staticmethod
    def drop(path: str | os.PathLike[str]) -> None:
        """Remove a database that no process has open."""
        drop_database(Path(path).absolute())

    @staticmethod
    def compact(path: str | os.PathLike[str]) -> Compaction:
        """Make the files of a database smaller that no process has open."""
        return compact_database(Path(path).absolute())

    @property
    def _database(self) -> DatabaseFolder:
        return self._opened.database

    def ticks(self) -> object:
        database = self._database
        return tuple(part.last_transaction for part in (database.meta, *database.nodes))

    def sizes(self) -> Sizes:
        database, space = self._database, room(self._database)
        return Sizes(
            base_bytes=sum(node.used_bytes for node in database.nodes),
            state_bytes=sum(shard.used_bytes for shard in database.shards),
            log_operations={
                cuts.name(number): log.kept_operations(node)
                for number, node in enumerate(database.nodes)
            },
            tables=_added(state.sizes(shard) for shard in database.shards),
            used_bytes=space.used,
            max_bytes=space.most,
            free_bytes=space.free,
            refusal=space.refusal,
            base_rows=sum(base.rows(node) for node in database.nodes),
        )

    def close(self) -> None:
        self._opened.close()


def _added(shards: Iterable[Mapping[int, TableSize]]) -> dict[int, TableSize]:
    """The sizes of tables over all shards."""
    found: dict[int, TableSize] = {}
    for sizes in shards:
        for table, size in sizes.items():
            found[table] = found.get(table, TableSize()) + size
    return found
