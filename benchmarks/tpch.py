"""What it takes to keep each TPC-H query: levels, state, and what 100 and 1,000 changes cost.

One view at a time, epochs in this process without Spark, so the figure is the engine's. The changes
are seeded refreshes of lineitem, orders, customer, part and partsupp, all of which are written; a
view pays for those it reads. Beside it the same query recomputed once by DuckDB, with one thread,
and with `--spark` by Spark SQL over cached tables on two cores. Ours and DuckDB's figures are
processor time, which a busy machine changes little; Spark's is the clock's. Each view is compared
with DuckDB's answer before its figures count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the tests' tables, queries and refreshes

import duckdb
from pyspark.sql import SparkSession
from tests.slt.oracle import difference
from tests.tpch.refresh import Refresh
from tests.tpch.schema import (
    QUERIES,
    TABLES,
    create_tables,
    create_view,
    generate,
    load,
    load_duckdb,
)
from tests.tpch.test_tpch import answer

import viewkeep
from viewkeep.database import Database
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.spark.session import session

__all__ = [
    "QUERIES",
    "SIZES",
    "Figures",
    "Refresh",
    "create_tables",
    "generate",
    "load",
    "load_duckdb",
    "measure",
    "spark_seconds",
]  # what the suite takes from here, some of it the tests'


SIZES = (100, 1_000)  # changes in an epoch
SURPLUS = 4 / 3  # a refresh writes about a third more rows than it is asked for


def processor(step: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    began = time.process_time()
    step()
    return time.process_time() - began


def timed(step: Callable[[], object]) -> float:
    """Seconds of the clock."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Figures:
    """What keeping one query took; processor seconds, a value for each batch."""

    levels: int
    state: int
    loading: float
    changes: dict[int, list[float]]  # by the number of changes in an epoch
    recomputing: list[float]  # once, by DuckDB


def measure(db: Database, name: str, refresh: Refresh, batches: int) -> Figures:
    """Create a view, refresh its tables by batches of each size in turns, and drop it."""
    spent: dict[int, list[float]] = {size: [] for size in SIZES}
    recomputed = list[float]()
    create_view(db, name)
    loading = processor(lambda: catch_up(db.store))
    for number in range(batches + 1):
        for size, seconds in spent.items():
            changes = refresh.apply(db, refresh.batch(round(size / SURPLUS)))
            each = processor(lambda: catch_up(db.store))
            if number:  # the first batch warms up
                seconds.append(each * size / changes)
        again = processor(lambda: answer(refresh.model, name))
        if number:
            recomputed.append(again)
    wrong = difference(db.scan(name).tuples(), answer(refresh.model, name))
    assert not wrong, f"{name}: {wrong}"
    state = sum(operator.bytes for operator in db.status().operators)
    levels = db.catalog.current().program.levels
    db.sql(f"DROP VIEW {name}")
    catch_up(db.store)
    housekeep(db.store, budget=1_000_000)
    return Figures(levels, state, loading, spent, recomputed)


def spark_seconds(data: Path, spark: SparkSession) -> dict[str, list[float]]:
    """Seconds that Spark SQL takes for each query over tables in its cache, three times."""
    for table in TABLES:
        frame = spark.read.parquet(str(data / f"{table}.parquet")).cache()
        frame.count()
        frame.createOrReplaceTempView(table)
    found = {}
    for name, text in QUERIES.items():
        run = partial(_collect, spark, text)
        found[name] = [timed(run) for _ in range(3)]
    return found


def _collect(spark: SparkSession, text: str) -> None:
    spark.sql(text).collect()


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="recompute by Spark SQL too")
    parser.add_argument("queries", nargs="*", default=list(QUERIES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="viewkeep-tpch-", dir=_memory()) as folder:
        data = generate(Path(folder), arguments.scale)
        spark = {}
        if arguments.spark:
            own = session("local[2]")
            spark = spark_seconds(data, own)
            own.stop()
        model = load_duckdb(data)
        refresh = Refresh(model, seed=7)
        print(f"scale {arguments.scale:g}, DuckDB {duckdb.__version__}\n")
        heads = ["query", "levels", "state", "loading, s"]
        heads += [*(f"{size:,} changes, ms" for size in SIZES), "DuckDB, ms"]
        heads += ["Spark SQL, s"] if spark else []
        print(f"| {' | '.join(heads)} |")
        print(f"|---{'|---:' * (len(heads) - 1)}|", flush=True)
        with viewkeep.make(Path(folder) / "tpch.vk", durability="relaxed") as db:
            create_tables(db)
            load(db, data)
            catch_up(db.store)
            for name in arguments.queries:
                made = measure(db, name, refresh, arguments.batches)
                cells = [name.upper(), str(made.levels), _size(made.state), f"{made.loading:.1f}"]
                spent = [*made.changes.values(), made.recomputing]
                cells += [f"{1_000 * statistics.median(seconds):.1f}" for seconds in spent]
                cells += [f"{min(spark[name]):.2f}"] if spark else []
                print(f"| {' | '.join(cells)} |", flush=True)
        model.close()


if __name__ == "__main__":
    main()
