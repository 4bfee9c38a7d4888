"""What the benchmarks share: a database, a Spark session that is up, and how figures print."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import viewkeep
from viewkeep.database import Database
from viewkeep.spark.session import session

VOTES = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)"
SCORES = "CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story"


@contextmanager
def database(durability: str = "full") -> Iterator[Database]:
    """An empty database in a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="viewkeep-bench-") as folder,
        viewkeep.open(Path(folder) / "bench.vk", durability=durability) as db,
    ):
        yield db


def warm(cores: int = 2) -> SparkSession:
    """A Spark session whose Python workers run: starting them is no part of the figures."""
    spark = session(f"local[{cores}]")
    with database("relaxed") as db:
        db.sql(VOTES)
        db.sql(SCORES)
        db.put("votes", [{"id": n, "story": n % 7} for n in range(100)])
        with db.pipeline(spark=spark) as pipeline:
            for n in range(100, 110):
                db.put("votes", {"id": n, "story": 1})
                pipeline.wait(timeout=60)
    return spark


def show(title: str, figures: dict[str, float | int | str]) -> None:
    """A small table, then the same as one line of JSON."""
    table = Table(title=title, show_header=False)
    for name, value in figures.items():
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        table.add_row(name, shown if not isinstance(value, str) else value, style=None)
    Console().print(table)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(json.dumps({"benchmark": title, "machine": machine, **figures}))
