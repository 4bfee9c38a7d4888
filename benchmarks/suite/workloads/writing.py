"""What maintenance costs the client that writes: the same writes with and without a pipeline.

The pipeline is held to one core and the client to another, with and without a pipeline. Both
databases are durable, a write is a batch of a hundred rows, and the published view is checked after
the last one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import polars as pl

from suite.bench import Bench, declare
from suite.contract import OURS, Experiment, NotMeasured, Outcome, Wrong
from suite.data import rows
from suite.task import ANSWER, Task, inserts
from viewkeep.database import Database

BATCH, GROUPS = 100, 1_000
WAIT_SECONDS = 300.0


def writing(bench: Bench) -> list[Experiment]:
    systems = {
        OURS: partial(_measure, bench, True),
        "viewkeep, no pipeline": partial(_measure, bench, False),
    }
    return [Experiment("client's writes beside maintenance", systems)]


def _measure(bench: Bench, maintained: bool, runs: int) -> Outcome:
    frame = rows(200_000, GROUPS)
    task = Task(
        "writing",
        {"t": {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}},
        {ANSWER: "SELECT g, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY g"},
        lambda: inserts(t=frame),
    )
    batches = list(frame.iter_slices(BATCH))
    rates, written = list[float](), 0
    with bench.database() as db, _on_a_core_of_its_own() as other:
        declare(db, task)
        if not maintained:
            for _ in range(runs):
                rates.append(_write(db, batches, bench.size.seconds)[0])
            return Outcome({"operations/s": rates})
        with bench.pipeline(db, cores=1, on={other}):
            db.put("t", batches[0])
            bench.settle(db)
            for _ in range(runs):
                rate, most = _write(db, batches, bench.size.seconds)
                rates.append(rate)
                written = max(written, most)
            db.wait(timeout=WAIT_SECONDS)
            found = sum(row["n"] for row in db.scan(ANSWER).rows())
            if found != written:
                raise Wrong(f"the view counts {found:,} rows of {written:,}")
    return Outcome({"operations/s": rates})


@contextmanager
def _on_a_core_of_its_own() -> Iterator[int]:
    """Holds this process to one core while the block runs; gives another one."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        raise NotMeasured("the client and the pipeline need a core each")
    mine, other, *_ = sorted(allowed)
    os.sched_setaffinity(0, {mine})
    try:
        yield other
    finally:
        os.sched_setaffinity(0, allowed)


def _write(db: Database, batches: list[pl.DataFrame], seconds: float) -> tuple[float, int]:
    """Write batch after batch, from the first again; the rate, and how many rows there are."""
    began, number = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        db.put("t", batches[number % len(batches)])
        number += 1
    spent = time.perf_counter() - began
    return number * BATCH / spent, min(number, len(batches)) * BATCH
