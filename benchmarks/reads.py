"""How fast rows of a view are read in this process: one by one, in batches, and by SQL.

A view of a count by story, kept by the engine, is read with random keys, of which some are not
there. Times of single reads are by the clock, in percentiles; rates are given by the clock and by
the processor time of this process, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import count

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from shared.measure import database

from viewkeep.database import Database
from viewkeep.engine.epochs import Limits
from viewkeep.engine.local import catch_up

TABLES = """
    CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT);
    CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
"""
WRITE_ROWS = 50_000
MISSING = 1.02  # of the keys asked for, to those there
POINT = "SELECT votes FROM scores WHERE story = "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the view")
    parser.add_argument("--reads", type=int, default=100_000, help="of each kind, in rows")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    with database("relaxed") as db:
        fill(db, arguments.rows)
        keys = np.random.default_rng(1).integers(0, int(arguments.rows * MISSING), arguments.reads)
        figures = measure(db, keys.tolist())
    show(figures)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


def fill(db: Database, rows: int) -> None:
    """A view of `rows` rows."""
    db.sql(TABLES)
    for start in range(0, rows, WRITE_ROWS):
        part = np.arange(start, min(start + WRITE_ROWS, rows))
        db.put("votes", pl.DataFrame({"id": part, "story": part}))
    catch_up(db.store, Limits(operations=250_000))


def measure(db: Database, keys: list[int]) -> dict[str, dict[str, float]]:
    """Rows per second, by the clock and by processor time, and microseconds of one call."""
    prepared = db.prepare(f"{POINT}?")
    single: dict[str, Callable[[int], object]] = {
        "get": lambda key: db.get("scores", key),
        "sql, constant in the text": lambda key: db.sql(f"{POINT}{key}"),
        "sql, prepared": lambda key: prepared.run(key),
    }
    figures = {name: _one_by_one(read, keys) for name, read in single.items()}
    for size in (100, 1_000, 10_000):
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        figures[f"get_many, {size:,} keys"] = _batches(
            lambda batch: db.get_many("scores", batch), batches
        )
    return figures


def _one_by_one(read: Callable[[int], object], keys: list[int]) -> dict[str, float]:
    read(keys[0])
    times = np.empty(len(keys))
    clock, used, place = time.perf_counter, time.process_time(), count()
    begun = clock()
    for key in keys:
        start = clock()
        read(key)
        times[next(place)] = clock() - start
    return {**_rates(len(keys), begun, used), **_percentiles(times)}


def _batches(read: Callable[[list[int]], object], batches: list[list[int]]) -> dict[str, float]:
    read(batches[0])
    times, clock, used = [], time.perf_counter, time.process_time()
    begun = clock()
    for batch in batches:
        start = clock()
        read(batch)
        times.append(clock() - start)
    rows = sum(map(len, batches))
    return {**_rates(rows, begun, used), **_percentiles(np.array(times))}


def _rates(rows: int, begun: float, used: float) -> dict[str, float]:
    return {
        "rows per second": rows / (time.perf_counter() - begun),
        "rows per processor second": rows / (time.process_time() - used),
    }


def _percentiles(times: np.ndarray) -> dict[str, float]:
    return {f"p{rank}": float(np.percentile(times, rank)) * 1e6 for rank in (50, 99)}


def show(figures: dict[str, dict[str, float]]) -> None:
    table = Table("read", "rows/s", "rows/s of processor time", "p50 us", "p99 us")
    for name, found in figures.items():
        rates = [found["rows per second"], found["rows per processor second"]]
        ranks = [found["p50"], found["p99"]]
        table.add_row(name, *(f"{x:,.0f}" for x in rates), *(f"{x:,.1f}" for x in ranks))
    Console().print(table)


if __name__ == "__main__":
    main()
