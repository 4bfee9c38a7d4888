"""A database as applications use it: tables and views by name, rows as dicts and frames.

Law: every write of one call is done whole or not at all, and `wait` returns only when the published
cut covers all that this object has written. A Database may be shared by threads; after a fork the
child opens its own.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from viewkeep.access.reads import WAIT_SECONDS, At, DatabaseReader, Snapshot
from viewkeep.access.results import Result
from viewkeep.access.writes import LOAD_ROWS, BaseTable, Key, duplicate_among
from viewkeep.catalog import Catalog
from viewkeep.engine.budget import each_limited, limited
from viewkeep.engine.epochs import Epochs, Published
from viewkeep.engine.identity import database_id
from viewkeep.engine.lag import lag_seconds
from viewkeep.errors import (
    BackupError,
    DuplicateKey,
    NoDatabase,
    StoreError,
    Timeout,
)
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import START, Cut, Store, TableWrite, united
from viewkeep.types import Schema

# Imported where they are used: reading one row loads neither SQL nor backups nor the engine.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeep.access.apply.application import Application
    from viewkeep.access.backup import BackedUp, Backup, BackupFolder, OnRows
    from viewkeep.access.feeds.feed import Feed, Feeds
    from viewkeep.access.follow import FolderLoad
    from viewkeep.access.load import Loaded
    from viewkeep.access.sessions import Session
    from viewkeep.access.statements.cache import StatementCache
    from viewkeep.access.statements.execute import StatementRunner
    from viewkeep.access.statements.prepared import Prepared
    from viewkeep.inprocess import InProcess
    from viewkeep.spark.pipeline import Pipeline
    from viewkeep.spark.verify import Verdict
    from viewkeep.status import Status


MEMORY = ":memory:"
_MOST_CUTS = 100  # of writes that are kept apart until somebody waits for them
_WAIT_SECONDS = 1.0  # of one wait for an epoch, if the caller has all the time


def open(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    nodes: int | None = None,
    shards: int | None = None,
    durability: str | None = None,
) -> Database:
    """Open the database at `url`, making it if it is not there (unless `create` is False).

    ":memory:" is a new one for tests, without Spark (`viewkeep.testing.database`).

    `nodes`, `shards` and `durability` apply when it is made: the number of node logs (2), of state
    shards (a multiple of the nodes; as many), and "full" or "relaxed" (docs/operations.md).
    """
    given = os.fspath(url)
    if given == MEMORY:
        return make(given, nodes=nodes, shards=shards, durability=durability)
    try:
        return Database(open_store(given), given)
    except NoDatabase as error:
        if not create:
            raise NoDatabase(f"{error}; make one: viewkeep init {given}") from error
    try:
        return make(given, nodes=nodes, shards=shards, durability=durability)
    except StoreError:
        # Another process may have made it in between; if not, its error is the one to show.
        with suppress(StoreError):
            return Database(open_store(given), given)
        raise


def make(
    url: str | os.PathLike[str],
    *,
    nodes: int | None = None,
    shards: int | None = None,
    durability: str | None = None,
    max_size: int | None = None,
) -> Database:
    """Make an empty database and open it; StoreError if there is one already."""
    if shards is None and nodes is not None:
        shards = nodes
    options = {"nodes": nodes, "shards": shards, "durability": durability, "max_size": max_size}
    chosen = {name: value for name, value in options.items() if value is not None}
    if os.fspath(url) == MEMORY:
        return in_memory(chosen)
    store = create_store(os.fspath(url), **chosen)
    database_id(store)
    return Database(store, os.fspath(url))


def in_memory(options: Mapping[str, object], *, each_write: bool = True) -> Database:
    """A new database whose epochs run in this process; it is gone when it is closed."""
    from viewkeep.inprocess import InProcess, create_in_memory

    store, remove = create_in_memory(options)
    return Database(store, MEMORY, InProcess(store, each_write=each_write), remove)


def restore(
    folder: str | os.PathLike[str],
    url: str | os.PathLike[str],
    *,
    backup: str | None = None,
    nodes: int | None = None,
    shards: int | None = None,
    durability: str | None = None,
    on_rows: OnRows = lambda *_: None,
) -> Database:
    """Make a database at `url` from a backup: the newest in the folder, or the one of this name.

    The pipeline loads its views. It has as many nodes and shards as the one that was backed up,
    unless told otherwise. Nothing is left at `url` if this fails. `on_rows` is called with a
    table's name and a count of rows that were restored.
    """
    from viewkeep.access.backup import BackupFolder

    backups = BackupFolder(folder)
    saved = backups.read(backup)
    if nodes is None:
        nodes, shards = saved.nodes, saved.shards if shards is None else shards
    path = os.fspath(url).removeprefix("lmdb:").rstrip("/")
    if os.path.lexists(path):
        raise BackupError(f"{path} exists; restore to a place where nothing is")
    draft = f"{path}.restoring"
    if os.path.isdir(draft):  # what a restore that was killed has left
        shutil.rmtree(draft)
    try:
        with make(draft, nodes=nodes, shards=shards, durability=durability) as db:
            db._restore(backups, saved, on_rows)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    os.rename(draft, path)
    return open(url, create=False)


class Database:
    """An open database. Also a context manager that closes it.

    `url` is its full url, which any process of the machine can open whatever its folder.
    """

    def __init__(
        self,
        store: Store,
        url: str,
        driver: InProcess | None = None,
        on_close: Callable[[], object] = lambda: None,
    ):
        self.url, self.store = store.url, store
        self._given, self._driver, self._on_close = url, driver, on_close
        self._changed = driver.after_change if driver else lambda: None
        self.catalog, self.epochs = Catalog(store, self._changed), Epochs(store)
        self._reader = DatabaseReader(store, self.epochs, url)
        self._written: list[Cut] = []  # by this object
        self._lock = threading.Lock()

    @cached_property
    def _feeds(self) -> Feeds:
        from viewkeep.access.feeds.feed import Feeds

        return Feeds(self._reader)

    @cached_property
    def _statements(self) -> StatementCache:
        from viewkeep.access.statements.cache import StatementCache

        return StatementCache()

    @cached_property
    def _executor(self) -> StatementRunner:
        from viewkeep.access.statements.execute import StatementRunner

        return StatementRunner(self.catalog, self._reader, self._write, self._statements)

    # -- SQL -----------------------------------------------------------------------------------

    def sql(
        self,
        text: str,
        parameters: Sequence[object] = (),
        *,
        at: At | None = None,
        max_seconds: float | None = None,
        max_query_memory: int | None = None,
    ) -> Result:
        """Run one or more statements separated by `;`; the result is the last one's.

        `parameters` are the values for each `?`. An error ends the run; the statements before it
        are done. A SELECT of base tables alone sees them as they are now, or with `at="stable"` at
        the published cut; one that reads a view sees all at the published epoch.

        A query that takes longer than `max_seconds` in all, or would hold more than
        `max_query_memory` bytes (half of the machine's memory unless told), is ended with
        QueryTimeout or QueryTooLarge.
        """
        with limited(max_seconds, max_query_memory):
            return self._executor.one(text, at, parameters)

    def execute(
        self,
        text: str,
        parameters: Sequence[object] = (),
        *,
        at: At | None = None,
        max_seconds: float | None = None,
        max_query_memory: int | None = None,
    ) -> Iterator[Result]:
        """Run statements one after another, giving the result of each; limits are for each."""
        results = self._executor.run(text, at, parameters)
        return each_limited(results, max_seconds, max_query_memory)

    def prepare(self, text: str, dialect: str = "spark") -> Prepared:
        """Make a statement ready, with `?` where values come later; run it any number of times.

        `dialect` is the SQL it is written in: Spark's, or another that sqlglot knows ("mysql").
        """
        return self._executor.prepare(text, dialect)

    def create_views(self, text: str) -> list[str]:
        """Create the views of many CREATE VIEW statements in one change; their names."""
        return self._executor.create_views(text)

    def apply(self, program: str, *, prune: bool = False, dry_run: bool = False) -> Application:
        """Bring tables and views to what a program of CREATE statements says, in one change.

        With `prune`, views and columns that it lacks go. A `dry_run` only says what changes.
        """
        from viewkeep.access.apply.application import apply

        return apply(self._reader, self.catalog, program, prune=prune, dry_run=dry_run)

    def explain(self, what: str | None = None, *, code: bool = False) -> str:
        """How a view, a statement, or (with None) all views are kept, as a tree.

        With `code`, the Python functions that are generated for epochs of few rows.
        """
        return self._executor.explain(what, code)

    # -- writes --------------------------------------------------------------------------------

    def put(self, table: str, rows: object) -> int:
        """Insert or update a row (a dict), rows, or a frame; the number of rows written.

        Columns that a row leaves out keep their values, or are NULL in a new row.
        """
        return self._write(self._table(table).puts(rows))

    def insert(self, table: str, rows: object) -> int:
        """Insert a row, rows, or a frame; DuplicateKey and no change if a key exists already."""
        return self._write(self._table(table).inserts(rows))

    def delete(self, table: str, key: Key, columns: Iterable[str] | None = None) -> None:
        """Delete a row, or with `columns` set those columns of it to NULL.

        Deleting a row that is not there changes nothing.
        """
        base = self._table(table)
        if columns is None:
            self._write([base.deletes([base.encode_key(key)])])
        else:
            self._write([base.clears(key, columns)])

    def delete_many(self, table: str, keys: Iterable[Key]) -> int:
        """Delete rows by their keys, as one write; the number of keys given."""
        base = self._table(table)
        return self._write([base.deletes([base.encode_key(key) for key in keys])])

    def load(
        self,
        table: str,
        source: object,
        *,
        format: str | None = None,
        replace: bool = False,
        progress: bool = True,
        batch_rows: int = LOAD_ROWS,
    ) -> Loaded:
        """Load Parquet, CSV or Arrow files, an Arrow table, or a frame, batch by batch.

        Files are given by a path, a folder, a glob, or a list of them. With `replace`, rows whose
        key exists are replaced; otherwise they are refused.
        """
        from viewkeep.access.load import load

        return load(
            self._table(table),
            source,
            self._write,
            format=format,
            replace=replace,
            progress=progress,
            batch_rows=batch_rows,
        )

    def follow(
        self,
        table: str,
        folder: str | os.PathLike[str],
        *,
        format: str | None = None,
        replace: bool = False,
    ) -> FolderLoad:
        """A loader whose `look()` takes the new files of a folder, each exactly once."""
        from viewkeep.access.follow import PROGRESS, PROGRESS_SQL, FolderLoad

        self.sql(PROGRESS_SQL)
        writer = (self._table(table), self._table(PROGRESS), self.store.tables, self._write)
        return FolderLoad(*writer, Path(folder), format, replace)

    # -- reads ---------------------------------------------------------------------------------

    def get(self, name: str, key: Key = (), *, at: At | None = None) -> dict[str, Any] | None:
        """One row of a table or view by its key (a scalar, tuple or dict), or None.

        Without `at`, views are read at the published epoch, base tables as they are now.
        """
        return self._reader.get(name, key, at)

    def get_many(
        self, name: str, keys: Sequence[Key], *, at: At | None = None
    ) -> list[dict[str, Any] | None]:
        """Rows by their keys, in that order, at one cut; None for those that are not there."""
        return self._reader.get_many(name, keys, at)

    def scan(
        self,
        name: str,
        *,
        prefix: Key | None = None,
        range: tuple[Key | None, Key | None] | None = None,
        slice: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
        after: str | None = None,
        at: At | None = None,
    ) -> Result:
        """Rows in key order: all, those whose key starts with `prefix`, a `range`, or a `slice`.

        A range (lo, hi) holds lo and not hi, None leaves a side open; together with a prefix it is
        about the key columns after the prefix. A slice is a key with ANY in some places. If there
        are more than `limit` rows, `Result.next` is the token to give as `after` for the next page.
        """
        selection = {"prefix": prefix, "range": range, "slice": slice}
        page = {"limit": limit, "reverse": reverse, "after": after}
        return self._reader.scan(name, at, **selection, **page)

    def aggregate(
        self,
        name: str,
        *measures: str,
        prefix: Key | None = None,
        range: tuple[Key | None, Key | None] | None = None,
        slice: Key | None = None,
        at: At | None = None,
    ) -> dict[str, Any]:
        """Measures of rows: "count(*)", "count(c)", "sum(c)", "min(c)" or "max(c)" of a column."""
        selection = {"prefix": prefix, "range": range, "slice": slice}
        return self._reader.aggregate(name, measures, at, **selection)

    def read(self, wanted: Iterable[tuple[str, Key]]) -> list[dict[str, Any] | None]:
        """Rows of several tables and views, given as (name, key), all at one published cut."""
        return self._reader.read(wanted)

    def session(self, token: str | None = None, *, timeout: float = WAIT_SECONDS) -> Session:
        """A session: its reads see its own writes, and never an older epoch than one it has read.

        `token` continues another session, of any process. A read waits at most `timeout` seconds
        for the pipeline, then raises Timeout.
        """
        from viewkeep.access.sessions import Session

        known = self._statements
        return Session(self._reader, self.catalog, self._log, timeout, token, statements=known)

    def subscribe(
        self,
        view: str,
        *,
        prefix: Key | None = None,
        token: str | None = None,
        progress: bool = False,
    ) -> Feed:
        """The rows of a view at the published epoch, then what each epoch changes, as events.

        Of the rows whose key starts with `prefix`, or all. `token` resumes a feed after the event
        that gave it. With `progress`, epochs that changed nothing give events too.
        """
        return self._feeds.open(view, prefix=prefix, token=token, progress=progress)

    def snapshot(self, seconds: float = 60.0) -> Snapshot:
        """Pin the published epoch: all reads through the snapshot see one cut until it closes."""
        return self._reader.snapshot(seconds)

    # -- the pipeline --------------------------------------------------------------------------

    def pipeline(
        self,
        master: str | None = None,
        *,
        max_operations: int | None = None,
        every: float = 0.0,
        load_pause: float = 0.1,
        resident: bool = True,
        failures: int = 3,
        epoch_seconds: float = 1800.0,
        operator_memory: int | None = None,
        spark: SparkSession | None = None,
        on_epoch: Callable[[Published], None] | None = None,
    ) -> Pipeline:
        """The pipeline that keeps the views, on any Spark master; a context manager.

        `max_operations` bounds one epoch, and so a worker's memory. `every` is the least seconds
        from one epoch to the next, `load_pause` the most that a write waits for loading. With
        `resident`, small epochs run in a Spark task that stays. After `failures`, or an epoch over
        `epoch_seconds`, views that fail are set aside; so is one whose operators need more than
        `operator_memory` bytes (default: what is free). `on_epoch` is called with each epoch.
        """
        if self._driver is not None:
            return cast("Pipeline", self._driver.pipeline(on_epoch))
        from viewkeep.engine.recovery import Patience
        from viewkeep.spark.pipeline import Pipeline

        return Pipeline(
            self.store.url,
            master=master,
            spark=spark,
            max_operations=max_operations,
            every=every,
            load_pause=load_pause,
            resident=resident,
            patience=Patience(failures, epoch_seconds, operator_memory),
            on_epoch=on_epoch,
        )

    def wait(self, timeout: float | None = None) -> Published:
        """Wait until the published cut covers all that this object has written.

        Needs a running pipeline, here or in another process; Timeout after `timeout` seconds.
        """
        if self._driver is not None:
            return self._driver.settle()
        with self._lock:
            goal = united(self._written)
        deadline = None if timeout is None else time.monotonic() + timeout
        published = self.epochs.read().published
        while True:
            if goal is None or published.cut.covers(goal):
                return published
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                late, behind = lag_seconds(self.epochs, published), published.cut.short_of(goal)
                raise Timeout(
                    f"after {timeout:g} s the views are {behind:,} of your operations behind "
                    f"({late:.1f} s); is the pipeline running? Start it: viewkeep run {self._given}"
                )
            published = self.epochs.wait(published.epoch, _WAIT_SECONDS if left is None else left)

    def status(self) -> Status:
        """The published epoch, the lag of each node, the views' states, the sizes."""
        from viewkeep.status import status_of

        return status_of(self.store, self.catalog, self.epochs, self._given)

    def limit_memory(self, size: str | int | None) -> None:
        """Bound what the state of views may hold, as in `512MB`; None lifts the bound."""
        from viewkeep.engine.memory import set_bound

        set_bound(self.store, size)

    def verify(
        self,
        *views: str,
        repair: bool = False,
        master: str | None = None,
        spark: SparkSession | None = None,
    ) -> list[Verdict]:
        """Compare views (default: all) with Spark SQL over the base tables at the same cut."""
        from viewkeep.spark.session import session
        from viewkeep.spark.verify import verify

        own = session(master, spark=spark)
        return verify(self.store.url, list(views), repair=repair, spark=own)

    def repair(self, *views: str) -> tuple[str, ...]:
        """Have views that failed (default: all) loaded afresh, with those that read them; which."""
        return self.catalog.repair_views([view.lower() for view in views])

    # -- backups -------------------------------------------------------------------------------

    def backup(
        self, folder: str | os.PathLike[str], *, on_rows: OnRows = lambda *_: None
    ) -> BackedUp:
        """Add a backup to a folder: all tables as they are now, and what creates the views again.

        Writes and the pipeline go on meanwhile. A folder holds many backups; a later one writes
        only what has changed since. `viewkeep.restore` makes a database from one.
        """
        from viewkeep.access.backup import BackupFolder, back_up

        return back_up(self._reader, BackupFolder(folder), on_rows)

    def export(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        at: At | None = None,
        on_rows: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Write a table's or view's rows to a Parquet, CSV, Arrow or SQL file; their number."""
        from viewkeep.access.export import export

        return export(self._reader, name, path, format=format, at=at, on_rows=on_rows)

    def _restore(self, folder: BackupFolder, backup: Backup, on_rows: OnRows) -> None:
        from viewkeep.access.restore import restore_into

        restore_into(self._reader, self.sql, self._write, folder, backup, on_rows)

    # -- the rest ------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """The names of the base tables."""
        return sorted(self.catalog.current().tables)

    def views(self) -> list[str]:
        """The names of the views."""
        return sorted(self.catalog.current().views)

    def schema(self, name: str) -> Schema:
        """The columns and key of a table or view."""
        found = self.catalog.resolve(name.lower())
        if found is None:
            raise self._reader.unknown(name.lower())
        return found.schema

    def close(self) -> None:
        """Release the store. Calling it twice is harmless."""
        self.store.close()
        self._on_close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<viewkeep database {self._given}>"

    def _table(self, name: str) -> BaseTable:
        return self._reader.table(name).base

    def _write(self, writes: Sequence[TableWrite]) -> int:
        """Hand operations to the store and remember how far the logs must be covered."""
        self._log(writes)
        return sum(len(write.keys) for write in writes)

    def _log(self, writes: Sequence[TableWrite]) -> Cut:
        """Hand operations to the store; the cut that covers them."""
        if not writes:
            return START
        try:
            cut = self.store.tables.write(writes)
        except DuplicateKey as error:
            raise duplicate_among(
                writes, error, self.store.tables, self._reader.current().tables.values()
            ) from error
        with self._lock:
            self._written.append(cut)
            if len(self._written) > _MOST_CUTS:
                self._written = [cut for cut in (united(self._written),) if cut]
        self._changed()
        return cut
