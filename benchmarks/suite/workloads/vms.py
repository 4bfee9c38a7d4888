"""The queries of the view maintenance papers: projection, selection, aggregates, join, many views.

q1 projects, q2 selects 20, 50 or 80 %, q3 aggregates with some ratio of base rows to groups, q4
joins with some number of join keys; over inserts, updates and deletions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from suite.bench import CORES, Bench
from suite.contract import OURS, Experiment, Outcome, System, Workload
from suite.data import MOST, history, rows
from suite.task import ANSWER, Change, Task, inserts
from suite.workloads.reading import reading
from suite.workloads.vote import counting
from suite.workloads.writing import writing

T = {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}
SUMS = (
    "SELECT g, SUM(x) AS total, MIN(x) AS low, MAX(x) AS high, AVG({x}) AS mean, COUNT(*) AS n "
    "FROM t GROUP BY g"
)
JOIN = "SELECT r.k, r.x, s.y FROM r JOIN s ON r.fk = s.fk"
VIEWS = 100


class Vms(Workload):
    """What does each kind of view cost, and how does it grow with views, tables and cores?"""

    name = "vms"

    def experiments(self, bench: Bench) -> list[Experiment]:
        size = bench.size
        count = size.operations
        found = [bench.experiment("q1 projection", over_t(count, "SELECT k, g FROM t"))]
        for percent in size.pick((20, 50, 80), (50,), (50,)):
            sql = f"SELECT k, g, x FROM t WHERE x < {MOST * percent // 100}"
            axis = ("% selected", float(percent))
            found.append(bench.experiment("q2 selection", over_t(count, sql), (), axis))
        found += self._aggregates(bench)
        found += self._joins(bench)
        found += self._larger(bench)
        found += self._selections(bench)
        found += many_views(bench)
        found += writing(bench)
        found += reading(bench)
        votes = count * size.pick(8, 5, 1)  # enough that starting the pipeline does not count
        task = counting(votes, size.pick(50_000, 10_000, 100), True)
        for cores in range(1, CORES + 1):
            systems = {OURS: bench.ours(task, cores)}
            axis = ("cores", float(cores))
            found.append(Experiment("count by story", systems, task.expected, axis))
        return found

    def _aggregates(self, bench: Bench) -> list[Experiment]:
        count, found = bench.size.operations, list[Experiment]()
        for title, keys, groups, zipf in (
            ("10k:1k, uniform", count // 100, count // 1_000, False),
            ("1M:150k, uniform", count, count * 15 // 100, False),
            ("1M:1k, uniform", count, count // 1_000, False),
            ("1M:1k, Zipf", count, count // 1_000, True),
        ):
            task = over_t(count, SUMS.format(x="x"), keys, max(1, groups), zipf)
            found.append(bench.experiment(f"q3 aggregates {title}", task, ()))
        task = summing(count, max(1, count // 1_000))
        peers = bench.size.pick(("flink-rocksdb", "pathway"), (), ())
        found.append(bench.experiment("q3 aggregates 1M:1k, inserts", task, peers))
        return found

    def _joins(self, bench: Bench) -> list[Experiment]:
        count, found = bench.size.operations, list[Experiment]()
        for keys in (count // 1_000, count // 100, count // 10):
            axis = ("join keys", float(keys))
            task = joining(count, keys, changes=True)
            found.append(bench.experiment("q4 join", task, (), axis))
        peers = bench.size.pick(("flink-rocksdb", "pathway"), ("flink-rocksdb",), ())
        task = joining(count, count // 100, changes=False)
        found.append(bench.experiment("q4 join, inserts", task, peers))
        return found

    def _larger(self, bench: Bench) -> list[Experiment]:
        """The same aggregate over more operations."""
        found = []
        for times in bench.size.pick((1, 8), (), (1,)):
            count = bench.size.operations * times
            task = over_t(count, SUMS.format(x="x"), count, max(1, count // 1_000))
            axis = ("operations", float(count))
            found.append(bench.experiment("q3 aggregates, longer logs", task, (), axis))
        return found

    def _selections(self, bench: Bench) -> list[Experiment]:
        found = []
        for tables in bench.size.pick((1, 5, 20), (1, 20), (1, 5)):
            task = selections(bench.size.operations // 10, tables)
            systems = {OURS: partial(view_updates, bench.ours(task), task)}
            axis = ("tables", float(tables))
            found.append(Experiment(f"{VIEWS} selection views", systems, task.expected, axis))
        return found


def over_t(
    count: int, sql: str, keys: int | None = None, groups: int = 1_000, zipf: bool = False
) -> Task:
    """A view of one table that is written, changed and deleted from."""
    return Task(
        "changes", {"t": T}, {ANSWER: sql}, lambda: history("t", count, keys or count, groups, zipf)
    )


def summing(count: int, groups: int) -> Task:
    """q3 over inserts alone, as all systems can take it."""
    sql = SUMS.format(x="CAST(x AS DOUBLE)")
    return Task("sums", {"t": T}, {ANSWER: sql}, lambda: inserts(t=rows(count, groups)))


def joining(count: int, keys: int, changes: bool) -> Task:
    """q4: rows of r find their one row of s; r is changed and deleted from, or only inserted."""

    def made() -> list[Change]:
        values = np.random.default_rng(4).integers(0, MOST, keys)
        s = pl.DataFrame({"fk": np.arange(keys), "y": values})
        of_r = history("r", count, count, keys) if changes else inserts(r=rows(count, keys))
        named = [
            replace(one, puts=one.puts.rename({"g": "fk"})) for one in of_r if one.puts is not None
        ]
        return [*inserts(s=s), *named]

    tables = {
        "r": {"k": "BIGINT", "fk": "BIGINT", "x": "BIGINT"},
        "s": {"fk": "BIGINT", "y": "BIGINT"},
    }
    return Task("changed join" if changes else "join", tables, {ANSWER: JOIN}, made)


def selections(count: int, tables: int) -> Task:
    """Selections that keep half of their table's rows, spread evenly over some tables."""
    names = [f"t{number}" for number in range(tables)]
    views = {}
    for number in range(VIEWS):
        low = number * MOST // (2 * VIEWS)
        where = f"x >= {low} AND x < {low + MOST // 2}"
        views[f"v{number}"] = f"SELECT k, g, x FROM {names[number % tables]} WHERE {where}"

    def made() -> list[Change]:
        frames = {name: rows(count // tables, 1_000, seed) for seed, name in enumerate(names)}
        return inserts(**frames)

    return Task("selections", dict.fromkeys(names, T), views, made, digest=True)


def view_updates(system: System, task: Task, runs: int) -> Outcome:
    """The same outcome with the rows written to views per second."""
    outcome = system(runs)
    assert outcome.result is not None
    written = sum(frame["rows"][0] for frame in outcome.result.values())
    each = written / task.operations
    updates = [rate * each for rate in outcome.samples["operations/s"]]
    return replace(outcome, samples={"view updates/s": updates, **outcome.samples})


def many_views(bench: Bench) -> list[Experiment]:
    """Selections and aggregations over 20 tables; one epoch with few changes, without Spark."""

    def run(count: int, runs: int) -> Outcome:
        import many_views

        _, over, shapes = many_views.SIZES["12,800 selections and aggregations"]
        with bench.database("relaxed") as db:
            found = many_views.measure(db, count, over, shapes)
        return Outcome({name: values for name, values in found.items() if name.endswith(", s")})

    return [
        Experiment("many views", {OURS: partial(run, count)}, axis=("views", float(count)))
        for count in bench.size.pick((100, 1_600, 12_800), (100, 400), (20,))
    ]
