"""A stream of a view's changes: `spark.readStream.format("viewkeep").option("view", name)`.

Law: the rows of a batch are a function of its two offsets, which are epochs, and of the view, so a
batch that Spark runs again has the same rows. The batches of a query together hold the rows of the
first epoch (if it starts at the beginning) and every change of each later epoch exactly once, and
each batch covers whole epochs. A stream whose history was dropped, or whose view was replaced,
rebuilt or dropped, is refused with EpochGone.

A pin keeps the history that the query has not processed. Its id stands in the offset, so a query
that restarts from its checkpoint finds the pin that the last run left. With a limit, a batch ends
at an epoch that has no pin of its own: its offset names the one from which the query has come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from viewkeep.access.reads import view_failed
from viewkeep.access.relations import ViewRelation
from viewkeep.deferred import pa, pl
from viewkeep.engine.epochs import Epochs, Pin
from viewkeep.engine.identity import database_id
from viewkeep.engine.programs import load_plan, newest_plan
from viewkeep.errors import CatalogError, EpochGone, NotReady, UnknownName
from viewkeep.plan.program import Placement
from viewkeep.spark.convert import arrow_batches
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Store
from viewkeep.types import BIGINT, STRING, Column

EPOCH, CHANGE = "_epoch", "_change"
INSERT, DELETE = "insert", "delete"
KEEP_SECONDS = 86_400.0  # how long a query that is stopped can go on where it was
BEGINNING, NOW = "beginning", "now"
_CHUNK = 5_000  # keys of a shard at a time

Offset: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class FollowedView:
    """What a view's name stands for; `same` changes if it is replaced, rebuilt or made anew."""

    placement: Placement
    same: str

    @staticmethod
    def of(store: Store, name: str, at: Pin | None = None) -> FollowedView:
        """The view at a pinned epoch or the published one; an error if it cannot be followed."""
        point = at or Epochs(store).read().published
        plan, newest = load_plan(store, point.plan), newest_plan(store)
        placement = plan.program.placements.get(name)
        if name in newest.failed:
            raise view_failed(name, newest.failed[name], store.url)
        if placement is None:
            if name in newest.views:
                raise NotReady(f"view {name} waits to be loaded; run the pipeline first")
            if name in newest.tables:
                hint = f"Make a view: CREATE VIEW ... AS SELECT * FROM {name}"
                raise UnknownName(f"{name} is a base table; streams are of views", hint=hint)
            raise UnknownName(f"no view is called {name}; there are {', '.join(newest.views)}")
        if not placement.feeds.isdisjoint(point.loading):
            raise NotReady(f"view {name} is still being loaded")
        if placement.view.wanted is not None:
            raise CatalogError(f"view {name} is partial; only whole views are followed")
        if taken := {EPOCH, CHANGE} & set(placement.view.visible):
            raise CatalogError(f"view {name} has a column {taken.pop()}; name it otherwise")
        same = f"{database_id(store)}-{plan.generations[name]}-{placement.table.number}"
        return FollowedView(placement, same)

    @property
    def columns(self) -> list[Column]:
        """The view's columns, the epoch of the change, and what it did."""
        schema = self.placement.view.schema
        shown = [schema[name] for name in self.placement.view.visible]
        return [*shown, Column(EPOCH, BIGINT), Column(CHANGE, STRING)]


@dataclass
class ShardChanges(InputPartition):
    """What a task reads: the changes of a shard in (after, upto]; its rows at `upto` if None."""

    view: FollowedView
    shard: int
    after: int | None
    upto: int


