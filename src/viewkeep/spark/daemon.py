"""The process that Spark forks its Python workers from, with the engine already imported.

Spark drops workers that were idle for a minute. A new worker forked from the stock daemon spends
about a second on imports, which would be the freshness of the first write after a quiet minute;
forked from this one it is ready in a few milliseconds. Law: nothing is opened and no thread is
started before the fork.
"""

from __future__ import annotations

import importlib

PRELOADED = (
    "viewkeep.engine.level",
    "viewkeep.spark.runner",
)


def preload() -> None:
    """Import what epoch tasks use."""
    for name in PRELOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    import pyspark.daemon

    preload()
    pyspark.daemon.manager()
