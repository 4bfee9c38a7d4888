"""One million votes counted by story, from a filled log to the published view, through Spark.

Stories are drawn by Zipf 1.08 from 50,000. The clock runs from the start of the pipeline, on a
Spark session that is up with its workers, until the epoch with the last vote is published.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import polars as pl
from shared.measure import SCORES, VOTES, database, show, warm

from viewkeep.engine.epochs import Published

STORIES, ZIPF = 50_000, 1.08
WRITE_ROWS = 20_000


def votes(count: int, seed: int = 1) -> pl.DataFrame:
    """Votes with stories by Zipf's law."""
    ranks = np.arange(1, STORIES + 1, dtype=np.float64) ** -ZIPF
    chosen = np.random.default_rng(seed).choice(STORIES, size=count, p=ranks / ranks.sum())
    return pl.DataFrame({"id": np.arange(count), "story": chosen})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    spark = warm(arguments.cores)
    epochs: list[Published] = []
    with database("relaxed") as db:
        db.sql(VOTES)
        db.sql(SCORES)
        frame = votes(arguments.votes)
        began = time.perf_counter()
        for part in frame.iter_slices(WRITE_ROWS):
            db.put("votes", part)
        filled = time.perf_counter() - began
        pipeline = db.pipeline(spark=spark, on_epoch=epochs.append)
        began = time.perf_counter()
        with pipeline:
            pipeline.wait(timeout=600)
            spent = time.perf_counter() - began
        counted = sum(row["votes"] for row in db.scan("scores").rows())
    assert counted == arguments.votes, f"{counted} votes were counted"
    show(
        "vote",
        {
            "votes": arguments.votes,
            "seconds": spent,
            "operations/s": arguments.votes / spent,
            "epochs": len(epochs),
            "seconds in epochs": sum(epoch.seconds for epoch in epochs),
            "longest epoch, s": max(epoch.seconds for epoch in epochs),
            "filling the log, operations/s": arguments.votes / filled,
        },
    )
    spark.stop()


if __name__ == "__main__":
    main()
