"""Who keeps the views: a driver that runs epochs, a zombie that does so too late, a housekeeper."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from viewkeep.engine.epochs import Limits
from viewkeep.engine.failures import leave_out
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.log_splits import even_splits, levels_to_run
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import reports_of
from viewkeep.errors import EpochGone, Fenced, OperatorFailed, PipelineError

from .actor import Actor
from .model import Finding
from .world import Process


class _Runner(Actor):
    def run(self, process: Process, epoch: Any) -> list[Any]:
        """All tasks of an epoch, in any order, some of them twice or given up."""
        rng, store = self.rng, process.store
        program = load_plan(store, epoch.plan).program
        shares = even_splits(program, epoch)
        messages: list[Any] = []
        for split in rng.sample(flat := [s for share in shares for s in share], len(flat)):
            if rng.random() < 0.15:
                self.happened("task run twice")
                list(run_sources(store, epoch, split))
            messages += run_sources(store, epoch, split)
        for level in range(1, levels_to_run(program, epoch, shares)):
            sent, messages = messages, []
            rng.shuffle(sent)
            tasks = rng.randrange(1, store.shards + 1)
            for task in rng.sample(range(tasks), tasks):
                mine = [message for message in sent if message[0] % tasks == task]
                shards = range(task, store.shards, tasks)
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
