"""The connector `hbase://HOST:PORT/NAME?state=FOLDER`: the contract over a cluster of HBase.

HOST:PORT is a Thrift server of the cluster, and NAME the database: a namespace, `viewkeep` if it is
left out, with the tables `meta`, `blobs` and `log` and one for each view. Base tables are those of
the cluster's other users, or lie in the namespace too.

Law: HBase has everything that cannot be made again. State is a cache in a folder of each machine,
and durable in a changelog, whose records are blobs in HBase (docs/design/apart.md).

The environment variable VIEWKEEP_STATE has precedence over `state`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from viewkeep.cells import CellRules, TieRule
from viewkeep.errors import FormatVersion, NoDatabase, StoreError
from viewkeep.stores.apart.state import ApartState
from viewkeep.stores.apart.store import VARIABLE, release_state, share_state
from viewkeep.stores.changelog import BlobChangelog
from viewkeep.stores.contract import Capabilities, NamedTable, NamedView, Sizes, Store, TableSize
from viewkeep.stores.hbase.blobs import HbaseBlobs
from viewkeep.stores.hbase.connection import PATIENCE, HbaseConnection, NoTable
from viewkeep.stores.hbase.log import HbaseLog
from viewkeep.stores.hbase.meta import LOOK, HbaseMeta
from viewkeep.stores.hbase.tables import HbaseTables, Mappings, located
from viewkeep.stores.hbase.unreadable import UnreadableCounts
from viewkeep.stores.hbase.views import MOST_SHARDS, HbaseViews

FORMAT = 1
PORT = 9090  # of Thrift servers, unless the url says another
GRACE = 3_600_000  # milliseconds below the watermark for which deletions are kept
_SETTINGS = "hbase/settings"
_FIRST_PATIENCE = 10.0  # seconds for the first answer: the address may be wrong


class HbaseStore(Store):
    """A database in HBase, usable by many processes on many machines at once."""

    capabilities = Capabilities(
        before_image=False,
        shared_state=False,
        aligned=False,
        views_apart=True,
        cells=CellRules(TieRule.SEQUENCE, versions=True, grace=GRACE),
    )
    state: ApartState

    def __init__(self, where: _Where, connection: HbaseConnection, state: ApartState):
        self.url = where.url
        self._connection, self._is_closed = connection, False
        self._mappings, self._namespace = Mappings(), where.namespace
        self.meta: HbaseMeta = HbaseMeta(connection, where.table("meta"))
        self._unreadable = unreadable = UnreadableCounts(self.meta, self._mappings)
        translate = self._mappings.translate
        self.log = HbaseLog(connection, where.table("log"), translate, unreadable.tell)
        self.tables = HbaseTables(
            connection, where.namespace, self.log, self._mappings, unreadable, self.meta
        )
        self.views: HbaseViews = HbaseViews(connection, where.namespace, self.meta)
        self.state = state

    @classmethod
    def create(
        cls, path: str, nodes: int = 2, shards: int = 2, durability: str = "full"
    ) -> HbaseStore:
        """Make an empty database and open it. HBase divides tables itself, whatever `nodes` is."""
        where = _parse(path)
        if not 1 <= shards <= MOST_SHARDS:
            raise StoreError(f"a database in HBase has 1 to {MOST_SHARDS} shards, not {shards}")
        connection = where.connect()
        try:
            meta = HbaseMeta(connection, where.table("meta"))
            meta.create()
            HbaseBlobs(connection, where.table("blobs")).create()
            HbaseLog(connection, where.table("log"), lambda change, tables: ()).create()
            settings = {"format": FORMAT, "shards": shards, "id": uuid.uuid4().hex}
            if not meta.cas(_SETTINGS, None, json.dumps(settings).encode()):
                raise StoreError(f"{where.url} is a database already")
        finally:
            connection.close()
        return cls.open(path)

    @classmethod
    def open(cls, path: str) -> HbaseStore:
        """Open a database that was made; after a fork, the child opens its own."""
        where = _parse(path)
        connection = where.connect()
        try:
            try:
                raw = HbaseMeta(connection, where.table("meta")).get(_SETTINGS)
            except NoTable:
                raw = None
            if raw is None:
                raise NoDatabase(f"there is no database at {where.url}")
            settings = json.loads(raw)
            if settings["format"] != FORMAT:
                raise FormatVersion(
                    f"{where.url} has format {settings['format']}, and this viewkeep reads {FORMAT}"
                )
            connection.patience = PATIENCE
            # State may outlive this store, since those of one process share it.
            blobs = HbaseBlobs(where.connect(PATIENCE), where.table("blobs"))
            changelog = BlobChangelog.begin(where.url, blobs, settings["id"])
            state = share_state(where.state / changelog.id, settings["shards"], changelog)
        except BaseException:
            connection.close()
            raise
        return cls(where, connection, state)

    def learn(self, tables: Iterable[NamedTable], views: Callable[[], Iterable[NamedView]]) -> None:
        self._mappings.learn(located(shape, self._namespace) for shape in tables)
        self.views.learn(views)

    def ticks(self) -> object:
        return self.log.head(), self.meta.ticks()

    def wait(self, seen: object, seconds: float) -> object:
        deadline = time.monotonic() + seconds
        while (ticks := self.ticks()) == seen and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
        return ticks

    def sizes(self) -> Sizes:
        """State is what this machine has of it. HBase does not tell the bytes of a table."""
        tables = dict[int, TableSize]()
        for replica in self.state.replicas:
            for table, size in replica.sizes().items():
                tables[table] = tables.get(table, TableSize()) + size
        used = sum(replica.used_bytes for replica in self.state.replicas)
        head, kept = self.log.head(), self.log.kept()
        operations = {log: at - kept.position(log) for log, at in head.positions.items()}
        return Sizes(0, used, operations, tables, unreadable=self._unreadable.read())

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            release_state(self.state)
            self._connection.close()


class _Where(NamedTuple):
    """What a url says."""

    host: str
    port: int
    namespace: str
    state: Path

    @property
    def url(self) -> str:
        return f"hbase://{self.host}:{self.port}/{self.namespace}?state={self.state}"

    def table(self, name: str) -> str:
        """One of the database's own tables in HBase."""
        return f"{self.namespace}:{name}"

    def connect(self, patience: float = _FIRST_PATIENCE) -> HbaseConnection:
        return HbaseConnection(self.host, self.port, patience=patience)


def _parse(path: str) -> _Where:
    form = "hbase://HOST:PORT/NAME?state=FOLDER"
    try:
        parts = urlsplit(f"hbase:{path}")
        port = parts.port or PORT
    except ValueError as error:
        raise StoreError(f"hbase:{path}: {error}; write {form}") from error
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = parts.path.strip("/") or "viewkeep"
    state = os.environ.get(VARIABLE) or options.pop("state", "")
    options.pop("state", None)
    if not parts.hostname or not name.replace("_", "").isalnum() or options or not state:
        raise StoreError(
            f"hbase:{path}: a url of this kind is {form}; the variable {VARIABLE} may give the "
            "state's folder, which each machine has on a disk of its own"
        )
    return _Where(parts.hostname, port, name, Path(state).absolute())
