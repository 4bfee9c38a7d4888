"""A driver process of its own, to be killed: `driver.py URL MASTER [once|staged]`."""

from __future__ import annotations

import random
import sys

from viewkeep.engine import log_splits, pace
from viewkeep.spark.pipeline import Pipeline
from viewkeep.spark.session import session


def main() -> None:
    url, master, *rest = sys.argv[1:]
    pace.ALONE_ROWS = random.choice((-1, pace.ALONE_ROWS))  # both ways of running an epoch
    if rest == ["staged"]:
        pace.ALONE_ROWS = -1
    log_splits._LEAST = random.choice((1, log_splits._LEAST))  # logs that are cut, and whole ones
    spark = session(master)
    pipeline = Pipeline(url, spark=spark)
    if rest == ["once"]:
        pipeline.run_once()
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
        print(f"executors: {executors - 1}")  # the driver is counted too
    else:
        pipeline.run_forever()
    spark.stop()


if __name__ == "__main__":
    main()
