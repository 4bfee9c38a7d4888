"""Spark looks in packages called `pyspark_*` for sources: `format("viewkeep")` needs no set-up.

Law: nothing but the name is here.
"""

from __future__ import annotations

from viewkeep.spark.datasource import FoundSource as DefaultSource

__all__ = ["DefaultSource"]
