"""From `viewkeep run` to the first published epoch, and its workers' memory over a large base."""

from __future__ import annotations

import time
from functools import partial

from suite.bench import Bench, declare, write
from suite.contract import OURS, Experiment, Outcome, Workload
from suite.data import rows
from suite.processes import Peak
from suite.task import ANSWER, Task, inserts

SQL = "SELECT g, SUM(x) AS total, MAX(x) AS high, COUNT(*) AS n FROM t GROUP BY g"
WAIT_SECONDS, LOOK_SECONDS = 1_200.0, 0.01


class Start(Workload):
    """How soon does a pipeline work, and how much memory does it take for ten million rows?"""

    name = "start"

    def experiments(self, bench: Bench) -> list[Experiment]:
        small, large = base(1_000), base(bench.size.pick(10_000_000, 500_000, 5_000))
        return [
            Experiment("start", {OURS: partial(starting, bench, small)}, small.expected),
            Experiment("large base", {OURS: partial(loading, bench, large)}, large.expected),
        ]


def base(count: int) -> Task:
    tables = {"t": {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}}
    return Task("start", tables, {ANSWER: SQL}, lambda: inserts(50_000, t=rows(count, 1_000)))


def starting(bench: Bench, task: Task, runs: int) -> Outcome:
    """A new process each time, over the same small log."""
    spent, result = list[float](), None
    for _ in range(runs):
        with bench.database() as db:
            declare(db, task)
            for change in task.changes:
                write(db, change)
            began = time.perf_counter()
            with bench.pipeline(db):
                while not db.epochs.read().published.epoch:
                    time.sleep(LOOK_SECONDS)
                    if time.perf_counter() - began > WAIT_SECONDS:
                        raise TimeoutError("no epoch was published")
                spent.append(time.perf_counter() - began)
                db.wait(timeout=WAIT_SECONDS)
                result = {ANSWER: db.scan(ANSWER).polars()}
    return Outcome({"first epoch, s": spent}, result)


def loading(bench: Bench, task: Task, runs: int) -> Outcome:
    """A view loaded from the base while the memory of the processes is watched; once."""
    with bench.database("relaxed") as db:
        declare(db, task)
        for change in task.changes:
            write(db, change)
        began = time.perf_counter()
        with bench.pipeline(db) as process, Peak(process.pid) as peak:
            while not db.epochs.ready(ANSWER):
                peak.look()
                time.sleep(LOOK_SECONDS * 10)
                if time.perf_counter() - began > WAIT_SECONDS:
                    raise TimeoutError("the view was not loaded")
            db.wait(timeout=WAIT_SECONDS)
            spent = time.perf_counter() - began
            result = {ANSWER: db.scan(ANSWER).polars()}
    figures = {
        "base rows loaded/s": [task.operations / spent],
        "worker's own memory, MiB": [peak.own],
        "worker's memory with mapped files, MiB": [peak.resident],
    }
    return Outcome(figures, result)
