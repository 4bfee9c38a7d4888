"""How the cost of an update grows with the tables: a three-way join with an aggregate over it.

`sales` sums order lines by the region of the customer who ordered. The tables grow by factors of
about three; at each size the lines, orders and customers of 1,000 random rows are changed, five
times over, and the epoch that brings the view up to date is timed in this process, without Spark.
The answer is compared with DuckDB's at the end of each size. `--plot` writes an SVG.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from shared.measure import database

from viewkeep.database import Database
from viewkeep.engine.epochs import Limits
from viewkeep.engine.local import catch_up

TABLES = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, region INT, name STRING)",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, note STRING)",
    "CREATE TABLE lines (id BIGINT PRIMARY KEY, orders BIGINT, quantity INT, price DECIMAL(12,2))",
)
VIEW = """CREATE VIEW sales AS
SELECT c.region, COUNT(*) AS lines, SUM(l.quantity * l.price) AS total
FROM lines l JOIN orders o ON l.orders = o.id JOIN customers c ON o.customer = c.id
GROUP BY c.region"""
REGIONS, UPDATES, ROUNDS, WRITE_ROWS = 1_000, 1_000, 5, 50_000
LIMITS = Limits(operations=200_000)


class Shop:
    """Three tables that grow together: 1 customer to 3 orders to 6 lines."""

    def __init__(self, db: Database, seed: int = 1):
        self.db, self.random = db, np.random.default_rng(seed)
        self.counts = {"customers": 0, "orders": 0, "lines": 0}

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    def grow(self, rows: int) -> None:
        """Insert rows until there are so many in all."""
        for name, share in (("customers", 0.1), ("orders", 0.3), ("lines", 0.6)):
            start, stop = self.counts[name], int(rows * share)
            self.counts[name] = stop
            for begin in range(start, stop, WRITE_ROWS):
                ids = np.arange(begin, min(begin + WRITE_ROWS, stop))
                self.db.put(name, self._rows(name, ids))
                catch_up(self.db.catalog.store, LIMITS)

    def change(self) -> None:
        """Change some rows: mostly lines, some orders, a customer in a hundred."""
        for name, share in (("customers", 0.01), ("orders", 0.19), ("lines", 0.8)):
            ids = self.random.choice(self.counts[name], int(UPDATES * share), replace=False)
            self.db.put(name, self._rows(name, np.sort(ids)))

    def _rows(self, name: str, ids: np.ndarray) -> pl.DataFrame:
        draw, count = self.random.integers, len(ids)
        if name == "customers":
            return pl.DataFrame(
                {"id": ids, "region": draw(0, REGIONS, count), "name": [f"c{i}" for i in ids]},
                schema_overrides={"region": pl.Int32},
            )
        if name == "orders":
            customers = draw(0, self.counts["customers"], count)
            return pl.DataFrame({"id": ids, "customer": customers, "note": ["-"] * count})
        cents = pl.Series(draw(1, 100_000, count)).cast(pl.Decimal(12, 2)) / 100
        return pl.DataFrame(
            {
                "id": ids,
                "orders": draw(0, self.counts["orders"], count),
                "quantity": pl.Series(draw(1, 50, count), dtype=pl.Int32),
                "price": cents.cast(pl.Decimal(12, 2)),
            }
        )

    def right(self) -> bool:
        """Whether the view holds what DuckDB finds."""
        frames = {name: self.db.sql(f"SELECT * FROM {name}").polars() for name in self.counts}
        with duckdb.connect() as oracle:
            for name, frame in frames.items():
                oracle.register(name, frame.to_arrow())
            text = VIEW.split("AS", 1)[1]
            expected = sorted(oracle.execute(text).fetchall())
        found = sorted(tuple(row.values()) for row in self.db.scan("sales").rows())
        return [tuple(map(float, row)) for row in found] == [
            tuple(map(float, row)) for row in expected
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="stop at so many rows")
    parser.add_argument("--minutes", type=float, default=10.0, help="or after so long")
    parser.add_argument("--plot", type=Path, help="write an SVG here")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    console, began = Console(), time.perf_counter()
    figures: list[dict[str, float]] = []
    with database("relaxed") as db:
        for statement in (*TABLES, VIEW):
            db.sql(statement)
        shop, size = Shop(db), 10_000
        while size <= arguments.rows:
            shop.grow(size)
            spent = [timed(shop) for _ in range(ROUNDS)]
            figures.append(
                {
                    "rows": shop.rows,
                    "seconds": statistics.median(spent),
                    "least": min(spent),
                    "most": max(spent),
                    "state bytes": db.status().state_bytes,
                }
            )
            console.print(f"{shop.rows:,} rows: {figures[-1]['seconds']:.3f} s per {UPDATES:,}")
            if size <= 1_000_000 and not shop.right():
                raise SystemExit(f"at {shop.rows:,} rows the view differs from DuckDB's answer")
            if time.perf_counter() - began > arguments.minutes * 60:
                break
            size = size * 10 // 3 if str(size)[0] == "3" else size * 3
    _show(console, figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.plot:
        from shared.plot import growth

        growth(figures, arguments.plot)


def timed(shop: Shop) -> float:
    """Seconds of the epochs that bring the view up to date after some changes."""
    shop.change()
    began = time.perf_counter()
    catch_up(shop.db.catalog.store, LIMITS)
    return time.perf_counter() - began


def _show(console: Console, figures: list[dict[str, float]]) -> None:
    table = Table("rows", f"s per {UPDATES:,} updates", "least - most", "state, MiB")
    for line in figures:
        table.add_row(
            f"{line['rows']:,.0f}",
            f"{line['seconds']:.3f}",
            f"{line['least']:.3f} - {line['most']:.3f}",
            f"{line['state bytes'] / 2**20:,.0f}",
        )
    console.print(table)
    ratio = figures[-1]["seconds"] / figures[0]["seconds"]
    grown = figures[-1]["rows"] / figures[0]["rows"]
    console.print(f"the tables grew {grown:,.0f} times, the cost of an update {ratio:.2f} times")


if __name__ == "__main__":
    main()
