"""Runs one open epoch as one Spark job: a stage per level, blobs shuffled by shard between them.

An epoch with little work is one task instead, which runs all its levels: a stage costs some 40 ms
whatever it does. Tasks get ids only (url, epoch, level, splits of logs or shards) and load the
rest from the store, so a task that is retried, speculated or replayed does the same work again.
Law: every shard of a level has exactly one task, and that task runs even if no message comes for
it.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from pyspark.sql import SparkSession

from viewkeep.engine import local
from viewkeep.engine.epochs import Epochs, OpenEpoch
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.log_splits import even_splits, levels_to_run
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import Report, reports_of
from viewkeep.engine.resident import ALONE_BYTES
from viewkeep.engine.spool import Message
from viewkeep.spark.placement import placed
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import LogSplit, Store


def run_alone(spark: SparkSession, url: str, epoch: OpenEpoch) -> list[Report] | None:
    """Run all levels of the epoch in one task; None if it has more work than one task should do."""
    is_apart = not borrow_store(url).capabilities.shared_state
    alone = placed(spark.sparkContext.parallelize([epoch.epoch], 1), is_apart)
    made = alone.mapPartitions(Alone(url)).collect()
    return [Report.decode(blob) for blob in made] or None


def run_epoch(spark: SparkSession, url: str, epoch: OpenEpoch) -> list[Report]:
    """Run all levels of the epoch; publishing it is the caller's."""
    context = spark.sparkContext
    store = borrow_store(url)
    program = load_plan(store, epoch.plan).program
    shares = even_splits(store, program, epoch)
    levels = levels_to_run(store, program, epoch, shares)
    tasks = min(context.defaultParallelism, store.state.shards)
    is_apart = not store.capabilities.shared_state
    splits = placed(context.parallelize(shares, len(shares)), is_apart)
    messages = splits.mapPartitions(Sources(url, epoch.epoch))
    for level in range(1, levels):
        routed = placed(messages.partitionBy(tasks, Route(tasks)), is_apart)
        messages = routed.mapPartitionsWithIndex(Level(url, epoch.epoch, level, tasks))
    return reports_of(messages.collect())


def touch_workers(spark: SparkSession) -> None:
    """Have every worker of the pool do nothing once."""
    context = spark.sparkContext
    tasks = context.defaultParallelism
    context.parallelize(range(tasks), tasks).foreach(_nothing)


def _nothing(item: int) -> None:
    pass


@dataclass(frozen=True)
class Alone:
    """All levels of an epoch; gives no report if it outgrows the task."""

    url: str

    def __call__(self, epochs: Iterable[int]) -> Iterator[bytes]:
        for number in epochs:
            store, epoch = _open(self.url, number)
            try:
                yield from [
                    report.encode() for report in local.run_epoch(store, epoch, 1, ALONE_BYTES)
                ]
            except local.Outgrown:
                continue  # reads the input to its end, without which Spark drops the worker


@dataclass(frozen=True)
class Sources:
    """Level 0 of the splits of node logs in a task's partition."""

    url: str
    epoch: int

    def __call__(self, shares: Iterable[Sequence[LogSplit]]) -> Iterator[Message]:
        store, epoch = _open(self.url, self.epoch)
        for share in shares:
            for split in share:
                yield from run_sources(store, epoch, split)


@dataclass(frozen=True)
class Level:
    """One later level of the shards in a task's partition."""

    url: str
    epoch: int
    level: int
    tasks: int

    def __call__(self, index: int, messages: Iterable[Message]) -> Iterator[Message]:
        store, epoch = _open(self.url, self.epoch)
        shards = range(index, store.state.shards, self.tasks)
        yield from run_level(store, epoch, self.level, shards, messages)


@dataclass(frozen=True)
class Route:
    """Which task a message goes to; reports go along with any."""

    tasks: int

    def __call__(self, shard: int) -> int:
        return shard % self.tasks


def _open(url: str, number: int) -> tuple[Store, OpenEpoch]:
    settle()
    store = borrow_store(url)
    return store, Epochs(store).open_epoch(number)


@cache
def settle() -> None:
    """Take what this worker has imported out of garbage collection; spool where Spark spills.

    Spark's workers collect garbage after every task. To look through all modules takes 30 ms, in
    which the worker's next task waits, and there is no garbage in them.
    """
    gc.freeze()
    folders = os.environ.get("SPARK_LOCAL_DIRS")
    if folders:
        tempfile.tempdir = folders.split(",")[0]
