"""How long one write to an idle database takes to be in the published view.

The clock runs from before `put` until the epoch that holds it is published, as a reader sees it.
The database is durable (`full`), the pipeline has been idle, Spark and its workers are up.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

from shared.measure import SCORES, VOTES, database, show, warm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=20)
    parser.add_argument("--idle", type=float, default=0.5, help="seconds of quiet before a write")
    arguments = parser.parse_args()
    spark = warm()
    seconds: list[float] = []
    with database() as db:
        db.sql(VOTES)
        db.sql(SCORES)
        db.put("votes", [{"id": n, "story": n % 100} for n in range(10_000)])
        with db.pipeline(spark=spark) as pipeline:
            pipeline.wait(timeout=60)
            for n in range(arguments.writes):
                time.sleep(arguments.idle)
                began = time.perf_counter()
                db.put("votes", {"id": 10_000 + n, "story": 7})
                pipeline.wait(timeout=60)
                seconds.append(time.perf_counter() - began)
            assert db.get("scores", 7) == {"story": 7, "votes": 100 + arguments.writes}
    ordered = sorted(seconds)
    show(
        "freshness",
        {
            "writes": arguments.writes,
            "median, s": statistics.median(ordered),
            "p95, s": ordered[math.ceil(0.95 * len(ordered)) - 1],
            "longest, s": ordered[-1],
        },
    )
    spark.stop()


if __name__ == "__main__":
    main()
