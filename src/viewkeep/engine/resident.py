"""Resident epochs: one task that opens, runs and publishes small epochs, one after the other.

Starting a Spark job for each epoch costs ten times what a small epoch itself does. So the driver
*assigns* small epochs to a resident task for some seconds, and takes over only what needs all
cores. Driver and resident share one record, `resident`: it names the assignment and the attempt
that has it, and brings the driver word of what was published. To ask for the epochs back, the
driver removes it.

Law: an epoch is the same pure function here as anywhere, and the `epoch` record alone says which
one is open. A resident works only while the record names its attempt, the driver's lease lasts and
its term is that of the `epoch` record. It notices the end of these between two epochs; an attempt
that has not noticed yet can run nothing but the open epoch, and after a change of term not even
publish that.
"""

from __future__ import annotations

import enum
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from viewkeep.engine import local
from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch, Published
from viewkeep.engine.housekeeping import Housekeeper
from viewkeep.engine.lease import DriverWatch
from viewkeep.engine.load_pace import LOAD_PAUSE, LoadPace
from viewkeep.engine.pace import Pace, Work
from viewkeep.engine.programs import load_plan
from viewkeep.errors import Fenced
from viewkeep.stores.contract import Looks, Store
from viewkeep.stores.contract.records import record_from

_RECORD = "resident"
ALONE_BYTES = 64 << 20  # between two levels of an epoch that runs in one task
LEASE_SECONDS = 0.5  # between two looks at the driver's lease
TELL_SECONDS = 0.05  # between two reports to the driver, who needs them for `on_epoch` alone


class End(enum.Enum):
    """Why a resident gave the epochs back."""

    TIME = "its seconds are over"
    LARGE = "the open epoch needs all cores"
    ASKED = "the driver, or who took over, has asked for them"


@dataclass(frozen=True)
class Assignment:
    """What a driver hands to a resident: the epochs of its term, for some seconds."""

    id: str
    term: int
    limits: Limits
    work: Work
    every: float = 0.0
    load_pause: float = LOAD_PAUSE
    seconds: float = 30.0
    reports: bool = True  # whether the driver wants to know each epoch


@dataclass(frozen=True)
class Turn:
    """What has become of an assignment. `untold` epochs are in no report yet."""

    end: End
    epochs: int  # published by this attempt
    work: Work
    untold: tuple[Published, ...] = ()


@dataclass(frozen=True)
class _Record:
    id: str
    term: int
    attempt: str = ""
    published: Sequence[dict[str, object]] = ()

    def encode(self) -> bytes:
        return json.dumps(vars(self)).encode()


def assign(store: Store, assignment: Assignment) -> None:
    """Name the assignment in the record, and none before it. Fenced if a newer driver has done so.

    The task that runs it may start at any time after that.
    """
    while True:
        raw, record = _read(store)
        if record is not None and record.term > assignment.term:
            raise Fenced(f"a driver of term {record.term} has assigned the epochs")
        if store.meta.cas(_RECORD, raw, _Record(assignment.id, assignment.term).encode()):
            return


def reports_of(store: Store, assignment: Assignment, *, take_back: bool = False) -> list[Published]:
    """The epochs that the resident has reported since the last call.

    With `take_back`, also ask for the epochs back: a resident ends before its next epoch.
    """
    while True:
        raw, record = _read(store)
        if record is None or record.id != assignment.id:
            return []
        if not record.published and not take_back:
            return []
        rest = None if take_back else replace(record, published=()).encode()
        if store.meta.cas(_RECORD, raw, rest):
            return [Published.from_json(value) for value in record.published]


def new_id() -> str:
    """An id that no other assignment has."""
    return uuid.uuid4().hex


def reside(store: Store, assignment: Assignment) -> Turn:
    """Run epochs until the assignment ends. An epoch that fails raises, and is still open."""
    resident = _Resident(store, assignment)
    try:
        return resident.work()
    except Exception:
        resident.report()
        raise


