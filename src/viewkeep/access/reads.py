"""Reading tables and views: by key, prefix or range, at one epoch.

Law: one call reads one cut. `stable` reads the published epoch and starts again at the newer one if
that epoch is gone before the read ends; `latest` reads the newest version of each view row, which
may be ahead of publication. Base tables are read as they are now unless a cut is asked for.
"""

from __future__ import annotations

import datetime as dt
import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar

from viewkeep.access.longkeys import ordered, whole_key
from viewkeep.access.measures import Measured, measures_of
from viewkeep.access.past import PastRelation
from viewkeep.access.ranges import ScanBounds, bounds_of
from viewkeep.access.relations import TableRelation, ViewRelation
from viewkeep.access.results import Result
from viewkeep.access.watch import PublicationWatch
from viewkeep.access.writes import BaseTable, Key
from viewkeep.engine.cells.past import TablePast
from viewkeep.engine.epochs import Epochs, Pin, Published
from viewkeep.engine.identity import database_id
from viewkeep.engine.programs import (
    EMPTY,
    Failure,
    PlanVersion,
    load_plan,
    newest_plan,
    plan_key,
    successor_name,
    table_history,
)
from viewkeep.engine.successors import before_replacement
from viewkeep.errors import (
    EpochGone,
    InvalidReadPoint,
    NotReady,
    PlanOutdated,
    UnknownName,
    ViewFailed,
    ViewkeepError,
)
from viewkeep.plan.nodes import CellSource, View
from viewkeep.stores.contract import Cut, Store
from viewkeep.types import Column

At: TypeAlias = Literal["stable", "latest"] | int
T = TypeVar("T")

PIN_SECONDS = 60.0
WAIT_SECONDS = 30.0  # that a session waits for the pipeline
UNPINNED_TRIES = 3


def loading_of(epochs: Epochs, view: str) -> str | None:
    """How far a view is loaded, in words; None before its first epoch, empty when it is ready."""
    left = epochs.unfinished(view)
    if left is None:
        return None
    parts = sum(len(parts) for parts in left.values())
    if not parts:
        return ""
    loaded = epochs.read().published.loaded
    rows = sum(loaded.get(feed, 0) for feed in left)
    return f"{rows:,} rows in, {parts} {'part' if parts == 1 else 'parts'} left"


def view_failed(name: str, failure: Failure, url: str) -> ViewFailed:
    """The error for a view that was set aside: since when, why, and what to do."""
    when = dt.datetime.fromtimestamp(failure.at / 1e9, dt.UTC)
    return ViewFailed(
        f"view {name} failed at epoch {failure.epoch} ({when:%Y-%m-%d %H:%M:%S} UTC) and is no "
        f"longer kept: {failure.reason}. Correct the rows and run: viewkeep repair {url} {name}; "
        "or replace or drop the view"
    )


def view_unreadable(name: str, reason: str) -> ViewFailed:
    """The error for a view whose definition cannot be read: why, and what to do."""
    return ViewFailed(
        f"view {name} is not kept because its definition cannot be read: {reason}. Drop the view, "
        "or create it anew with CREATE OR REPLACE VIEW"
    )


class ReadPoint:
    """What a read sees: an epoch with its cut and plan; `newest` asks for the newest rows."""

    def __init__(self, published: Published | Pin, *, newest: bool = False):
        self.plan, self.loading = published.plan, published.loading
        self.epoch: int | None = None if newest else published.epoch
        self.cut: Cut | None = None if newest else published.cut


