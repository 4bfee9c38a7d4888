"""What the Spark peers share: a session on this machine, and rows by key in LMDB."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from peers.contract import Job, Peer

MAP_BYTES = 16 << 30


class Target:
    """Rows under their key, the first column: eight bytes in order, as viewkeep keeps a BIGINT."""

    def __init__(self, folder: Path):
        self.environment = lmdb.open(str(folder), map_size=MAP_BYTES)

    def empty(self) -> None:
        with self.environment.begin(write=True) as transaction:
            transaction.drop(self.environment.open_db(None), delete=False)

    def put(self, rows: pa.Table) -> None:
        """Put rows in one transaction, in key order."""
        rows = rows.take(pc.sort_indices(rows.column(0)))
        columns = [column.to_pylist() for column in rows.columns]
        pairs = [
            (struct.pack(">Q", row[0]), json.dumps(row[1:]).encode())
            for row in zip(*columns, strict=True)
        ]
        with self.environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(pairs)

    def rows(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        with self.environment.begin() as transaction:
            for key, value in transaction.cursor():
                yield [struct.unpack(">Q", key)[0], *json.loads(value)]


class SparkPeer(Peer):
    """A peer on Spark: `settings` are those of its session."""

    packages = ("pyspark", "lmdb", "pyarrow")
    settings: dict[str, str] = {}

    def __init__(self, job: Job):
        super().__init__(job)
        self.target = Target(self.folder / "target")

    def prepare(self) -> None:
        settings = {
            "spark.sql.shuffle.partitions": str(self.job.cores),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            **self.settings,
        }
        builder = SparkSession.builder.master(f"local[{self.job.cores}]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def schema(self, table: str) -> str:
        return ", ".join(
            f"`{name}` {kind}" for name, kind in self.job.tables[table].columns.items()
        )

    def close(self) -> None:
        self.spark.stop()
        self.target.environment.close()
