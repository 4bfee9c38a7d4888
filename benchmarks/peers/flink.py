"""Apache Flink SQL in streaming mode: a changelog query with state on the heap or in RocksDB.

Configured as Flink's pages on performance tuning and state backends advise: mini-batch with
two-phase aggregation, one slot per core, RocksDB with incremental checkpoints. The clock is on the
query into a sink that drops its rows, which is the best case; one more run, not timed, writes the
changelog to files (debezium-json) for the check.

What it does not do: views cannot be read by key (a sink must be another store), heap state is not
durable, and a sink sees changes as they come, at no consistent cut of several queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

from peers.contract import Peer, main

SETTINGS = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "20000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "taskmanager.memory.managed.size": "512m",
}


class Flink(Peer):
    """Flink in this process's own cluster (one JVM), a slot for each core."""

    packages = ("apache-flink",)

    def prepare(self) -> None:
        self.session = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        backend = self.job.options.get("state", "heap")
        settings = {
            **SETTINGS,
            "parallelism.default": str(self.job.cores),
            "taskmanager.numberOfTaskSlots": str(self.job.cores),
            "state.backend.type": "hashmap" if backend == "heap" else backend,
        }
        if backend == "rocksdb":
            settings |= {
                "execution.checkpointing.interval": "5 s",
                "execution.checkpointing.incremental": "true",
                "execution.checkpointing.dir": (self.folder / "checkpoints").as_uri(),
                # Otherwise a job that has read all its input waits for the next checkpoint.
                "execution.checkpointing.checkpoints-after-tasks-finish": "false",
            }
        for key, value in settings.items():
            self.session.get_config().set(key, value)
        for name, table in self.job.tables.items():
            columns = ", ".join(f"`{column}` {kind}" for column, kind in table.columns.items())
            self.session.execute_sql(
                f"CREATE TABLE `{name}` ({columns}) WITH ('connector' = 'filesystem', "
                f"'path' = '{Path(table.folder, 'csv').as_uri()}', 'format' = 'csv')"
            )
        self._sink("dropped", "'connector' = 'blackhole'")
        self._insert("dropped")  # the first query loads classes

    def run(self, number: int) -> None:
        self._insert("dropped")

    def result(self) -> Iterator[list[Any]]:
        path = self.folder / "changelog"
        self._sink(
            "written",
            f"'connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'debezium-json'",
        )
        self._insert("written")
        return self._fold(path)

    def _sink(self, name: str, options: str) -> None:
        self.session.execute_sql(f"CREATE VIEW `{name}_query` AS {self.job.sql}")
        schema = self.session.from_path(f"{name}_query").get_schema()
        kinds = zip(schema.get_field_names(), schema.get_field_data_types(), strict=True)
        columns = ", ".join(f"`{column}` {_nullable(str(kind))}" for column, kind in kinds)
        self.session.execute_sql(f"CREATE TABLE `{name}` ({columns}) WITH ({options})")

    def _insert(self, sink: str) -> None:
        self.session.execute_sql(f"INSERT INTO `{sink}` {self.job.sql}").wait()

    def _fold(self, path: Path) -> Iterator[list[Any]]:
        """The rows that a changelog leaves."""
        held: dict[tuple[Any, ...], int] = {}
        for file in path.rglob("*"):
            if not file.is_file():
                continue
            for line in file.open():
                change = json.loads(line)
                for side, weight in (("before", -1), ("after", 1)):
                    if change.get(side) is not None:
                        row = tuple(change[side][column] for column in self.job.columns)
                        held[row] = held.get(row, 0) + weight
        for row, weight in held.items():
            yield from [list(row)] * weight


def _nullable(kind: str) -> str:
    return kind.replace(" NOT NULL", "")


if __name__ == "__main__":
    main(Flink)
