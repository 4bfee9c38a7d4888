"""A stream of a view, a process of its own to be killed: `follower.py URL CHECKPOINT OUT LIMIT`.

Each attempt at a batch appends a line to OUT: its number and its rows. One that was killed while it
wrote leaves a line that is not complete.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from viewkeep.spark.datasource import register
from viewkeep.spark.session import session


def main() -> None:
    url, checkpoint, out, limit = sys.argv[1:]
    spark = session("local[2]")
    register(spark)

    def take(frame: DataFrame, number: int) -> None:
        rows = sorted(
            [row["_epoch"], row["_change"], row["team"], row["games"], row["points"]]
            for row in frame.collect()
        )
        with Path(out).open("a") as file:
            file.write("\n" + json.dumps([number, rows]) + ";")

    stream = spark.readStream.format("viewkeep").option("url", url).option("view", "teams")
    stream = stream.option("maxEpochsPerTrigger", limit)
    query = stream.load().writeStream.foreachBatch(take)
    query.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
