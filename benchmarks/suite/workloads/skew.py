"""One row updated over and over: the versioned-view paper's figure 8."""

from __future__ import annotations

import numpy as np
import polars as pl

from suite.bench import Bench
from suite.contract import Experiment, Workload
from suite.data import rows
from suite.task import ANSWER, Change, Task, inserts

ROWS, GROUPS = 10_000, 100
SQL = "SELECT g, SUM(x) AS total, MAX(x) AS high, COUNT(*) AS n FROM t GROUP BY g"


class Skew(Workload):
    """Does throughput stay flat when all updates meet one row?"""

    name = "skew"

    def experiments(self, bench: Bench) -> list[Experiment]:
        return [
            bench.experiment(
                "updates of one row",
                skewed(bench.size.operations, share),
                (),
                ("% of the updates", float(share)),
            )
            for share in bench.size.pick((0, 50, 100), (0, 100), (0, 100))
        ]


def skewed(count: int, share: int) -> Task:
    """Updates of which `share` percent are of row 0."""

    def made() -> list[Change]:
        random = np.random.default_rng(5)
        keys = random.integers(0, ROWS, count)
        keys[random.random(count) < share / 100] = 0
        drawn = {"g": keys % GROUPS, "x": random.integers(0, 1_000_000, count)}
        updates = pl.DataFrame({"k": keys, **drawn})
        return inserts(t=pl.concat([rows(ROWS, GROUPS), updates]))

    return Task("skew", {"t": {"k": "BIGINT", "g": "BIGINT", "x": "BIGINT"}}, {ANSWER: SQL}, made)
