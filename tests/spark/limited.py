"""A daemon of Spark workers that may have 1 GiB of memory of their own: `-m limited`.

The kernel refuses what goes beyond it. Files that are mapped, such as a database, do not count: it
takes their pages back when it needs them.
"""

from __future__ import annotations

import resource

import pyspark.daemon

from viewkeep.spark.daemon import preload

LIMIT = 1 << 30


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    preload()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
