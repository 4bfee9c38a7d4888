"""What the number of views costs: creating them, loading them, and an epoch with few changes.

1,000 views of ten shapes over 10 tables, and 12,800 selections and aggregations over 20 tables,
created in one change each. Then one more view is planned, and epochs are timed in this process,
without Spark: one with a single changed row, one with a changed row in every table. An epoch has as
many Spark stages as the plan has levels, whatever the number of views.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path
from random import Random

from shared.measure import database, show

from viewkeep.database import Database
from viewkeep.engine.local import catch_up

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "engine"))

import many

ROWS, EPOCHS = 1_000, 3
SIZES = {
    "1,000 views of ten shapes": (1_000, 10, many.SHAPES),
    "12,800 selections and aggregations": (
        12_800,
        20,
        (many.SHAPES[0], many.SHAPES[2], many.SHAPES[3], many.SHAPES[1]),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the views")
    arguments = parser.parse_args()
    for title, (count, over, shapes) in SIZES.items():
        with database("relaxed") as db:
            samples = measure(db, count // 10 if arguments.quick else count, over, shapes)
        show(title, {name: statistics.median(values) for name, values in samples.items()})


def measure(db: Database, count: int, over: int, shapes: tuple[str, ...]) -> dict[str, list[float]]:
    """Figures by name; those of epochs have a value for each of several epochs."""
    random = Random(1)
    for statement in many.tables(over):
        db.sql(statement)
    for number in range(over):
        db.put(f"t{number}", [{**many.row(random, ROWS), "id": n} for n in range(ROWS)])
    figures: dict[str, list[float]] = {"views": [count], "tables": [over], "rows each": [ROWS]}
    text = ";".join(many.views(count, over, shapes))
    figures["creating them, s"] = [_timed(lambda: db.create_views(text))]
    one = "SELECT s, SUM(a) AS total FROM t0 GROUP BY s"
    figures["planning one more, s"] = [_timed(lambda: db.explain(f"CREATE VIEW more AS {one}"))]
    figures["creating one more, s"] = [_timed(lambda: db.sql(f"CREATE VIEW more AS {one}"))]
    figures["loading them, s"] = [_timed(lambda: catch_up(db.store))]
    for name, tables in (("1 change", 1), (f"{over} changes", over)):
        spent = figures.setdefault(f"epoch of {name}, s", [])
        for _ in range(EPOCHS):
            for number in range(tables):
                db.put(f"t{number}", many.row(random, ROWS))
            gc.collect()  # what planning left over is no part of an epoch
            spent.append(_timed(lambda: catch_up(db.store)))
    program = db.catalog.current().program
    figures["operators"] = [len(program.operators)]
    figures["levels, each a Spark stage"] = [program.levels]
    figures["state, MiB"] = [db.status().state_bytes / 2**20]
    return figures


def _timed(act: object) -> float:
    assert callable(act)
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
