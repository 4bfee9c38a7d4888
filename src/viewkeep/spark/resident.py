"""The driver's side of resident epochs: submits their task, watches it, and asks for them back.

Law: whoever runs the open epoch, the driver knows within `LOOK_SECONDS` what is published and how
long the open epoch has been running.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from pyspark.sql import SparkSession

from viewkeep.engine.epochs import EpochRecord, Published
from viewkeep.engine.resident import Assignment, Turn, assign, reports_of, reside
from viewkeep.spark.placement import placed
from viewkeep.spark.runner import settle
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Store

LOOK_SECONDS = 0.02  # between two looks of the driver at a resident


class Watch:
    """What a driver sees of the epochs of a resident in the `epoch` record, look by look."""

    def __init__(self, record: EpochRecord):
        self._published = record.published.epoch
        self._open: int | None = None
        self._began = math.inf

    def began(self, record: EpochRecord, now: float) -> float:
        """When the open epoch was seen first; never if there is none."""
        number = None if record.open is None else record.open.epoch
        if number != self._open:
            self._open, self._began = number, math.inf if number is None else now
        return self._began

    def has_published(self, record: EpochRecord) -> bool:
        """Whether an epoch was published since the last look."""
        before, self._published = self._published, record.published.epoch
        return self._published != before


def run_resident(
    spark: SparkSession,
    store: Store,
    assignment: Assignment,
    tag: str,
    *,
    look: Callable[[], bool],
    note: Callable[[Published], None],
) -> Turn:
    """Assign epochs to a resident and wait until it gives them back.

    `look` is called every few milliseconds, and says when to ask for the epochs back. `note` is
    called with each epoch that the resident reports. The job has the `tag`.
    """
    assign(store, assignment)
    with ThreadPoolExecutor(1, "viewkeep-resident") as pool:
        job = pool.submit(_submit, spark, store.url, assignment, tag)
        try:
            while not wait([job], LOOK_SECONDS).done:
                for published in reports_of(store, assignment, take_back=look()):
                    note(published)
            turn = job.result()
        finally:
            for published in reports_of(store, assignment, take_back=True):
                note(published)
    for published in turn.untold:
        note(published)
    return turn


def _submit(spark: SparkSession, url: str, assignment: Assignment, tag: str) -> Turn:
    context = spark.sparkContext
    context.addJobTag(tag)
    context.setJobDescription("resident epochs")
    is_apart = not borrow_store(url).capabilities.shared_state
    one = placed(context.parallelize([0], 1), is_apart)
    (turn,) = one.mapPartitions(Reside(url, assignment)).collect()
    return turn


@dataclass(frozen=True)
class Reside:
    """The resident task: gives what has become of the assignment."""

    url: str
    assignment: Assignment

    def __call__(self, items: Iterable[int]) -> Iterator[Turn]:
        settle()
        for _ in items:
            yield reside(borrow_store(self.url), self.assignment)
