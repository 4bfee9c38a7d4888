"""An hour, or as long as asked, at a steady load: memory, disk and lag must not grow."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from suite.bench import Bench, declare
from suite.contract import OURS, Experiment, Outcome, Workload, Wrong
from suite.processes import memory, tree
from suite.task import ANSWER, Task
from viewkeep.database import Database

LOAD, BATCH, KEYS, GROUPS = 5_000, 100, 100_000, 1_000
LOOKS, GROWTH, ENOUGH_SECONDS = 120, 1.25, 600.0
WAIT_SECONDS = 300.0
SQL = "SELECT g, SUM(x) AS total, MAX(x) AS high, COUNT(*) AS n FROM t GROUP BY g"


class Soak(Workload):
    """Does anything grow that should not?"""

    name = "soak"

    def experiments(self, bench: Bench) -> list[Experiment]:
        title = f"{LOAD:,} operations/s for {bench.size.soak:,.0f} s"
        return [Experiment(title, {OURS: partial(soak, bench)})]


def soak(bench: Bench, runs: int) -> Outcome:
    """Inserts, updates and deletions over a bounded set of keys; one look after another."""
    tables = {"t": {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}}
    task = Task("soak", tables, {ANSWER: SQL}, list)
    samples: dict[str, list[float]] = {"memory, MiB": [], "disk, MiB": [], "lag, operations": []}
    with bench.database() as db:
        declare(db, task)
        with bench.pipeline(db) as process:
            random, number, looked = np.random.default_rng(6), 0, 0.0
            _write(db, random)
            db.wait(timeout=WAIT_SECONDS)  # it runs then
            began = time.perf_counter()
            while (now := time.perf_counter() - began) < bench.size.soak:
                _write(db, random)
                number += 1
                if now - looked >= bench.size.soak / LOOKS:
                    looked = now
                    samples["memory, MiB"].append(_memory(process.pid))
                    samples["disk, MiB"].append(_disk(db))
                    samples["lag, operations"].append(db.status().lag)
                left = began + number * BATCH / LOAD - time.perf_counter()
                if left > 0:
                    time.sleep(left)
            db.wait(timeout=WAIT_SECONDS)
        _check(db)
    if bench.size.soak >= ENOUGH_SECONDS:
        _flat(samples)
    return Outcome(samples)


def _write(db: Database, random: np.random.Generator) -> None:
    keys = random.integers(0, KEYS, BATCH)
    puts = {"k": keys[10:], "g": keys[10:] % GROUPS, "x": random.integers(0, 1_000_000, BATCH - 10)}
    db.put("t", pl.DataFrame(puts))
    db.delete_many("t", keys[:10].tolist())


def _memory(pid: int) -> float:
    return sum(memory(one).get("RssAnon", 0.0) for one in tree(pid))


def _disk(db: Database) -> float:
    folder = Path(db.url.partition(":")[2])
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file()) / 2**20


def _check(db: Database) -> None:
    """The view against the sums over the table itself."""
    table = db.scan("t").polars()
    if sum(row["n"] for row in db.scan(ANSWER).rows()) != len(table):
        raise Wrong("the view does not count the rows of the table")
    if sum(row["total"] for row in db.scan(ANSWER).rows()) != table["x"].sum():
        raise Wrong("the view does not sum the rows of the table")


def _flat(samples: dict[str, list[float]]) -> None:
    """The last quarter against the second one."""
    for name in ("memory, MiB", "disk, MiB"):
        values = samples[name]
        quarter = len(values) // 4
        before = statistics.median(values[quarter : 2 * quarter])
        after = statistics.median(values[-quarter:])
        if after > GROWTH * before:
            raise Wrong(f"{name} grew from {before:,.0f} to {after:,.0f}")
