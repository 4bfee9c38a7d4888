"""Reading one group: a view by key, the client's own scan of the table, and a scan by Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial

import polars as pl

from suite.bench import Bench, declare, write
from suite.contract import OURS, Experiment, Outcome, Result
from suite.data import rows
from suite.task import ANSWER, Task, inserts
from viewkeep.engine.local import catch_up
from viewkeep.spark.datasource import register

GROUPS, GROUP, READS = 100, 7, 100
SQL = "SELECT g, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY g"
SCANS = ("client's scan", "Spark's scan")


def reading(bench: Bench) -> list[Experiment]:
    """The same group read in three ways while the table grows."""
    found = []
    for count in bench.size.pick((10_000, 100_000, 1_000_000), (10_000, 100_000), (1_000,)):
        measured = cache(partial(_measure, bench, count))
        systems = {
            name: lambda runs, name=name, measured=measured: measured(runs)[name]
            for name in (OURS, *SCANS)
        }
        task = _task(count)
        expected = partial(_one_group, task)
        found.append(Experiment("reading one group", systems, expected, ("rows", float(count))))
    return found


def _task(count: int) -> Task:
    tables = {"t": {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}}
    return Task("reading", tables, {ANSWER: SQL}, lambda: inserts(t=rows(count, GROUPS)))


def _one_group(task: Task) -> Result:
    return {ANSWER: task.expected()[ANSWER].filter(pl.col("g") == GROUP)}


def _measure(bench: Bench, count: int, runs: int) -> dict[str, Outcome]:
    task, spark = _task(count), bench.spark()
    where = SQL.replace("GROUP", f"WHERE g = {GROUP} GROUP")
    with bench.database("relaxed") as db:
        declare(db, task)
        for change in task.changes:
            write(db, change)
        catch_up(db.store)
        register(spark)

        def by_view() -> pl.DataFrame:
            for _ in range(READS):
                row = db.get(ANSWER, GROUP)
            return pl.DataFrame([row])

        def by_client() -> pl.DataFrame:
            table = db.scan("t").polars()
            return (
                table.filter(pl.col("g") == GROUP)
                .group_by("g")
                .agg(total=pl.col("x").sum(), n=pl.len())
            )

        def by_spark() -> pl.DataFrame:
            source = spark.read.format("viewkeep").option("url", db.url).option("table", "t").load()
            source.createOrReplaceTempView("t")
            return pl.DataFrame(spark.sql(where).toArrow())

        return {
            OURS: _timed(by_view, runs, READS),
            SCANS[0]: _timed(by_client, runs, 1),
            SCANS[1]: _timed(by_spark, runs, 1),
        }


def _timed(read: Callable[[], pl.DataFrame], runs: int, times: int) -> Outcome:
    found, spent = read(), list[float]()
    for _ in range(runs):
        began = time.perf_counter()
        found = read()
        spent.append((time.perf_counter() - began) / times * 1e3)
    return Outcome({"read, ms": spent}, {ANSWER: found})
