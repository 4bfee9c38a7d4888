"""The tasks of the suite: their expected rows by DuckDB are those that the engine keeps."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from suite.bench import declare, read, write
from suite.data import draw, history
from suite.equality import difference
from suite.task import ANSWER, Change, Task
from suite.workloads.skew import skewed
from suite.workloads.start import base
from suite.workloads.vms import SUMS, joining, over_t, selections, summing
from suite.workloads.vote import counting, mixing
from suite.workloads.vote import joining as counts_joined

from viewkeep import Database

COUNT = 3_000
TASKS = {
    "count, Zipf": counting(COUNT, 100, True),
    "count, uniform": counting(COUNT, 100, False),
    "joined": counts_joined(COUNT, 100),
    "mix": mixing(COUNT, 100, 50),
    "q1": over_t(COUNT, "SELECT k, g FROM t"),
    "q2": over_t(COUNT, "SELECT k, g, x FROM t WHERE x < 200000", zipf=True),
    "q3": over_t(COUNT, SUMS.format(x="x"), 300, 10),
    "q3, inserts": summing(COUNT, 10),
    "q4": joining(COUNT, 30, changes=True),
    "q4, inserts": joining(COUNT, 30, changes=False),
    "selections": selections(COUNT, 5),
    "skew": skewed(COUNT, 50),
    "start": base(COUNT),
}


@pytest.mark.parametrize("name", TASKS)
def test_engine_keeps_what_duckdb_expects(
    name: str, db: Database, catch_up: Callable[[], object]
) -> None:
    task = TASKS[name]
    declare(db, task)
    for change in task.changes:
        write(db, change)
    catch_up()
    assert difference(read(db, task), task.expected()) is None
    assert sum(len(frame) for frame in task.expected().values())


def test_final_rows_are_the_last_puts_that_nothing_deleted() -> None:
    changes = [
        Change("t", pl.DataFrame({"k": [1, 2, 3, 1], "x": [1, 2, 3, 4]}), pl.Series([2])),
        Change("t", pl.DataFrame({"k": [2], "x": [9]}), pl.Series([3])),
        Change("other", pl.DataFrame({"k": [1], "x": [0]})),
    ]
    tables = {"t": {"k": "BIGINT", "x": "BIGINT"}, "other": {"k": "BIGINT", "x": "BIGINT"}}
    task = Task("final", tables, {ANSWER: "SELECT k, x FROM t"}, lambda: changes)
    assert sorted(task.final()["t"].rows()) == [(1, 4), (2, 9)]
    assert task.operations == 8


def test_rows_are_the_same_every_time() -> None:
    one, other = history("t", 50_000, 1_000, 10, True), history("t", 50_000, 1_000, 10, True)
    assert [change.operations for change in one] == [20_000, 20_000, 10_000]
    for left, right in zip(one, other, strict=True):
        assert left.puts is not None
        assert right.puts is not None
        assert left.puts.equals(right.puts)


def test_zipf_is_skewed_and_stays_in_range() -> None:
    import numpy as np

    drawn = draw(np.random.default_rng(1), 1_000, 10_000, zipf=True)
    counts = np.bincount(drawn, minlength=1_000)
    assert len(counts) == 1_000
    assert counts.max() > 20 * counts.mean()


def test_files_hold_the_final_rows(tmp_path) -> None:  # type: ignore[no-untyped-def]
    task = counting(COUNT, 100, True)
    source = task.files(tmp_path)["votes"]
    assert source.rows == COUNT
    parts = [pl.read_parquet(file) for file in source.files("parquet")]
    assert len(parts) == len(source.files("csv")) == 20
    assert pl.concat(parts).equals(task.final()["votes"])
