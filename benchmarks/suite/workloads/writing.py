"""What maintenance costs the client that writes: the same writes with and without a pipeline.

The pipeline has one core and the client the other. Both databases are durable, a write is a batch
of a hundred rows, and the published view is checked after the last one.
"""

from __future__ import annotations

import time
from functools import partial

import polars as pl

from suite.bench import Bench, declare
from suite.contract import OURS, Experiment, Outcome, Wrong
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
    with bench.database() as db:
        declare(db, task)
        if not maintained:
            for _ in range(runs):
                rates.append(_write(db, batches, bench.size.seconds)[0])
            return Outcome({"operations/s": rates})
        with bench.pipeline(db, cores=1):
            db.put("t", batches[0])
            db.wait(timeout=WAIT_SECONDS)
            for _ in range(runs):
                rate, most = _write(db, batches, bench.size.seconds)
                rates.append(rate)
                written = max(written, most)
            db.wait(timeout=WAIT_SECONDS)
            found = sum(row["n"] for row in db.scan(ANSWER).rows())
            if found != written:
                raise Wrong(f"the view counts {found:,} rows of {written:,}")
    return Outcome({"operations/s": rates})


def _write(db: Database, batches: list[pl.DataFrame], seconds: float) -> tuple[float, int]:
    """Write batch after batch, from the first again; the rate, and how many rows there are."""
    began, number = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        db.put("t", batches[number % len(batches)])
        number += 1
    spent = time.perf_counter() - began
    return number * BATCH / spent, min(number, len(batches)) * BATCH