class ViewChanges(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a view from an epoch on; `start` is "beginning", "now" or the number of an epoch.

    A batch covers at most `most` epochs, if given; the first one brings the query to the published
    epoch at once.
    """

    def __init__(
        self,
        url: str,
        name: str,
        schema: StructType,
        start: str,
        keep: float,
        most: int | None = None,
    ):
        self._url, self._name, self._schema, self._start = url, name, schema, start.lower()
        if self._start not in (BEGINNING, NOW) and not self._start.isdecimal():
            raise CatalogError(
                f'startingEpoch is "{BEGINNING}", "{NOW}" or the number of an epoch; not {start}'
            )
        if most is not None and most < 1:
            raise CatalogError(f"maxEpochsPerTrigger is at least 1, not {most}")
        self._keep, self._most = keep, most
        self._pins: dict[str, Pin] = {}
        self._renewed = time.monotonic()
        self._dropped: str | None = None  # the last pin of an offset that was let go of
        self._last: Offset | None = None  # where a query that takes what is there ends

    # -- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        """Before the first batch. Spark asks again if that batch was not finished: no epoch yet.

        The first batch of a stream from now on is empty and leads to the epoch published then.
        """
        if self._start.isdecimal():
            return {"epoch": int(self._start)}
        return {"start": self._start}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The published epoch, pinned; `start` itself if that is the published one.

        An earlier one, if a batch may not hold so many epochs.
        """
        self._hold(start)
        self.commit(start)  # Spark asks for more when all before is processed
        self._renew()
        if (part := self._part(start)) is not None:
            return part
        if self._last is None:
            newest = self._newest(start)
            if newest is start or (part := self._part(start)) is None:
                return newest
            # More epochs were published in between than a batch may hold.
            Epochs(borrow_store(self._url)).unpin(self._pins.pop(newest["pin"]))
            return part
        if self._last["epoch"] <= start.get("epoch", -1):
            return start
        return {**self._last, "before": start.get("pin")}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """A query that takes what is there ends at the epoch published now."""
        self._last = self._newest({})

    def commit(self, end: Offset) -> None:
        """All up to `end` is processed: let go of the history before it."""
        if "epoch" not in end:
            return
        epochs = Epochs(borrow_store(self._url))
        needed = end.get("pin")  # by what follows `end`, though it may be of an earlier epoch
        pins = [*self._pins.values()]
        behind = [pin for pin in pins if pin.epoch < end["epoch"] and pin.id != needed]
        before = end.get("before")
        if before not in (None, self._dropped, *self._pins):
            # The run before this one ended before it could let go.
            behind += [pin for pin in epochs.pins() if pin.id == before]
        self._dropped = before
        for pin in behind:
            epochs.unpin(pin)
            self._pins.pop(pin.id, None)

    def _part(self, start: Offset) -> Offset | None:
        """Where a batch ends that may not reach the last epoch; None if it may."""
        held = [pin for pin in self._pins.values() if pin.epoch <= start.get("epoch", -1)]
        if self._most is None or not held:
            return None
        store = borrow_store(self._url)
        last = self._last["epoch"] if self._last else Epochs(store).read().published.epoch
        if last - start["epoch"] <= self._most:
            return None
        return {
            "epoch": start["epoch"] + self._most,
            "view": start.get("view") or FollowedView.of(store, self._name).same,
            "pin": max(held, key=lambda pin: pin.epoch).id,
            "before": None,
        }

    def _newest(self, start: Offset) -> Offset:
        store = borrow_store(self._url)
        epochs = Epochs(store)
        before = epochs.read().published.epoch
        if start.get("epoch", -1) > before:
            raise EpochGone(
                f"the stream of {self._name} stands at epoch {start['epoch']}, but the published "
                f"one is {before}: it belongs to another database, or is not published yet"
            )
        if start.get("epoch") == before and self._holds(before):
            return start
        pin = epochs.pin(self._keep)
        try:
            same = FollowedView.of(store, self._name, pin).same
        except Exception:
            epochs.unpin(pin)
            raise
        self._pins[pin.id] = pin
        if start.get("epoch") == pin.epoch:
            return start  # its own pin has expired, but nothing was dropped yet
        return {"epoch": pin.epoch, "view": same, "pin": pin.id, "before": start.get("pin")}

    # -- history -------------------------------------------------------------------------------

    def _hold(self, offset: Offset) -> None:
        """Take over the pin that keeps an offset's history; without one, reads say what is gone."""
        epoch = offset.get("epoch")
        if epoch is None or self._holds(epoch):
            return
        epochs = Epochs(borrow_store(self._url))
        held = {pin.id: pin for pin in epochs.pins() if pin.epoch <= epoch}
        if own := held.get(offset.get("pin", "")):
            self._pins[own.id] = own
            self._renew(at_once=True)
        elif held:
            latest = max(held.values(), key=lambda pin: pin.epoch)
            if (shared := epochs.share_pin(latest, self._keep)) is not None:
                self._pins[shared.id] = shared

    def _holds(self, epoch: int) -> bool:
        return any(pin.epoch <= epoch for pin in self._pins.values())

    def _renew(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._renewed < self._keep / 4:
            return
        self._renewed = now
        epochs = Epochs(borrow_store(self._url))
        for pin in list(self._pins.values()):
            try:
                self._pins[pin.id] = epochs.renew_pin(pin, self._keep)
            except EpochGone:
                del self._pins[pin.id]

    # -- rows ----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One per shard. A batch that runs again after a restart comes here first."""
        self._hold(start)
        self._hold(end)
        if start == end or start.get("start") == NOW:
            return []
        store = borrow_store(self._url)
        view = FollowedView.of(store, self._name)
        for offset in (start, end):
            _check_same(self._name, view, offset)
        after = start.get("epoch")
        return [
            ShardChanges(view, shard, after, end["epoch"]) for shard in range(store.state.shards)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one shard: for a change, the row before and the row after."""
        assert isinstance(partition, ShardChanges)
        store = borrow_store(self._url)
        relation = ViewRelation(partition.view.placement, store.state.shards)
        names = [name for name in self._schema.fieldNames() if name in relation.names]
        frames = _rows(store, relation, partition, names)
        if partition.after is not None:
            frames = _changes(store, relation, partition, partition.after, names)
        try:
            for frame in frames:
                yield from arrow_batches(frame.select(self._schema.fieldNames()), self._schema)
            # A table is dropped only when a plan without it was published: look after reading.
            _check_same(self._name, FollowedView.of(store, self._name), partition.view)
        except EpochGone as error:
            where = f"epoch {partition.after}" if partition.after is not None else "its start"
            raise EpochGone(
                f"the stream of {self._name} cannot go on after {where}: {error}. "
                "Start it anew, with another checkpoint"
            ) from error


def _check_same(name: str, view: FollowedView, known: FollowedView | Offset) -> None:
    same = known.same if isinstance(known, FollowedView) else known.get("view", view.same)
    if same != view.same:
        raise EpochGone(
            f"view {name} was replaced, rebuilt or dropped since the stream began. "
            "Start it anew, with another checkpoint"
        )


def _rows(
    store: Store, relation: ViewRelation, part: ShardChanges, names: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """The rows of a shard at an epoch."""
    start, more = b"", True
    while more:
        found = store.views.scan(
            part.shard, relation.table.number, start=start, stop=None, limit=_CHUNK, at=part.upto
        )
        yield relation.frame(found.rows, names).with_columns(
            pl.lit(part.upto, pl.Int64).alias(EPOCH), pl.lit(INSERT).alias(CHANGE)
        )
        more = found.more
        if more:
            start = found.keys[-1] + b"\0"


def _changes(
    store: Store, relation: ViewRelation, part: ShardChanges, after: int, names: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """What epochs changed in a shard."""
    start, more = b"", True
    while more:
        found = store.views.changes(
            part.shard, relation.table.number, after, part.upto, start=start, limit=_CHUNK
        )
        rows: list[bytes] = []
        epochs: list[int] = []
        kinds: list[str] = []
        for versions in found.versions:
            for (_, old), (epoch, new) in pairwise(versions):
                if old is not None and new is not None and _looks_same(relation, old, new):
                    continue
                for row, kind in ((old, DELETE), (new, INSERT)):
                    if row is not None:
                        rows.append(row)
                        epochs.append(epoch)
                        kinds.append(kind)
        if rows:
            yield relation.frame(rows, names).with_columns(
                pl.Series(EPOCH, epochs, pl.Int64), pl.Series(CHANGE, kinds, pl.String)
            )
        more = found.more
        if more:
            start = found.keys[-1] + b"\0"


def _looks_same(relation: ViewRelation, old: bytes, new: bytes) -> bool:
    """Whether the view shows both rows alike: state rows hold more than it shows."""
    before, after = relation.as_dict(old), relation.as_dict(new)
    return before == after or repr(before) == repr(after)  # NaN equals itself here
