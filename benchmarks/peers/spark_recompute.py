"""Full recomputation by Spark SQL, as open Declarative Pipelines do for materialized views.

The query runs over all files and its rows replace those in LMDB. Its rate is that of one refresh
after all rows: a refresh costs the same after a single row more, which `refresh, s` says.

What it does not do: anything incremental.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.contract import main
from peers.spark_lmdb import SparkPeer


class SparkRecompute(SparkPeer):
    """The query as a batch."""

    def prepare(self) -> None:
        super().prepare()
        self.run(-1)  # the first query loads classes

    def run(self, number: int) -> dict[str, float]:
        began = time.perf_counter()
        for name, table in self.job.tables.items():
            frame = self.spark.read.schema(self.schema(name)).parquet(
                str(Path(table.folder, "parquet"))
            )
            frame.createOrReplaceTempView(name)
        rows = self.spark.sql(self.job.sql).select(*self.job.columns).toArrow()
        self.target.empty()
        self.target.put(rows)
        spent = time.perf_counter() - began
        return {"operations/s": self.job.rows / spent, "refresh, s": spent}

    def result(self) -> Iterator[list[Any]]:
        return self.target.rows(self.job.columns)


if __name__ == "__main__":
    main(SparkRecompute)
