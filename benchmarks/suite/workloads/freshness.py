"""How old a published view is: at an offered load, and after a single write to an idle database.

A write's freshness runs from before the call that writes it until a reader of the epoch record sees
a published cut that covers it. The pipeline is a process of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import polars as pl
from peers.offered import quantiles

from suite.bench import Bench, declare
from suite.contract import OURS, Experiment, Outcome, Workload
from suite.task import ANSWER, Task
from suite.workloads.vote import counting
from viewkeep.database import Database
from viewkeep.engine.epochs import Epochs
from viewkeep.stores.contract import Cut

LOAD, BATCH, STORIES = 20_000, 200, 10_000
IDLE_SECONDS, WAIT_SECONDS, WARM_EPOCHS = 0.5, 120.0, 10
LOOK_SECONDS = 0.002


class Freshness(Workload):
    """How long after a write does its view show it?"""

    name = "freshness"

    def experiments(self, bench: Bench) -> list[Experiment]:
        seconds = 2 * bench.size.seconds
        load = bench.size.pick(LOAD, LOAD, 2_000)
        offered = counting(int(load * seconds) * bench.size.runs, STORIES, True)
        writes = bench.size.pick(20, 5, 2) * bench.size.runs
        single = counting(writes, 10, False)
        return [
            Experiment(
                f"{load:,} operations/s offered",
                {OURS: partial(at_load, bench, offered, load)},
                offered.expected,
            ),
            Experiment(
                "idle, single writes", {OURS: partial(idle, bench, single)}, single.expected
            ),
        ]


def at_load(bench: Bench, task: Task, load: int, runs: int) -> Outcome:
    """Batches are due at fixed times; the quantiles of their freshness, per run."""
    batches = list(task.final()["votes"].iter_slices(BATCH))
    each = len(batches) // runs
    samples: dict[str, list[float]] = {}
    with running(bench, task) as db:
        for run in range(runs):
            last = len(batches) if run == runs - 1 else (run + 1) * each
            mine = batches[run * each : last]
            spent, share = _offer(db, mine, load)
            for label, value in quantiles(spent):
                samples.setdefault(f"{label}, s", []).append(value / 1e3)
            samples.setdefault("share of the offered load", []).append(share)
        return Outcome(samples, {ANSWER: db.scan(ANSWER).polars()})


def _offer(db: Database, batches: list[pl.DataFrame], load: int) -> tuple[list[float], float]:
    written: list[tuple[float, Cut]] = []
    with Publications(db) as seen:
        began = time.perf_counter()
        for number, batch in enumerate(batches):
            due = began + number * BATCH / load
            left = due - time.perf_counter()
            if left > 0:
                time.sleep(left)
            start = time.perf_counter()
            db.put("votes", batch)
            written.append((start, db.store.log.head()))
        reached = sum(map(len, batches)) / (time.perf_counter() - began)
        db.wait(timeout=WAIT_SECONDS)
    return [seen.covered(cut) - start for start, cut in written], min(1.0, reached / load)


def idle(bench: Bench, task: Task, runs: int) -> Outcome:
    """One write, then quiet; the freshness of each."""
    spent = []
    with running(bench, task) as db:
        for row in task.final()["votes"].iter_rows(named=True):
            time.sleep(IDLE_SECONDS)
            with Publications(db) as seen:
                start = time.perf_counter()
                db.put("votes", row)
                cut = db.store.log.head()
                db.wait(timeout=WAIT_SECONDS)
            spent.append(seen.covered(cut) - start)
        result = {ANSWER: db.scan(ANSWER).polars()}
    return Outcome({"single write, s": spent}, result)


@contextmanager
def running(bench: Bench, task: Task) -> Iterator[Database]:
    """A durable database with a pipeline that has run some epochs, of another view."""
    with bench.database() as db:
        declare(db, task)
        db.sql("CREATE TABLE warm (k BIGINT PRIMARY KEY, g BIGINT)")
        db.sql("CREATE VIEW warmed AS SELECT g, COUNT(*) AS n FROM warm GROUP BY g")
        with bench.pipeline(db):
            for number in range(WARM_EPOCHS):
                db.put("warm", {"k": number, "g": number % 3})
                db.wait(timeout=WAIT_SECONDS)
            bench.settle(db)
            yield db


class Publications:
    """When each published cut was first seen, by a thread that looks at the epoch record."""

    def __init__(self, db: Database):
        self._epochs, self._done = Epochs(db.store), threading.Event()
        self._seen: list[tuple[float, Cut]] = []
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Publications:
        self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._done.set()
        self._thread.join()

    def covered(self, cut: Cut) -> float:
        """When a published cut first covered this one."""
        for moment, published in self._seen:
            if published.covers(cut):
                return moment
        raise AssertionError("waiting ended before the publication was seen")

    def _look(self) -> None:
        newest = None
        while True:
            last = self._done.is_set()  # looks once more after the end
            published = self._epochs.read().published
            if published.epoch != newest:
                newest = published.epoch
                self._seen.append((time.perf_counter(), published.cut))
            if last:
                return
            time.sleep(LOOK_SECONDS)
