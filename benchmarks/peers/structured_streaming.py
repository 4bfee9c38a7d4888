"""Spark Structured Streaming: a query with RocksDB state, merged into LMDB by foreachBatch.

Configured as Spark's guide advises: the RocksDB provider with changelog checkpointing, as many
shuffle partitions as cores, a checkpoint on disk. A micro-batch takes files of half a million rows,
which is also the bound of an epoch of viewkeep; each batch's changed rows are put into one LMDB
environment by key, so that they can be read as viewkeep's can.

What it does not do: base rows that are updated or deleted (the input only grows), reads at a
consistent cut while a batch is merged, and exactly-once merging of results that are not keyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from peers.contract import main
from peers.spark_lmdb import SparkPeer

BATCH_ROWS = 500_000
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class StructuredStreaming(SparkPeer):
    """The query as a stream over the files, until all of them are in."""

    settings = SETTINGS

    def prepare(self) -> None:
        super().prepare()
        self.run(-1)  # the first query loads classes

    def run(self, number: int) -> None:
        self.target.empty()
        for name, table in self.job.tables.items():
            files = table.files("parquet")
            many = max(1, BATCH_ROWS * len(files) // table.rows)
            stream = (
                self.spark.readStream.schema(self.schema(name))
                .option("maxFilesPerTrigger", many)
                .parquet(str(Path(table.folder, "parquet")))
            )
            stream.createOrReplaceTempView(name)
        query = (
            self.spark.sql(self.job.sql)
            .writeStream.outputMode("append" if self.job.task == "join" else "update")
            .option("checkpointLocation", str(self.folder / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .foreachBatch(self._merge)
            .start()
        )
        query.awaitTermination()

    def _merge(self, batch: DataFrame, number: int) -> None:
        self.target.put(batch.select(*self.job.columns).toArrow())

    def result(self) -> Iterator[list[Any]]:
        return self.target.rows(self.job.columns)


if __name__ == "__main__":
    main(StructuredStreaming)