class DatabaseReader:
    """Reads of one database: resolves names, chooses the epoch, asks the store."""

    def __init__(self, store: Store, epochs: Epochs, url: str):
        self.store, self.epochs, self.url = store, epochs, url
        self.watch = PublicationWatch(epochs)
        self._newest = EMPTY
        self._shown: tuple[PlanVersion, int, PlanVersion] = (EMPTY, 0, EMPTY)
        # Readers by the newest plan, the published plan and the name; they grow by DDL only.
        self._views: dict[tuple[int, int, str], ViewRelation] = {}
        self._tables: dict[tuple[int, str], TableRelation] = {}

    @cached_property
    def identity(self) -> str:
        """The id of the database, which its tokens carry."""
        return database_id(self.store)

    # -- names ---------------------------------------------------------------------------------

    def current(self, published: int | None = None) -> PlanVersion:
        """The newest plan version, with what names stand for at the published epoch.

        `published` is the published plan's number where it is known. The number of a plan stays
        taken after it was dropped. So if there is none after the newest that we know, that is the
        newest still: one lookup of a record that is absent.
        """
        if published is None:
            published = self.epochs.read().published.plan
        if published > self._newest.version:
            self._newest = load_plan(self.store, published)
        if self.store.meta.get(plan_key(self._newest.version + 1)) is not None:
            self._newest = newest_plan(self.store)
        newest = self._newest
        return newest if newest.version == published else self._as_published(newest, published)

    def _as_published(self, newest: PlanVersion, published: int) -> PlanVersion:
        """The newest plan, in which views that were replaced are those of the published plan."""
        known = self._shown
        if known[0] is newest and known[1] == published:
            return known[2]
        shown = newest
        with suppress(EpochGone):
            shown = before_replacement(newest, load_plan(self.store, published))
        self._shown = (newest, published, shown)
        return shown

    def open(self, name: str, point: ReadPoint) -> ViewRelation | TableRelation:
        """The reader of a table or view; UnknownName suggests near names, NotReady says how far."""
        current = self.current(point.plan)
        known = self._views.get((current.version, point.plan, name))
        if known is None:
            name = name.lower()
            known = self._views.get((current.version, point.plan, name))
        if known is None:
            if name not in current.views:
                return self._table_at(self._plan_of_table(current, name, point), name, point)
            known = self._open_view(current.views[name], point)
            self._views[current.version, point.plan, name] = known
        if point.loading and not known.feeds.isdisjoint(point.loading):
            raise self.not_ready(name)
        return known

    def open_as(
        self, name: str, point: ReadPoint, columns: Iterable[Column]
    ) -> ViewRelation | TableRelation:
        """The reader of a table or view; PlanOutdated if it has no such columns at this point."""
        found = self.open(name, point)
        for column in columns:
            if column.name not in found.names or found.schema[column.name].type != column.type:
                raise PlanOutdated(f"{name} was replaced while the query began; run it again")
        return found

    def table(self, name: str) -> TableRelation:
        """The reader of a base table, to be written too."""
        current, name = self.current(), name.lower()
        if name in current.views:
            hint = "Write to the tables that it reads; the pipeline brings the change here"
            raise UnknownName(f"{name} is a view, and views are not written", hint=hint)
        return self._table_of(current, name)

    def _plan_of_table(self, current: PlanVersion, name: str, point: ReadPoint) -> PlanVersion:
        """The plan that says which table is read: one dropped and created anew keeps its name."""
        if point.epoch is None or point.plan == current.version or name not in current.tables:
            return current
        read = load_plan(self.store, point.plan)
        return read if name in read.tables else current

    def _table_of(self, plan: PlanVersion, name: str) -> TableRelation:
        known = self._tables.get((plan.version, name))
        if known is None:
            if name not in plan.tables:
                raise self.unknown(name)
            source = plan.tables[name]
            newer = partial(table_history, self.store, source.number)
            known = TableRelation(BaseTable(source, newer), self.store.tables.parts)
            self._tables[plan.version, name] = known
        return known

    def _table_at(self, plan: PlanVersion, name: str, point: ReadPoint) -> TableRelation:
        """A base table at a point; where the store cannot tell, DELTA does."""
        now = self._table_of(plan, name)
        source = plan.tables[name]
        if point.epoch is None or not isinstance(source, CellSource):
            return now
        program = load_plan(self.store, point.plan).program
        past = TablePast.of(source, program, point.loading, point.epoch)
        return PastRelation(now.base, past, self.store.state.shards)

    def is_view(self, name: str) -> bool:
        """Whether there is a view of this name."""
        return name.lower() in self.current().views

    def _open_view(self, view: View, point: ReadPoint) -> ViewRelation:
        program = load_plan(self.store, point.plan).program
        placement = program.placements.get(view.name)
        # A view dropped and created anew keeps its name: the published plan may still have the old.
        if placement is None or placement.view != view:
            self.refuse_failed(view.name)
            raise self.not_ready(view.name)
        if view.wanted is not None:
            from viewkeep.access.partial import PartialRelation  # what computes needs operators

            return PartialRelation(program, placement, self.store.state.shards)
        return ViewRelation(placement, self.store.state.shards)

    def refuse_failed(self, name: str) -> None:
        """Raise ViewFailed for a view that was set aside.

        Where it is still in the plan that is read, its rows are those of that epoch and are given.
        """
        if (failure := self.current().failed.get(name)) is not None:
            raise view_failed(name, failure, self.url)

    def unknown(self, name: str) -> UnknownName | ViewFailed | NotReady:
        """The error for a name that is neither a table nor a view that can be read."""
        current = self.current()
        if (reason := current.unreadable.get(name)) is not None:
            return view_unreadable(name, reason)
        if name in current.successors:
            return self.not_ready(name)
        names = [*current.tables, *current.views]
        near = get_close_matches(name, names, n=1)
        if near:
            hint = f"Did you mean {near[0]}?"
        else:
            hint = f"There are: {', '.join(sorted(names))}" if names else "There are no tables yet"
        return UnknownName(f"no table or view is called {name}", hint=hint)

    def not_ready(self, name: str) -> NotReady:
        """The error for a view that is not loaded yet."""
        is_kept = name in self.current().views
        how_far = loading_of(self.epochs, name if is_kept else successor_name(name))
        how_far = f"is being loaded ({how_far})" if how_far else "waits to be loaded"
        return NotReady(f"view {name} {how_far}; run the pipeline: viewkeep run {self.url}")

    # -- where to read -------------------------------------------------------------------------

    def published(self) -> Published:
        """The epoch that a stable read sees."""
        return self.epochs.read().published

    def newest(self) -> ReadPoint:
        """The newest rows of all."""
        return ReadPoint(self.epochs.read().published, newest=True)

    def stably(self, read: Callable[[ReadPoint], T]) -> T:
        """Run a read at the published epoch, again at a newer one if the epoch goes meanwhile."""
        for _ in range(UNPINNED_TRIES):
            point = ReadPoint(self.published())
            with suppress(EpochGone):
                found = read(point)
                if self._kept(point):
                    return found
        # Epochs pass faster than this read takes: keep one for it.
        with self.snapshot() as snapshot:
            return read(snapshot.point)

    def _kept(self, point: ReadPoint) -> bool:
        """Whether nothing that was read at a point can have been dropped meanwhile.

        Tables that a plan lacks are dropped once it is published, which no horizon tells.
        """
        return self.epochs.read().published.plan == point.plan

    def run(self, name: str, at: At | None, read: Callable[[ReadPoint], T]) -> T:
        """Run a read of `name` at what `at` says: views by default stable, base tables as now."""
        if at is None:
            at = "stable" if self.is_view(name) else "latest"
        return self.run_at(at, read)

    def run_at(self, at: At, read: Callable[[ReadPoint], T]) -> T:
        """Run a read at the published epoch, at the newest rows, or at a kept epoch."""
        if at == "stable":
            return self.stably(read)
        if at == "latest":
            return read(self.newest())
        if isinstance(at, int) and not isinstance(at, bool):
            return self._kept_read(at, read)
        said = f"{at!r:.60}"
        raise InvalidReadPoint(f'at is "stable", "latest" or the number of an epoch, not {said}')

    def at_head(self, read: Callable[[ReadPoint], T]) -> T:
        """Run a read of base tables as they are now, all at one moment."""
        for _ in range(UNPINNED_TRIES):
            with suppress(EpochGone):  # the log after the moment was truncated meanwhile
                return read(self.head())
        # An epoch that is kept keeps the log after its cut, and so all that comes after now.
        with self.snapshot():
            return read(self.head())

    def head(self) -> ReadPoint:
        """Base tables as they are now, all at one moment; a snapshot keeps such a point.

        Where tables have no past, each is read as it is when it is its turn.
        """
        point = self.newest()
        if self.store.capabilities.before_image:
            point.cut = self.store.log.head()
        return point

    def _kept_read(self, epoch: int, read: Callable[[ReadPoint], T]) -> T:
        """Run a read at the published epoch if it is this one, or at a pinned one."""
        found = read(ReadPoint(self._kept_epoch(epoch)))
        self._kept_epoch(epoch)  # if its pin has ended meanwhile, tables may have gone
        return found

    def _kept_epoch(self, epoch: int) -> Published | Pin:
        published = self.published()
        if epoch == published.epoch:
            return published
        if epoch > published.epoch:
            raise EpochGone(f"epoch {epoch} is not published yet; epoch {published.epoch} is")
        for pin in self.epochs.pins():
            if pin.epoch == epoch:
                return pin
        raise EpochGone(
            f"epoch {epoch} is not kept; a snapshot keeps one, and the published one is "
            f"{published.epoch}"
        )

    # -- reads ---------------------------------------------------------------------------------

    def one(
        self, name: str, key: Key, at: At | None = None
    ) -> tuple[ViewRelation | TableRelation, bytes | None, int | None]:
        """The row bytes of a key or None, with the reader that found them and the epoch read."""
        if at is None or at == "stable":
            # The common case, a view at the published epoch, in two lookups of meta records.
            point = ReadPoint(self.published())
            with suppress(EpochGone):
                reader = self.open(name, point)
                if isinstance(reader, ViewRelation):
                    found = reader.find_one(self.store, key, point.epoch)
                    if found is not None or self._kept(point):
                        return reader, found, point.epoch
                elif at is None and point.plan == self._newest.version:
                    return reader, reader.find(self.store, (key,), None)[0], None
        return self.run(name, at, lambda point: self._one_at(name, key, point))

    def _one_at(
        self, name: str, key: Key, point: ReadPoint
    ) -> tuple[ViewRelation | TableRelation, bytes | None, int | None]:
        reader = self.open(name, point)
        if isinstance(reader, ViewRelation):
            return reader, reader.find_one(self.store, key, point.epoch), point.epoch
        return reader, reader.find(self.store, (key,), point.cut)[0], point.epoch

    def get(self, name: str, key: Key, at: At | None = None) -> dict[str, Any] | None:
        """One row by its key, or None."""
        reader, row, _ = self.one(name, key, at)
        return None if row is None else reader.as_dict(row)

    def get_many(
        self, name: str, keys: Sequence[Key], at: At | None = None
    ) -> list[dict[str, Any] | None]:
        """Rows by their keys at one cut, None for those that are not there."""
        return self.run(name, at, lambda point: self.rows_at(name, keys, point))

    def scan(self, name: str, at: At | None = None, **selection: Any) -> Result:
        """Rows of a prefix or range; `selection` as `bounds_of` takes it."""
        return self.run(name, at, lambda point: self.scan_at(name, point, **selection))

    def read(self, wanted: Iterable[tuple[str, Key]]) -> list[dict[str, Any] | None]:
        """Rows of several tables and views, all at one published cut."""
        pairs = list(wanted)
        keys: dict[str, list[Key]] = {}
        for name, key in pairs:
            keys.setdefault(name, []).append(key)

        def read(point: ReadPoint) -> list[dict[str, Any] | None]:
            # Together, since a base table at a cut is read with the log after the cut.
            found = {name: iter(self.rows_at(name, keys[name], point)) for name in keys}
            return [next(found[name]) for name, _ in pairs]

        return self.stably(read)

    def row_at(self, name: str, key: Key, point: ReadPoint) -> dict[str, Any] | None:
        """One row by its key at a point."""
        reader, row, _ = self._one_at(name, key, point)
        return None if row is None else reader.as_dict(row)

    def rows_at(
        self, name: str, keys: Sequence[Key], point: ReadPoint
    ) -> list[dict[str, Any] | None]:
        """Rows by their keys at a point."""
        reader = self.open(name, point)
        if isinstance(reader, ViewRelation):
            return reader.get_many(self.store, keys, point.epoch)
        return reader.get_many(self.store, keys, point.cut)

    def scan_at(self, name: str, point: ReadPoint, **selection: Any) -> Result:
        """Rows of a prefix, range or slice at a point."""
        reader = self.open(name, point)
        selection["database"] = self.identity
        bounds: ScanBounds = bounds_of(reader.key_codec, reader.key, reader.name, **selection)
        pairs = ordered(
            lambda part: _pairs(reader, self.store, part, point),
            lambda row: whole_key(reader.key_codec, reader.key_of(row)),
            bounds.page(),
        )
        token = None
        if bounds.limit is not None and len(pairs) > bounds.limit:
            del pairs[bounds.limit :]
            token = bounds.token(pairs[-1][0]) if pairs else None
        rows = reader.frame([row for _, row in pairs])
        return Result(rows, epoch=point.epoch, next=token)

    def aggregate(
        self, name: str, wanted: Sequence[str], at: At | None = None, **selection: Any
    ) -> dict[str, Any]:
        """Measures of the rows of a prefix, range or slice."""
        return self.run(name, at, lambda point: self.aggregate_at(name, wanted, point, **selection))

    def aggregate_at(
        self, name: str, wanted: Sequence[str], point: ReadPoint, **selection: Any
    ) -> dict[str, Any]:
        """Measures of the rows of a prefix, range or slice at a point."""
        reader = self.open(name, point)
        bounds = bounds_of(reader.key_codec, reader.key, reader.name, **selection)
        measured = Measured(measures_of(wanted, reader.schema, reader.names, reader.name))
        for pairs in self.chunks_at(reader, bounds, point):
            rows = [row for _, row in pairs]
            columns = measured.columns
            measured.add(len(rows), reader.frame(rows, columns) if columns and rows else None)
        return measured.results()

    def chunks_at(
        self, reader: ViewRelation | TableRelation, bounds: ScanBounds, point: ReadPoint
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Keys and row bytes of a range at a point, a chunk at a time, in no order."""
        return chain.from_iterable(self._parts(reader, bounds, point))

    def walk_at(
        self, reader: ViewRelation | TableRelation, bounds: ScanBounds, point: ReadPoint
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and row bytes of a range at a point, in the order of the keys as they are stored."""
        parts = self._parts(reader, bounds, point)
        return heapq.merge(*map(chain.from_iterable, parts), key=itemgetter(0))

    def _parts(
        self, reader: ViewRelation | TableRelation, bounds: ScanBounds, point: ReadPoint
    ) -> list[Iterator[list[tuple[bytes, bytes]]]]:
        if isinstance(reader, ViewRelation):
            return reader.parts(self.store, bounds, point.epoch)
        return reader.parts(self.store, bounds, point.cut)

    def snapshot(self, seconds: float = PIN_SECONDS) -> Snapshot:
        """A pinned epoch: all reads through it see one cut until it is closed."""
        return Snapshot(self, seconds)


def _pairs(
    reader: ViewRelation | TableRelation, store: Store, bounds: ScanBounds, point: ReadPoint
) -> list[tuple[bytes, bytes]]:
    if isinstance(reader, ViewRelation):
        return reader.scan(store, bounds, point.epoch)
    return reader.scan(store, bounds, point.cut)


class Snapshot:
    """One published epoch, pinned: a context manager whose reads all see the same cut.

    The pin is renewed while the snapshot is open; a process that dies leaves it to expire.
    """

    def __init__(self, reader: DatabaseReader, seconds: float):
        self._reader, self._seconds = reader, seconds
        self._pin, self.point = self._take()
        self._closed = threading.Event()
        threading.Thread(target=self._renew, name="viewkeep-pin", daemon=True).start()

    @property
    def epoch(self) -> int:
        """The epoch that the snapshot reads."""
        return self._pin.epoch

    @property
    def cut(self) -> Cut:
        """The cut of that epoch."""
        return self._pin.cut

    def get(self, name: str, key: Key = ()) -> dict[str, Any] | None:
        """One row of a table or view by its key, or None."""
        return self._reader.row_at(name, key, self.point)

    def get_many(self, name: str, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        """Rows of a table or view by their keys."""
        return self._reader.rows_at(name, keys, self.point)

    def scan(self, name: str, **selection: Any) -> Result:
        """Rows of a prefix, range or slice; arguments as for `Database.scan`."""
        return self._reader.scan_at(name, self.point, **selection)

    def aggregate(self, name: str, *measures: str, **selection: Any) -> dict[str, Any]:
        """Measures of rows; arguments as for `Database.aggregate`."""
        return self._reader.aggregate_at(name, measures, self.point, **selection)

    def close(self) -> None:
        """Let the epoch go. Calling it twice is harmless."""
        if not self._closed.is_set():
            self._closed.set()
            self._reader.epochs.unpin(self._pin)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self) -> tuple[Pin, ReadPoint]:
        epochs = self._reader.epochs
        while True:
            published = epochs.read().published
            try:
                return epochs.pin(self._seconds, published.epoch), ReadPoint(published)
            except EpochGone:
                continue  # a newer epoch was published in between

    def _renew(self) -> None:
        pause = self._seconds / 3
        while not self._closed.wait(pause):
            try:
                self._pin = self._reader.epochs.renew_pin(self._pin, self._seconds)
                pause = self._seconds / 3
            except EpochGone:
                return  # expired or closed under us: the next read says so
            except ViewkeepError:
                pause = self._seconds / 30  # locked or full just now: try again before it expires