class _Resident:
    def __init__(self, store: Store, given: Assignment):
        self._store, self._given = store, given
        self._attempt = uuid.uuid4().hex
        self._epochs = Epochs(store)
        self._driver = DriverWatch(store, given.term)
        self._lease_at = 0.0
        self._pace = Pace(given.limits, given.every, loads=LoadPace(given.load_pause))
        self._learnt = replace(given.work)
        self._house = Housekeeper()
        self._house.note(self._epochs.read().published, 0)  # what the last one has left over
        self._count = 0
        self._untold: list[Published] = []
        self._told_at = 0.0

    def work(self) -> Turn:
        """The loop: look whether there is something new, run it, report it."""
        if not self._begin():
            return self._turn(End.ASKED)
        end = time.monotonic() + self._given.seconds
        seen: object = None
        may_have_work = True
        looks = Looks()
        while True:
            ticks, now = self._store.ticks(), time.monotonic()
            if ticks != seen or now >= self._lease_at:
                may_have_work |= ticks != seen
                seen = ticks
                if not self._is_mine(now):
                    return self._turn(End.ASKED)
            if now >= end:
                return self._turn(End.TIME)
            if may_have_work and self._pace.is_due(now):
                epoch = self._open()
                if epoch is not None:
                    self._pace.begin(now)
                    if not self._is_done(epoch):
                        return self._turn(End.LARGE)
                    looks = Looks()
                    continue
                may_have_work = False
            self.report()
            self._house.round(self._store)
            if may_have_work:
                looks.pause(end - now)  # until it is due
            else:
                self._store.wait(ticks, max(0.0, min(end, self._lease_at) - now))

    def report(self, apart: float = 0.0) -> None:
        """Add what was published to the record, `apart` seconds after the last time."""
        now = time.monotonic()
        if not self._untold or now - self._told_at < apart:
            return
        raw, record = _read(self._store)
        if record is None or record.attempt != self._attempt:
            return  # the loop notices
        news = [published.to_json() for published in self._untold]
        told = replace(record, published=[*record.published, *news])
        if self._store.meta.cas(_RECORD, raw, told.encode()):
            self._untold.clear()
            self._told_at = now

    def _begin(self) -> bool:
        """Put this attempt into the record; one before it, of the same task, ends."""
        published = self._epochs.read().published
        self._pace.follow(published, time.monotonic(), time.time())
        while True:
            raw, record = _read(self._store)
            if record is None or record.id != self._given.id:
                return False
            mine = replace(record, attempt=self._attempt)
            if self._store.meta.cas(_RECORD, raw, mine.encode()):
                return True

    def _is_mine(self, now: float) -> bool:
        """Whether the epochs are still this attempt's to run."""
        record = _read(self._store)[1]
        if record is None or (record.id, record.attempt) != (self._given.id, self._attempt):
            return False
        if self._epochs.read().term != self._given.term:
            return False
        if now >= self._lease_at:
            self._lease_at = now + LEASE_SECONDS
            return self._driver.lives()
        return True

    def _open(self) -> OpenEpoch | None:
        """The next epoch; None if there is no work, or a newer driver has replaced this one's."""
        try:
            limits = self._pace.limits_at(time.monotonic())
            return self._epochs.open_next(self._given.term, limits)
        except Fenced:
            if self._epochs.read().term == self._given.term:
                raise
            return None

    def _is_done(self, epoch: OpenEpoch) -> bool:
        """Run and publish an epoch; False if it is too much for one task, and still open."""
        program = load_plan(self._store, epoch.plan).program
        if not self._learnt.is_little(epoch, program):
            return False
        try:
            reports = local.run_epoch(self._store, epoch, 1, ALONE_BYTES)
            published = self._epochs.publish(self._given.term, epoch, reports)
        except local.Outgrown:
            return False
        except Fenced:
            # Another attempt, or a newer driver, was faster. The loop finds out who.
            record = self._epochs.read()
            if (record.term, record.open) == (self._given.term, epoch):
                raise
            return True
        self._learnt.learn(epoch, reports)
        self._pace.learn(published, time.monotonic())
        self._count += 1
        self._house.note(published, sum(report.rows_written for report in reports))
        self._house.round(self._store)
        if self._given.reports:
            self._untold.append(published)
            self.report(TELL_SECONDS)
        return True

    def _turn(self, end: End) -> Turn:
        record = _read(self._store)[1]
        replaced = (
            record is not None and record.id == self._given.id and record.attempt != self._attempt
        )  # the other attempt may have reported later epochs: these would come out of order
        untold = () if replaced else tuple(self._untold)
        return Turn(end, self._count, self._learnt, untold)


def _read(store: Store) -> tuple[bytes | None, _Record | None]:
    raw = store.meta.get(_RECORD)
    return raw, None if raw is None else record_from(_Record, json.loads(raw))
