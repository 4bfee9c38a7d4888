"""What maintenance costs the client that writes: the same writes with and without a pipeline.

The pipeline is held to one core and the client to another. The client writes to two databases in
turns, one of them with a pipeline that is idle while the other is written: a minute's noise meets
both. Both are durable, a write is a batch of a hundred rows, and the published view is checked
after the last one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import polars as pl

from suite.bench import Bench, declare
from suite.contract import OURS, Experiment, NotMeasured, Outcome, System, Wrong
from suite.data import rows
from suite.task import ANSWER, Task, inserts
from viewkeep.database import Database

BATCH, GROUPS = 100, 1_000
ALONE = "viewkeep, no pipeline"
WAIT_SECONDS = 300.0


def writing(bench: Bench) -> list[Experiment]:
    measured = cache(partial(_measure, bench))
    systems: dict[str, System] = {
        name: lambda runs, name=name: measured(runs)[name] for name in (OURS, ALONE)
    }
    return [Experiment("client's writes beside maintenance", systems)]


def _measure(bench: Bench, runs: int) -> dict[str, Outcome]:
    frame = rows(200_000, GROUPS)
    task = Task(
        "writing",
        {"t": {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}},
        {ANSWER: "SELECT g, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY g"},
        lambda: inserts(t=frame),
    )
    batches = list(frame.iter_slices(BATCH))
    rates: dict[str, list[float]] = {OURS: [], ALONE: []}
    written = BATCH
    with (
        bench.database() as kept,
        bench.database() as alone,
        _on_a_core_of_its_own() as other,
        bench.pipeline(kept, cores=1, on={other}),
    ):
        for db in (kept, alone):
            declare(db, task)
            db.put("t", batches[0])
        bench.settle(kept)
        for _ in range(runs):
            rate, most = _write(kept, batches, bench.size.seconds)
            rates[OURS].append(rate)
            written = max(written, most)
            kept.wait(timeout=WAIT_SECONDS)
            rates[ALONE].append(_write(alone, batches, bench.size.seconds)[0])
        found = sum(row["n"] for row in kept.scan(ANSWER).rows())
        if found != written:
            raise Wrong(f"the view counts {found:,} rows of {written:,}")
    return {name: Outcome({"operations/s": found}) for name, found in rates.items()}


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
