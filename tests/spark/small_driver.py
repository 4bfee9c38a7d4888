"""A driver process whose workers have 1 GiB each: `small_driver.py URL`; prints the epochs."""

from __future__ import annotations

import sys
from pathlib import Path

from viewkeep.spark.pipeline import Pipeline
from viewkeep.spark.session import session

SETTINGS = {
    "spark.python.daemon.module": "limited",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
    # Arrow's own allocator reserves 1 GiB of addresses at once, of which it uses little.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}


def refuses(_: object) -> list[bool]:
    """Whether the worker is refused 1 GiB."""
    try:
        bytearray(1 << 30)
    except MemoryError:
        return [True]
    return [False]


def main() -> None:
    spark = session("local[2]", settings=SETTINGS)
    assert all(spark.sparkContext.parallelize(range(2), 2).mapPartitions(refuses).collect())
    published = Pipeline(sys.argv[1], spark=spark).run_once()
    print(f"epoch: {published.epoch}")
    spark.stop()


if __name__ == "__main__":
    main()
