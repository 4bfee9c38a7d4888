"""Sessions: reads that see the session's own writes and never go back in time.

Law: a stable read of a session sees an epoch whose cut covers every write of the session, and which
is not older than any epoch that the session, or the one it continues, has read. The token carries
both promises to other threads and processes. Base tables are read as they are now, so they show
the session's writes at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from viewkeep.access.reads import WAIT_SECONDS, At, DatabaseReader, ReadPoint
from viewkeep.access.relations import TableRelation, ViewRelation
from viewkeep.access.results import Result
from viewkeep.access.statements.cache import StatementCache
from viewkeep.access.statements.execute import StatementRunner
from viewkeep.access.statements.prepared import Prepared
from viewkeep.access.tokens import cut_parts, read_cut, read_number, read_token, write_token
from viewkeep.access.writes import Key
from viewkeep.catalog import Catalog
from viewkeep.engine import budget
from viewkeep.engine.budget import each_limited, limited
from viewkeep.engine.epochs import Published
from viewkeep.engine.lag import lag_seconds
from viewkeep.errors import InvalidToken, NotReady, Timeout
from viewkeep.sql.statements.bulk_insert import PlainRows
from viewkeep.stores.contract import Cut, TableWrite, united

_KIND, _WHAT = "s3", "session"
_QUERY = "what the query reads"

Log = Callable[[Sequence[TableWrite]], Cut]
T = TypeVar("T")


class Session:
    """Reads and writes of one user, in order; a context manager, and cheap to make.

    `timeout` is how many seconds a read waits for the pipeline before it raises Timeout. `token`
    continues the session that gave it.
    """

    def __init__(
        self,
        reader: DatabaseReader,
        catalog: Catalog,
        log: Log,
        timeout: float = WAIT_SECONDS,
        token: str | None = None,
        *,
        statements: StatementCache,
    ):
        self._reader, self._log, self._timeout = reader, log, timeout
        self._lock = threading.Lock()
        self._epoch = 0  # the newest that was read
        self._plan = 0  # the newest plan that this session made
        self._ahead: Cut | None = None  # of own writes that no epoch read covers
        if token is not None:
            self._continue(token)
        self._waiting = _WaitingReader(reader, self)
        self._executor = StatementRunner(catalog, self._waiting, self._write, statements)
        self._catalog = catalog

    # -- the token -----------------------------------------------------------------------------

    @property
    def token(self) -> str:
        """What this session has written and read so far, for `Database.session(token=...)`."""
        with self._lock:
            parts = (self._epoch, self._plan, *cut_parts(self._ahead))
            return write_token(_KIND, self._reader.identity, parts)

    @property
    def epoch(self) -> int:
        """The newest epoch that the session has read; its reads see this one or a later one."""
        return self._epoch

    @property
    def made_views(self) -> bool:
        """Whether the session has created views, which its reads wait for."""
        return self._plan > 0

    def behind(self, what: str = "the published epoch", waited: float = 0.0) -> Timeout | None:
        """Why a stable read would have to wait now, as its Timeout after `waited` seconds.

        None if the published epoch keeps the session's promises. Never waits: for callers that wait
        in their own way.
        """
        found = self._reader.published()
        return self._late(what, waited, found) if self._missing(found) else None

    def _continue(self, token: str) -> None:
        parts = read_token(_KIND, self._reader.identity, token, _WHAT)
        if len(parts) < 2:
            raise InvalidToken(f"the token of the {_WHAT} is damaged: it has no epoch")
        self._epoch, self._plan = (read_number(part, _WHAT) for part in parts[:2])
        self._ahead = read_cut(parts[2:], _WHAT)
        if self._missing(self._reader.published()):
            self._refuse_foreign()

    def _refuse_foreign(self) -> None:
        """A token of positions that this database's logs have not reached is not of it."""
        if self._ahead is not None and not self._reader.store.log.head().covers(self._ahead):
            raise InvalidToken("the token is of writes that this database does not have")

    # -- writes --------------------------------------------------------------------------------

    def put(self, table: str, rows: object) -> int:
        """Insert or update rows; as `Database.put`."""
        return self._write(self._reader.table(table).base.puts(rows))

    def insert(self, table: str, rows: object) -> int:
        """Insert rows; as `Database.insert`."""
        return self._write(self._reader.table(table).base.inserts(rows))

    def delete(self, table: str, key: Key, columns: Iterable[str] | None = None) -> None:
        """Delete a row, or set some of its columns to NULL; as `Database.delete`."""
        base = self._reader.table(table).base
        if columns is None:
            self._write([base.deletes([base.encode_key(key)])])
        else:
            self._write([base.clears(key, columns)])

    def delete_many(self, table: str, keys: Iterable[Key]) -> int:
        """Delete rows by their keys, as one write; as `Database.delete_many`."""
        base = self._reader.table(table).base
        return self._write([base.deletes([base.encode_key(key) for key in keys])])

    def _write(self, writes: Sequence[TableWrite]) -> int:
        cut = self._log(writes)
        with self._lock:
            self._ahead = united((self._ahead, cut))
        return sum(len(write.keys) for write in writes)

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
        """Run statements; the result is the last one's. A SELECT of views waits as reads do.

        Limits as for `Database.sql`; waiting for an epoch takes of the seconds.
        """
        with limited(max_seconds, max_query_memory):
            self._waiting.begin(_QUERY)
            known = self._executor.known(text, at, parameters)
            if known is not None:
                return known
            result = Result(message="(no statement)")
            for result in self._noted(self._executor.parsed(text, at, parameters)):  # noqa: B007
                pass
            return result

    def insert_plain(self, rows: PlainRows, longest_key: int | None = None) -> Result | None:
        """Insert the rows of a statement that `split_rows` has read; None if it must be parsed."""
        return self._executor.insert_plain(rows, longest_key)

    def prepare(self, text: str, dialect: str = "spark") -> Prepared:
        """Make a statement ready, as `Database.prepare`; running it waits as reads do."""
        return self._executor.prepare(text, dialect, lambda: self._waiting.begin(_QUERY))

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
        results = self._noted(self._executor.run(text, at, parameters))
        return each_limited(results, max_seconds, max_query_memory)

    def _noted(self, results: Iterator[Result]) -> Iterator[Result]:
        """The results of statements, each with its own time to wait; new plans are remembered."""
        before = self._catalog.current().version
        while True:
            self._waiting.begin(_QUERY)
            result = next(results, None)
            if result is None:
                return
            plan = self._catalog.current().version
            if plan > before:
                self._plan = before = plan
            yield result

    # -- reads ---------------------------------------------------------------------------------

    def get(self, name: str, key: Key = (), *, at: At | None = None) -> dict[str, Any] | None:
        """One row of a table or view by its key, or None."""
        return self._choose(name, at).get(name, key, at)

    def get_many(
        self, name: str, keys: Sequence[Key], *, at: At | None = None
    ) -> list[dict[str, Any] | None]:
        """Rows by their keys, in that order, at one cut."""
        return self._choose(name, at).get_many(name, keys, at)

    def scan(self, name: str, *, at: At | None = None, **selection: Any) -> Result:
        """Rows in key order; arguments as for `Database.scan`."""
        return self._choose(name, at).scan(name, at, **selection)

    def aggregate(
        self, name: str, *measures: str, at: At | None = None, **selection: Any
    ) -> dict[str, Any]:
        """Measures of rows; arguments as for `Database.aggregate`."""
        return self._choose(name, at).aggregate(name, measures, at, **selection)

    def read(self, wanted: Iterable[tuple[str, Key]]) -> list[dict[str, Any] | None]:
        """Rows of several tables and views, given as (name, key), all at one cut."""
        self._waiting.begin("what is read")
        return self._waiting.read(wanted)

    def wait(self, timeout: float | None = None) -> Published:
        """Wait until a published epoch covers what this session has written and read."""
        self._waiting.begin("the published epoch", timeout)
        return self._waiting.published()

    def _choose(self, name: str, at: At | None) -> DatabaseReader:
        """The reader that waits, where a published epoch is read; base tables are there now."""
        if at is None and not self._reader.is_view(name):
            return self._reader
        self._waiting.begin(f"view {name}")
        return self._waiting

    # -- keeping the promises ------------------------------------------------------------------

    def _missing(self, published: Published) -> int:
        """How many of the session's operations an epoch lacks; at least 1 if it is too old."""
        with self._lock:
            return self._lacking(published) or int(published.epoch < self._epoch)

    def _lacking(self, published: Published) -> int:
        """How many of the session's own operations an epoch lacks."""
        return 0 if self._ahead is None else published.cut.short_of(self._ahead)

    def _saw(self, published: Published) -> None:
        """The session has read this epoch: later ones cover what this one covers."""
        with self._lock:
            self._epoch = max(self._epoch, published.epoch)
            if self._ahead is not None:
                self._ahead = published.cut.uncovered(self._ahead)

    def _late(self, what: str, seconds: float, published: Published) -> Timeout:
        with self._lock:
            own, epoch = self._lacking(published), self._epoch
        start = f"Start it: viewkeep run {self._reader.url}"
        if not own:
            return Timeout(
                f"after {seconds:g} s {what} is at epoch {published.epoch}, and this session has "
                f"seen epoch {epoch}; is the pipeline running? {start}"
            )
        age = "no epoch is published yet"
        if published.epoch:
            age = f"{lag_seconds(self._reader.epochs, published):.1f} s behind"
        operations = "operation" if own == 1 else "operations"
        return Timeout(
            f"after {seconds:g} s {what} lacks {own:,} {operations} of this session ({age}); "
            f"is the pipeline running? {start}"
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held; the token stays good."""


class _WaitingReader(DatabaseReader):
    """A reader whose published epoch is one that keeps a session's promises, waited for."""

    def __init__(self, shared: DatabaseReader, session: Session):
        super().__init__(shared.store, shared.epochs, shared.url)
        self._views, self._tables, self.watch = shared._views, shared._tables, shared.watch
        self._session = session
        self._what, self._seconds, self._deadline = "", 0.0, 0.0

    def begin(self, what: str, timeout: float | None = None) -> None:
        """A read starts: what it is of, for the error, and how long it may wait."""
        self._what = what
        self._seconds = self._session._timeout if timeout is None else timeout
        allowed = budget.current()
        if allowed is not None and allowed.left is not None:
            self._seconds = min(self._seconds, allowed.left)
        self._deadline = time.monotonic() + self._seconds

    def published(self) -> Published:
        session = self._session
        while session._missing(found := super().published()):
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise session._late(self._what, self._seconds, found)
            self.watch.wait(found.epoch, left)
        session._saw(found)
        return found

    def stably(self, read: Callable[[ReadPoint], T]) -> T:
        while True:
            before = super().published().epoch
            try:
                found = super().stably(read)
                # The read may have been at a later epoch than the one that was waited for.
                self._session._saw(super().published())
                return found
            except NotReady:
                # A view that this session has made is one of its writes: it is worth waiting for.
                left = self._deadline - time.monotonic()
                if not self._session._plan or left <= 0:
                    raise
            self.watch.wait(before, left)

    def one(
        self, name: str, key: Key, at: At | None = None
    ) -> tuple[ViewRelation | TableRelation, bytes | None, int | None]:
        with suppress(NotReady):
            return super().one(name, key, at)
        return self.run(name, at, lambda point: self._one_at(name, key, point))
