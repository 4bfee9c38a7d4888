"""What an update costs in a group of ten rows, and in one of a million.

One table with both groups, and a view for each kind of aggregate. A row of a group is changed,
put in or deleted, and the epoch that brings the view up to date is timed, in this process without
Spark; the groups take turns. The figures are medians, and the ratio is what should not grow.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from shared.measure import database

from viewkeep.database import Database
from viewkeep.engine.epochs import Limits
from viewkeep.engine.local import catch_up

TABLE = "CREATE TABLE items (id BIGINT PRIMARY KEY, g INT, x BIGINT, y DOUBLE)"
VIEWS = {
    "COUNT, SUM, AVG": "COUNT(*) AS n, SUM(x) AS s, AVG(y) AS a",
    "MIN, MAX": "MIN(x) AS low, MAX(x) AS high",
    "DISTINCT": "COUNT(DISTINCT x) AS n, SUM(DISTINCT x) AS s",
    "STDDEV, CORR": "STDDEV(y) AS d, CORR(x, y) AS c",
    "MEDIAN, PERCENTILE": "MEDIAN(x) AS m, PERCENTILE(y, 0.99) AS p",
    "MIN_BY, MAX_BY": "MIN_BY(id, y) AS first, MAX_BY(id, y) AS last",
    "BOOL_AND, BIT_XOR": "BOOL_AND(x > 0) AS b, BIT_XOR(x) AS z",
}
TOP = (
    "CREATE VIEW v AS SELECT id, g, x FROM items "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY x DESC, id) <= 3"
)
SMALL, WRITE_ROWS = 10, 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the large group")
    parser.add_argument("--updates", type=int, default=30, help="of each group")
    arguments = parser.parse_args()
    console = Console()
    table = Table(
        "aggregates", f"ms, group of {SMALL}", f"ms, group of {arguments.rows:,}", "ratio"
    )
    for title, select in {**VIEWS, "first 3 of each": ""}.items():
        text = f"CREATE VIEW v AS SELECT g, {select} FROM items GROUP BY g" if select else TOP
        with database("relaxed") as db:
            db.sql(TABLE)
            db.sql(text)
            spent = samples(db, arguments.rows, arguments.updates)
        small, large = statistics.median(spent[0]), statistics.median(spent[1])
        table.add_row(title, f"{small * 1e3:.1f}", f"{large * 1e3:.1f}", f"{large / small:.2f}")
        console.print(f"{title}: {large / small:.2f}")
    console.print(table)


def samples(db: Database, rows: int, updates: int) -> dict[int, list[float]]:
    """Seconds of each update in the small group, 0, and in the large one, 1."""
    random = np.random.default_rng(1)
    for start in range(0, rows, WRITE_ROWS):
        ids = np.arange(start, min(rows, start + WRITE_ROWS))
        db.put("items", _rows(random, ids, 1))
        catch_up(db.store, Limits(operations=200_000))
    small = np.arange(rows, rows + SMALL)
    db.put("items", _rows(random, small, 0))
    catch_up(db.store)
    spent: dict[int, list[float]] = {0: [], 1: []}
    for turn in range(updates):
        for group, ids in ((0, small), (1, np.arange(rows))):
            chosen = random.choice(ids, 1)
            if turn % 3 == 2:
                db.delete("items", int(chosen[0]))
            else:
                db.put("items", _rows(random, chosen, group))
            began = time.perf_counter()
            catch_up(db.store)
            spent[group].append(time.perf_counter() - began)
    return spent


def _rows(random: np.random.Generator, ids: np.ndarray, group: int) -> pl.DataFrame:
    count = len(ids)
    return pl.DataFrame(
        {
            "id": ids,
            "g": pl.Series([group] * count, dtype=pl.Int32),
            "x": random.integers(1, 10_000_000, count),
            "y": random.normal(0, 1, count),
        }
    )


if __name__ == "__main__":
    main()
