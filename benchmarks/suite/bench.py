"""The bench that workloads stand on: scratch folders, databases, Spark sessions, pipelines, peers.

Law: what it starts it ends, and what it writes goes with its folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from peers.contract import Source
from pyspark.sql import SparkSession
from shared.measure import warm

import viewkeep
from suite.contract import OURS, Experiment, Outcome, Result, Size, System
from suite.peers import PEERS, PeerSpec, run_peer
from suite.task import Change, Task, digest
from viewkeep.database import Database

T = TypeVar("T")
CORES = min(2, os.cpu_count() or 1)
WAIT_SECONDS = 900.0
RUN = "from viewkeep.cli import main; main()"


class Bench:
    """One run of the suite. `peers` are the names of those that take part."""

    def __init__(self, size: Size, folder: Path, peers: Mapping[str, PeerSpec] = PEERS):
        self.size, self.folder, self.peers = size, folder, peers
        self._spark: tuple[int, SparkSession] | None = None
        self._numbers = 0
        self._kept = ExitStack()
        self._files: dict[int, tuple[Task, dict[str, Source]]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *ended: object) -> None:
        self._kept.close()
        self.stop_spark()

    def keep(self, context: AbstractContextManager[T]) -> T:
        """Enter a context that lasts as long as the bench."""
        return self._kept.enter_context(context)

    # -- places --------------------------------------------------------------------------------

    def place(self, name: str) -> Path:
        """A new name in the scratch folder."""
        self._numbers += 1
        return self.folder / f"{name}-{self._numbers}"

    @contextmanager
    def database(self, durability: str = "full", **options: int) -> Iterator[Database]:
        """An empty database, removed after use."""
        place = self.place("database")
        try:
            with viewkeep.make(place, durability=durability, **options) as db:
                yield db
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def spark(self, cores: int = CORES) -> SparkSession:
        """A session on so many cores whose Python workers run."""
        if self._spark is None or self._spark[0] != cores:
            self.stop_spark()
            self._spark = (cores, warm(cores))
        return self._spark[1]

    def stop_spark(self) -> None:
        if self._spark is not None:
            self._spark[1].stop()
            self._spark = None

    # -- viewkeep ------------------------------------------------------------------------------

    def ours(self, task: Task, cores: int = CORES, durability: str = "full") -> System:
        """A filled log, from the start of the pipeline until all of it is published.

        Once before the runs that count, as the peers that run in a JVM do.
        """
        return partial(self._catch_up, task, cores, durability)

    def _catch_up(self, task: Task, cores: int, durability: str, runs: int) -> Outcome:
        spark, seconds = self.spark(cores), list[float]()
        filled = self.place("filled")
        with viewkeep.make(filled, durability=durability) as db:
            declare(db, task)
            for change in task.changes:
                write(db, change)
        result: Result | None = None
        for run in range(-1, runs):
            place = self.place("database")
            shutil.copytree(filled, place)
            with viewkeep.open(place, create=False) as db:
                pipeline = db.pipeline(spark=spark)
                began = time.perf_counter()
                with pipeline:
                    pipeline.wait(timeout=WAIT_SECONDS)
                    spent = time.perf_counter() - began
                if run >= 0:
                    seconds.append(spent)
                if run == runs - 1:
                    result = read(db, task)
            shutil.rmtree(place)
        shutil.rmtree(filled)
        return Outcome({"operations/s": [task.operations / spent for spent in seconds]}, result)

    @contextmanager
    def pipeline(
        self, db: Database, cores: int = CORES, on: set[int] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`viewkeep run` as a process of its own; `on` are the cores that it is held to."""
        command = [sys.executable, "-c", RUN, "run", db.url, "--master", f"local[{cores}]"]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            if on:
                os.sched_setaffinity(process.pid, on)  # what it starts inherits that
            try:
                yield process
            except viewkeep.ViewkeepError as error:
                log.seek(0)
                error.add_note(f"the pipeline said: {log.read()[-2000:].decode()}")
                raise
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def settle(self, db: Database) -> None:
        """Wait until a pipeline that was just started has its query, whose start takes a core."""
        db.wait(timeout=WAIT_SECONDS)
        time.sleep(self.size.pick(6.0, 6.0, 0.0))

    # -- peers ---------------------------------------------------------------------------------

    def files(self, task: Task) -> dict[str, Source]:
        """A task's tables as files, made once for all peers."""
        if id(task) not in self._files:
            self._files[id(task)] = (task, task.files(self.place("files")))
        return self._files[id(task)][1]

    def systems(
        self, task: Task, only: tuple[str, ...] | None = None, **options: object
    ) -> dict[str, System]:
        """viewkeep and the peers that know the task, or `only` some of them."""
        found: dict[str, System] = {OURS: self.ours(task)}
        return found | self.peer_systems(task, only, **options)

    def peer_systems(
        self, task: Task, only: tuple[str, ...] | None = None, **options: object
    ) -> dict[str, System]:
        return {
            spec.title: partial(run_peer, spec, task, self, options)
            for name, spec in self.peers.items()
            if task.name in spec.tasks and (only is None or name in only)
        }

    def experiment(
        self,
        name: str,
        task: Task,
        peers: tuple[str, ...] | None = None,
        axis: tuple[str, float] | None = None,
    ) -> Experiment:
        """A task from a filled log, checked against DuckDB."""
        return Experiment(name, self.systems(task, peers), task.expected, axis)


def declare(db: Database, task: Task) -> None:
    """Create a task's tables and views."""
    for table, columns in task.tables.items():
        parts = [f"{name} {kind}" for name, kind in columns.items()]
        db.sql(f"CREATE TABLE {table} ({parts[0]} PRIMARY KEY, {', '.join(parts[1:])})")
    db.create_views("; ".join(f"CREATE VIEW {name} AS {sql}" for name, sql in task.views.items()))


def write(db: Database, change: Change) -> None:
    if change.puts is not None:
        db.put(change.table, change.puts)
    if change.deletes is not None:
        db.delete_many(change.table, change.deletes.to_list())


def read(db: Database, task: Task) -> Result:
    """The rows of a task's views, or their digests."""
    found = {name: db.scan(name).polars() for name in task.views}
    return {name: digest(frame) for name, frame in found.items()} if task.digest else found
