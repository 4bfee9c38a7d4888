"""Epoch records: which epoch is published, which is open, and who may run it.

One meta record, `epoch`, changed only by compare-and-set, says it all. The cut of an epoch is
stored before its first task starts (`open_next`) and the epoch is published by one write after its
last task ended (`publish`). A driver holds a term; a newer driver raises the term in the same
record, so whatever the older one still tries fails with Fenced. An open epoch that cannot be run is
given up (`abandon`): its number is never used again, and before the next one opens, every shard is
reverted to the published epoch and refuses what tasks of the abandoned one still write.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from viewkeep.engine.costs import note_costs, tell_costs
from viewkeep.engine.lease import Lease, acquire, release, renew
from viewkeep.engine.loading import Loading, add_loaded, begin_loading, merge_progress
from viewkeep.engine.programs import load_plan, newest_plan
from viewkeep.engine.report import Report, level_seconds
from viewkeep.engine.revision import begin_repairs
from viewkeep.engine.standstill import standstills
from viewkeep.engine.successors import take_names
from viewkeep.engine.views import hand_over, to_hand_over, versioned_parts
from viewkeep.errors import EpochGone, Fenced, ViewkeepError
from viewkeep.stores.contract import START, Cut, Store
from viewkeep.stores.contract.records import record_from

_RECORD, _PINS = "epoch", "pin/"


@dataclass(frozen=True)
class Limits:
    """Bounds of one epoch: operations, bytes of log, rows loaded per feed and part, tasks.

    `beside` bounds the rows that all feeds and parts together load in an epoch that brings
    operations; with 0 it loads none. `alone` is the chunk of an epoch that brings none.
    """

    operations: int = 500_000
    size: int = 256 << 20
    chunk: int = 50_000
    tasks: int = 1  # among which the operations may be shared out
    beside: int | None = None
    alone: int | None = None

    def chunk_of(self, loading: Loading, brings_operations: bool) -> int:
        """The rows that each feed and part loads in the next epoch."""
        parts = sum(map(len, loading.values()))
        if not brings_operations:
            return self.chunk if self.alone is None else min(self.chunk, self.alone)
        if self.beside is None or not parts:
            return self.chunk
        return min(self.chunk, max(self.beside // parts, min(self.beside, 1)))


@dataclass(frozen=True)
class Published:
    """A consistent snapshot of all views: every operation before `cut`, and none after."""

    epoch: int
    cut: Cut
    plan: int
    loading: Loading = field(default_factory=dict)
    loaded: Mapping[str, int] = field(default_factory=dict)  # rows in so far, per loading feed
    spent: Mapping[str, float] = field(default_factory=dict)  # seconds so far, per loading feed
    at: int = 0  # nanoseconds since 1970
    operations: int = 0
    seconds: float = 0.0
    levels: Sequence[float] = field(default_factory=list)  # seconds of each one's longest task
    more: bool = False  # whether its bounds left operations for the next one
    rows_loaded: int = 0  # by this epoch, of all feeds
    wrote_at: int = 0  # `at` of the last epoch that brought operations

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "cut": self.cut.to_json()}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Published:
        return record_from(Published, value, cut=Cut.from_json(value["cut"]))


@dataclass(frozen=True)
class OpenEpoch:
    """An epoch whose cut is fixed and whose tasks may run, any number of times."""

    epoch: int
    start: Cut
    cut: Cut
    plan: int
    horizon: int
    loading: Loading
    chunk: int
    opened: int  # nanoseconds since 1970
    more: bool = False  # whether its bounds left operations for the next one
    tasks: int = 1  # among which its operations may be shared out, whoever runs it

    @property
    def operations(self) -> int:
        return self.cut.operations - self.start.operations

    @property
    def rows_to_load(self) -> int:
        """The rows that it loads at most, of all feeds."""
        return self.chunk * sum(map(len, self.loading.values()))


@dataclass(frozen=True)
class EpochRecord:
    """The whole record."""

    term: int
    published: Published
    open: OpenEpoch | None
    abandoned: int = 0  # the last epoch that was given up


@dataclass(frozen=True)
class Pin:
    """Keeps one epoch, and the log after its cut, readable until it expires.

    It expires when its beat has stood still for its ttl, by the clock of whoever drops versions.
    """

    id: str
    epoch: int
    cut: Cut
    plan: int
    loading: Loading
    ttl: float = 3600.0  # seconds that its beat may stand still
    beat: int = 0


class Epochs:
    """The epoch records of one store. Cheap to make; holds no state but the last record read."""

    def __init__(self, store: Store):
        self.store = store
        self._seen: tuple[bytes, EpochRecord] | None = None

    # -- reading -----------------------------------------------------------------------------

    def read(self) -> EpochRecord:
        """The record as it is now."""
        return self._read()[1]

    def wait(self, after: int, seconds: float) -> Published:
        """Wait until a later epoch is published, at most so long; which one is then."""
        deadline = time.monotonic() + seconds
        raw, record = self._read()
        while record.published.epoch <= after and (left := deadline - time.monotonic()) > 0:
            raw = self.store.meta.watch(_RECORD, raw, left)
            record = self._parsed(raw)
        return record.published

    def open_epoch(self, number: int) -> OpenEpoch:
        """The open epoch of this number; raises Fenced if it is no longer open."""
        current = self.read().open
        if current is None or current.epoch != number:
            raise Fenced(f"epoch {number} is no longer open: another driver has finished it")
        return current

    def unfinished(self, view: str, at: Published | Pin | None = None) -> Loading | None:
        """What is still to load for a view; empty when it is ready, None before its first epoch.

        That is at the published epoch, or at the one given.
        """
        at = at or self.read().published
        placement = load_plan(self.store, at.plan).program.placements.get(view)
        if placement is None:
            return None
        return {feed: parts for feed, parts in at.loading.items() if feed in placement.feeds}

    def ready(self, view: str, at: Published | Pin | None = None) -> bool:
        """Whether the published epoch, or the one given, holds the whole view."""
        return self.unfinished(view, at) == {}

    # -- driving -----------------------------------------------------------------------------

    def acquire(self, ttl: float = 30.0) -> Lease:
        """Become the driver: take the lease and raise the record's term."""
        lease = acquire(self.store, ttl)
        try:
            while True:
                raw, record = self._read()
                if record.term >= lease.term:
                    raise Fenced("another driver took over at the same moment")
                if self._swap(raw, replace(record, term=lease.term)):
                    return lease
        except ViewkeepError:
            with suppress(ViewkeepError):  # nobody renews it, so let the next one in
                release(self.store, lease)
            raise

    def renew(self, lease: Lease) -> None:
        """Extend the lease; raises Fenced if it was lost."""
        renew(self.store, lease)

    def release(self, lease: Lease) -> None:
        """Give the lease back, so that a successor need not wait."""
        release(self.store, lease)

    def open_next(self, term: int, limits: Limits) -> OpenEpoch | None:
        """Fix the cut of the next epoch; the open one again if there is one; None if no work.

        Any process of the driver may ask: whoever comes second gets what the first has opened.
        """
        while True:
            raw, record = self._read()
            self._check(record, term)
            if record.open is not None:
                return record.open
            self._revert(record)
            chosen = self._choose(record, limits)
            if chosen is None or self._swap(raw, replace(record, open=chosen)):
                return chosen

    def abandon(self, term: int, epoch: OpenEpoch) -> None:
        """Give the open epoch up. The next one starts at the published cut, with the newest plan.

        Abandoning it twice is harmless.
        """
        while True:
            raw, record = self._read()
            self._check(record, term)
            if record.open is None and record.abandoned == epoch.epoch:
                return
            if record.open is None or record.open.epoch != epoch.epoch:
                raise Fenced(f"epoch {epoch.epoch} is not the open one")
            if self._swap(raw, replace(record, open=None, abandoned=epoch.epoch)):
                return

    def _revert(self, record: EpochRecord) -> None:
        """Have every shard forget and refuse abandoned epochs, if there are any since the last."""
        if record.abandoned > record.published.epoch:
            for shard in range(self.store.state.shards):
                for part in versioned_parts(self.store):
                    part.revert(shard, record.published.epoch, record.abandoned)

    def publish(self, term: int, epoch: OpenEpoch, reports: Iterable[Report]) -> Published:
        """Make the epoch the published one. Publishing it twice is harmless."""
        raw, record = self._read()
        self._check(record, term)
        if record.open is None and record.published.epoch == epoch.epoch:
            return record.published
        if record.open is None or record.open.epoch != epoch.epoch:
            raise Fenced(f"epoch {epoch.epoch} is not the open one")
        now = time.time_ns()
        reports = list(reports)
        loading, seconds = merge_progress(epoch.loading, reports), (now - epoch.opened) / 1e9
        spent = record.published.spent
        published = Published(
            epoch=epoch.epoch,
            cut=epoch.cut,
            plan=epoch.plan,
            loading=loading,
            loaded=add_loaded(record.published.loaded, loading, reports),
            spent={feed: round(spent.get(feed, 0.0) + seconds, 3) for feed in loading},
            at=now,
            operations=epoch.operations,
            seconds=seconds,
            levels=level_seconds(reports),
            more=epoch.more,
            rows_loaded=sum(sum(report.loaded.values()) for report in reports),
            wrote_at=now if epoch.operations else record.published.wrote_at,
        )
        if self._swap(raw, replace(record, published=published, open=None)):
            note_costs(self.store, epoch.operations, reports, published)
            return published
        # Another driver took over, or one that was killed in the middle of this write has done it.
        return self.publish(term, epoch, reports)

    def _choose(self, record: EpochRecord, limits: Limits) -> OpenEpoch | None:
        published = record.published
        # The head first: a plan read after it knows the columns of all rows that were written then.
        head = self.store.log.head()
        plan = newest_plan(self.store)
        if plan.repairs:
            begin_repairs(self.store, published.cut)
            plan = newest_plan(self.store)
        if plan.successors or plan.leaving:
            take_names(self.store, published)
            plan = newest_plan(self.store)
        loading = begin_loading(self.store, published.loading, published.cut, published.plan, plan)
        moved = not published.cut.covers(head)
        if not moved and not loading and plan.version == published.plan:
            tell_costs(self.store)
            return None
        cut = published.cut
        if moved and not plan.program.operators:
            cut = head  # nothing to maintain: pass over the log
        elif moved:
            cut = self.store.log.bounded_cut(published.cut, head, limits.operations, limits.size)
        horizon = min([published.epoch, *(pin.epoch for pin in self.pins())])
        epoch = max(published.epoch, record.abandoned) + 1
        if plan.version != published.plan and published.plan:
            before = load_plan(self.store, published.plan).program
            if tables := to_hand_over(self.store, before, plan.program):
                hand_over(self.store, tables, published.epoch, epoch, horizon)
                epoch += 1
        return OpenEpoch(
            epoch=epoch,
            start=published.cut,
            cut=cut,
            plan=plan.version,
            horizon=horizon,
            loading=loading,
            chunk=limits.chunk_of(loading, moved),
            opened=time.time_ns(),
            more=not cut.covers(head),
            tasks=limits.tasks,
        )

    # -- pins --------------------------------------------------------------------------------

    def pin(self, ttl: float = 3600.0, epoch: int | None = None) -> Pin:
        """Keep the published epoch readable by any process until unpinned or expired.

        With `epoch`, only if that is the published one. A pin is safe if its epoch is still the
        published one after it was written: then whoever drops versions or log records of that
        epoch does so after a later publication, and looks at the pins before.
        """
        while True:
            published = self.read().published
            if epoch is not None and epoch != published.epoch:
                raise EpochGone(f"epoch {epoch} is not the published one ({published.epoch})")
            pin = Pin(
                uuid.uuid4().hex,
                published.epoch,
                published.cut,
                published.plan,
                published.loading,
                ttl,
            )
            self.store.meta.cas(f"{_PINS}{pin.id}", None, _pin_bytes(pin))
            if self.read().published.epoch == pin.epoch:
                return pin
            self.unpin(pin)

    def share_pin(self, pin: Pin, ttl: float = 3600.0) -> Pin | None:
        """A pin of one's own of the epoch that another pin keeps; None if that one has ended.

        It is safe if the other could be renewed after it was written: then whoever dropped versions
        until then has kept that one, and from then on finds this one.
        """
        shared = replace(pin, id=uuid.uuid4().hex, ttl=ttl)
        self.store.meta.cas(f"{_PINS}{shared.id}", None, _pin_bytes(shared))
        try:
            self.renew_pin(pin, pin.ttl)
        except EpochGone:
            self.unpin(shared)
            return None
        return shared

    def renew_pin(self, pin: Pin, ttl: float = 3600.0) -> Pin:
        """Extend a pin; raises EpochGone if it had expired."""
        while (current := self.store.meta.get(f"{_PINS}{pin.id}")) is not None:
            longer = replace(pin, ttl=ttl, beat=_pin_from(current).beat + 1)
            if self.store.meta.cas(f"{_PINS}{pin.id}", current, _pin_bytes(longer)):
                return longer
        raise EpochGone(f"the pin of epoch {pin.epoch} has expired")

    def unpin(self, pin: Pin) -> None:
        """Let go of a pinned epoch. Unpinning twice is harmless."""
        while (current := self.store.meta.get(f"{_PINS}{pin.id}")) is not None:
            if self.store.meta.cas(f"{_PINS}{pin.id}", current, None):
                return  # else it was renewed in between

    def pins(self) -> list[Pin]:
        """The pins in force; expired ones are dropped."""
        kept, watched = [], standstills(self.store)
        records = dict(self.store.meta.scan(_PINS))
        watched.forget_others(_PINS, records)
        for key, body in records.items():
            pin = _pin_from(body)
            has_expired = watched.seconds(key, body) > pin.ttl
            # An expired pin ends by this very write, or it was renewed first and is in force.
            ended = has_expired and self.store.meta.cas(key, body, None)
            if not ended and (not has_expired or self.store.meta.get(key) is not None):
                kept.append(pin)
        return kept

    # -- the record --------------------------------------------------------------------------

    def _read(self) -> tuple[bytes | None, EpochRecord]:
        raw = self.store.meta.get(_RECORD)
        return raw, self._parsed(raw)

    def _parsed(self, raw: bytes | None) -> EpochRecord:
        if raw is None:
            return EpochRecord(0, Published(0, START, 0), None)
        seen = self._seen  # another thread may replace it meanwhile
        if seen is None or seen[0] != raw:
            seen = self._seen = (raw, _record_from(raw))
        return seen[1]

    def _swap(self, raw: bytes | None, record: EpochRecord) -> bool:
        return self.store.meta.cas(_RECORD, raw, _record_bytes(record))

    @staticmethod
    def _check(record: EpochRecord, term: int) -> None:
        if record.term != term:
            raise Fenced(
                f"driver of term {term} (process {os.getpid()}) was replaced by one of "
                f"term {record.term}"
            )


def _record_bytes(record: EpochRecord) -> bytes:
    current = record.open
    value: dict[str, object] = {
        "term": record.term,
        "abandoned": record.abandoned,
        "published": record.published.to_json(),
        "open": None,
    }
    if current is not None:
        value["open"] = {
            **vars(current),
            "start": current.start.to_json(),
            "cut": current.cut.to_json(),
        }
    return json.dumps(value).encode()


def _record_from(raw: bytes) -> EpochRecord:
    value = json.loads(raw)
    current = value["open"]
    if current is not None:
        current["start"] = Cut.from_json(current["start"])
        current["cut"] = Cut.from_json(current["cut"])
    return EpochRecord(
        value["term"],
        Published.from_json(value["published"]),
        record_from(OpenEpoch, current) if current else None,
        value.get("abandoned", 0),
    )


def _pin_bytes(pin: Pin) -> bytes:
    value: Mapping[str, object] = {**vars(pin), "cut": pin.cut.to_json()}
    return json.dumps(value).encode()


def _pin_from(body: bytes) -> Pin:
    value = json.loads(body)
    return record_from(Pin, value, cut=Cut.from_json(value["cut"]))
