"""Who keeps the views: a driver, a resident task, a zombie that comes too late, a housekeeper.

Law: an epoch is run in either lane, by whomever, as often as anybody likes, and is one epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from viewkeep.engine import resident
from viewkeep.engine.epochs import Limits, Published
from viewkeep.engine.failures import leave_out
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.log_splits import even_splits, levels_to_run
from viewkeep.engine.pace import Work
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import Report, reports_of
from viewkeep.engine.resident import Assignment, End, assign, reside
from viewkeep.engine.rows import epoch as rows_lane
from viewkeep.errors import EpochGone, Fenced, OperatorFailed, PipelineError

from .actor import Actor
from .model import Finding
from .world import Process


@contextmanager
def rows_lane_up_to(rows: int) -> Iterator[None]:
    """Epochs and inputs of more rows take the columns lane; all do if it is negative."""
    with patch.object(rows_lane, "FEW", rows):
        yield


class _Runner(Actor):
    def run(self, process: Process, epoch: Any) -> list[Report]:
        """An epoch in one lane or the other, or begun in one and then run in the other."""
        store = process.store
        if self.rng.random() < 0.5:
            with rows_lane_up_to(self.rng.choice((1, 3, 8, 2_000, 2_000))):
                few = rows_lane.run_rows(store, epoch, load_plan(store, epoch.plan).program)
            self.happened("epoch refused by the rows lane" if few is None else "epoch of rows")
            if few is not None and self.rng.random() < 0.85:
                return few
        self.happened("epoch of columns")
        return self.run_columns(process, epoch)

    def run_columns(self, process: Process, epoch: Any) -> list[Report]:
        """All tasks of an epoch, in any order, some of them twice or given up."""
        rng, store = self.rng, process.store
        program = load_plan(store, epoch.plan).program
        shares = even_splits(store, program, epoch)
        messages: list[Any] = []
        for split in rng.sample(flat := [s for share in shares for s in share], len(flat)):
            if rng.random() < 0.15:
                self.happened("task run twice")
                list(run_sources(store, epoch, split))
            messages += run_sources(store, epoch, split)
        for level in range(1, levels_to_run(store, program, epoch, shares)):
            sent, messages = messages, []
            rng.shuffle(sent)
            tasks = rng.randrange(1, store.state.shards + 1)
            for task in rng.sample(range(tasks), tasks):
                mine = [message for message in sent if message[0] % tasks == task]
                shards = range(task, store.state.shards, tasks)
                if rng.random() < 0.15:
                    self.happened("task run twice")
                    next(run_level(store, epoch, level, shards, mine), None)  # given up
                messages += run_level(store, epoch, level, shards, mine)
        return reports_of(messages)


class Driver(_Runner):
    """Opens an epoch, runs it and publishes it; two of them fight for the lease."""

    weight = 10
    hosts = ("driver", "driver", "driver", "second_driver")

    def __init__(self, round: Any):
        super().__init__(round)
        self.leases: dict[str, Any] = {}
        self.late: list[Any] = []  # epochs whose tasks may come again
        self.assigned: list[_Assigned] = []

    def forget(self, host: str) -> None:
        self.leases.pop(host, None)

    def act(self, process: Process) -> None:
        rng, epochs = self.rng, process.db.epochs
        if process.name not in self.leases:
            try:
                self.leases[process.name] = epochs.acquire()
            except PipelineError:
                return  # another driver is alive
        term = self.leases[process.name].term
        if rng.random() < 0.35:
            self.delegate(process, term)
            return
        try:
            limits = Limits(operations=rng.randrange(2, 12), chunk=3, tasks=rng.choice((1, 2)))
            epoch = epochs.open_next(term, limits)
            if epoch is None:
                return
            self.late = [*self.late[-4:], (term, epoch)]
            if rng.random() < 0.04:
                epochs.abandon(term, epoch)
                self.happened("epoch abandoned")
                return
            reports = self.run(process, epoch)
            if rng.random() < 0.1:
                return  # publishing waits for the next step, which runs all tasks again
            epochs.publish(term, epoch, reports)
            if rng.random() < 0.1:
                epochs.release(self.leases.pop(process.name))
        except OperatorFailed as error:
            if rng.random() < 0.7:  # else it tries again
                with suppress(Fenced):
                    leave_out(process.store, term, epoch, {error.operator: error.reason})
                    self.happened("view set aside")
        except Fenced:
            self.leases.pop(process.name, None)
            self.happened("driver fenced")
        except EpochGone:
            # A resident of its own had the epoch too, published it, and dropped the log up to it.
            if epochs.read().published.epoch < epoch.epoch:
                raise
            self.happened("epoch published by a resident while its driver ran it")

    def delegate(self, process: Process, term: int) -> None:
        """Leave the epochs to a resident, or ask for them back, and hear what it has done."""
        rng = self.rng
        mine = [each for each in self.assigned if each.given.term == term]
        if mine and rng.random() < 0.6:
            given = rng.choice(mine)
            told = resident.reports_of(process.store, given.given, take_back=rng.random() < 0.4)
            given.hear(self, told)
            return
        given = Assignment(
            f"{term}/{len(self.assigned)}",
            term,
            Limits(operations=rng.randrange(2, 12), chunk=3, tasks=rng.choice((1, 2))),
            Work(most=rng.choice((6, 100_000, 100_000))),
            seconds=rng.choice((0.05, 1.0, 3.0)),
        )
        try:
            assign(process.store, given)
        except Fenced:
            self.leases.pop(process.name, None)
            self.happened("driver fenced")
            return
        self.happened("epochs assigned to a resident")
        self.assigned.append(_Assigned(given))


@dataclass(eq=False)
class _Assigned:
    """Epochs that a driver has left to a resident, and those that it has heard of."""

    given: Assignment
    heard: list[int] = field(default_factory=list)

    def hear(self, actor: Actor, told: list[Published]) -> None:
        """Each epoch is told once at most, in order, and as it was published."""
        for published in told:
            actor.happened("epoch told by a resident")
            actor.round.check()
            known = actor.round.cuts.get(published.epoch)
            if known is not None and known != published.cut:
                raise Finding(f"a resident tells of {published}; its cut was {known}")
            if published.epoch > max(actor.round.cuts, default=0):
                raise Finding(f"a resident tells of {published}, which was never published")
            if self.heard and published.epoch <= self.heard[-1]:
                raise Finding(f"a resident told {published.epoch} after {self.heard}")
            self.heard.append(published.epoch)


class Resident(_Runner):
    """The task that runs epoch after epoch; attempts come twice, too late, side by side."""

    weight = 4
    hosts = ("resident", "second_resident")

    def act(self, process: Process) -> None:
        assigned = self.round.actor(Driver).assigned[-3:]
        if not assigned:
            return
        mine = self.rng.choice((assigned[-1], *assigned))
        lane = rows_lane_up_to(self.rng.choice((-1, 3, 2_000)))
        outgrown = patch.object(resident, "ALONE_BYTES", self.rng.choice((200, 64 << 20)))
        self.happened("resident attempt")
        alone = nullcontext() if self.round.depth else self.world.others_while_asleep(process)
        with lane, outgrown, alone, suppress(OperatorFailed):
            turn = reside(process.store, mine.given)
            self.happened(f"resident ended: {turn.end.value}")
            self.world.happened["epoch run by a resident"] += turn.epochs
            # As the driver does when the task is over: first the record, then what the task gave.
            mine.hear(self, resident.reports_of(process.store, mine.given, take_back=True))
            mine.hear(self, list(turn.untold))
            if turn.end is End.LARGE and process.db.epochs.read().term == mine.given.term:
                self.happened("epoch left to all cores")


class Zombie(_Runner):
    """A driver of an earlier epoch or term runs its tasks again and tries to publish."""

    weight = 2
    hosts = ("zombie",)

    def act(self, process: Process) -> None:
        late = self.round.actor(Driver).late
        if not late:
            return
        term, epoch = self.rng.choice(late)
        record = process.db.epochs.read()
        self.happened("stale driver")
        with suppress(Fenced, EpochGone, OperatorFailed):
            self.run(process, epoch)
        if record.term == term and record.open is not None:
            return  # it is the driver of now
        try:
            done = process.db.epochs.publish(term, epoch, [])
        except Fenced:
            return
        if done.epoch != epoch.epoch or done.epoch != record.published.epoch:
            raise Finding(f"a driver of term {term} published epoch {epoch.epoch} late")


class Housekeeper(Actor):
    """Truncates logs, sweeps versions, drops tables."""

    weight = 2
    hosts = ("housekeeper",)

    def act(self, process: Process) -> None:
        housekeep(process.store, budget=self.rng.choice((2, 5, 1000)))
