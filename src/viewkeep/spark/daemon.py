"""The process that Spark forks its Python workers from, with the engine already imported.

Spark drops workers that were idle for a minute. A new worker forked from the stock daemon spends
about half a second on imports, and the first write after a quiet minute would wait for it; one
forked from this daemon has nothing left to import. Law: nothing is opened and no thread is started
before the fork.
"""

from __future__ import annotations

import importlib

PRELOADED = (
    "numpy",
    "polars",
    "pyarrow",
    "pyspark.worker",
    "viewkeep.engine.level",
    "viewkeep.spark.resident",
    "viewkeep.spark.runner",
    "viewkeep.stores.lmdb",
)


def preload() -> None:
    """Import what epoch tasks use."""
    for name in PRELOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    import pyspark.daemon

    preload()
    pyspark.daemon.manager()
