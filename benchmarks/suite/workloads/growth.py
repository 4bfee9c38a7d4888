"""How the cost of an update grows with the tables and with its group, in one process without Spark.

`benchmarks/growth.py` and `benchmarks/groups.py` are the same at their own sizes.
"""

from __future__ import annotations

from functools import partial

import groups
import growth

from suite.bench import Bench
from suite.contract import OURS, Experiment, Outcome, System, Workload, Wrong
from viewkeep.database import Database


class Growth(Workload):
    """Does an update cost more when the tables, or its group, are larger?"""

    name = "growth"

    def experiments(self, bench: Bench) -> list[Experiment]:
        shop = Shops(bench)
        found = [
            Experiment(
                "three-way join with an aggregate",
                {OURS: partial(shop.updates, rows)},
                axis=("rows", float(rows)),
            )
            for rows in bench.size.pick((10_000, 100_000, 1_000_000), (10_000, 100_000), (5_000,))
        ]
        large = bench.size.pick(1_000_000, 100_000, 1_000)
        updates = bench.size.pick(15, 9, 3)
        for title, select in groups.VIEWS.items():
            if bench.size.name == "full" or title == "MIN, MAX":
                found += in_groups(bench, title, select, large, updates)
        return found


class Shops:
    """One database that grows from one experiment to the next."""

    def __init__(self, bench: Bench):
        self.bench = bench
        self.shop: growth.Shop | None = None

    def updates(self, rows: int, runs: int) -> Outcome:
        if self.shop is None:
            db: Database = self.bench.keep(self.bench.database("relaxed"))
            for statement in (*growth.TABLES, growth.VIEW):
                db.sql(statement)
            self.shop = growth.Shop(db)
        self.shop.grow(rows)
        spent = [growth.timed(self.shop) for _ in range(growth.ROUNDS)]
        if not self.shop.right():
            raise Wrong(f"at {rows:,} rows the view differs from DuckDB's answer")
        return Outcome({"1,000 updates, s": spent})


def in_groups(bench: Bench, title: str, select: str, large: int, updates: int) -> list[Experiment]:
    """One update in a group of ten rows and in a large one, which take turns."""
    held: dict[int, list[float]] = {}

    def run(group: int, runs: int) -> Outcome:
        if not held:
            with bench.database("relaxed") as db:
                db.sql(groups.TABLE)
                db.sql(f"CREATE VIEW v AS SELECT g, {select} FROM items GROUP BY g")
                held.update(groups.samples(db, large, updates))
        return Outcome({"one update, ms": [seconds * 1e3 for seconds in held[group]]})

    systems: list[tuple[int, System]] = [(0, partial(run, 0)), (1, partial(run, 1))]
    return [
        Experiment(f"{title} in a group", {OURS: system}, axis=("rows", float(rows)))
        for (_, system), rows in zip(systems, (groups.SMALL, large), strict=True)
    ]
