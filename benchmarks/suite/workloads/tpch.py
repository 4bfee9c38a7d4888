"""TPC-H: the 22 views under refresh batches, beside recomputing each query by DuckDB and Spark SQL.

The views are kept one at a time in this process, without Spark, and each is compared with DuckDB's
answer before its figures count (`benchmarks/tpch.py`).
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path

import tpch
import viewkeep
from suite.bench import Bench
from suite.contract import OURS, Experiment, NotMeasured, Outcome, System, Workload
from viewkeep.engine.local import catch_up

FIGURES = {100: "refresh of 100 changes, s", 1_000: "refresh, s"}
assert tuple(FIGURES) == tpch.SIZES
DUCKDB, SPARK = "DuckDB, recomputed", "Spark SQL, recomputed"


class Tpch(Workload):
    """What do 100 and 1,000 changes cost each of the 22 queries, and what recomputing it?"""

    name = "tpch"

    def experiments(self, bench: Bench) -> list[Experiment]:
        site = Site(bench)
        queries = bench.size.pick(list(tpch.QUERIES), ["q01", "q03", "q06", "q18"], ["q06"])
        found = []
        for query in queries:
            systems: dict[str, System] = {
                OURS: partial(site.kept, query),
                DUCKDB: partial(site.duckdb, query),
            }
            if bench.size.name == "full":
                systems[SPARK] = partial(site.spark, query)
            found.append(Experiment(query.upper(), systems))
        return found


class Site:
    """The tables, loaded once, and what was measured for each query."""

    def __init__(self, bench: Bench):
        self.bench = bench
        self.measured: dict[str, tpch.Figures] = {}

    @cached_property
    def data(self) -> Path:
        folder = self.bench.place("tpch")
        folder.mkdir()
        return tpch.generate(folder, self.bench.size.pick(0.1, 0.01, 0.01))

    @cached_property
    def loaded(self) -> tuple[viewkeep.Database, tpch.Refresh]:
        refresh = tpch.Refresh(tpch.load_duckdb(self.data), seed=7)
        db = self.bench.keep(self.bench.database("relaxed"))
        tpch.create_tables(db)
        tpch.load(db, self.data)
        catch_up(db.store)
        return db, refresh

    @cached_property
    def recomputed(self) -> dict[str, list[float]]:
        return tpch.spark_seconds(self.data, self.bench.spark())

    def kept(self, query: str, runs: int) -> Outcome:
        db, refresh = self.loaded
        batches = runs * self.bench.size.pick(1, 5, 1)  # those of the small tables take 50 ms
        made = tpch.measure(db, query, refresh, batches)
        self.measured[query] = made
        refreshes = {FIGURES[size]: seconds for size, seconds in made.changes.items()}
        others = {"loading, s": [made.loading], "state, MiB": [made.state / 2**20]}
        return Outcome({**refreshes, **others})

    def duckdb(self, query: str, runs: int) -> Outcome:
        if query not in self.measured:  # it is measured between the batches of the view
            raise NotMeasured("the view it is compared with failed")
        seconds = self.measured[query].recomputing
        return Outcome(dict.fromkeys(FIGURES.values(), seconds))

    def spark(self, query: str, runs: int) -> Outcome:
        return Outcome(dict.fromkeys(FIGURES.values(), self.recomputed[query]))
