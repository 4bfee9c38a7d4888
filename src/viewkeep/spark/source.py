"""The node logs as a Structured Streaming source: offsets are cuts, and a batch is an epoch.

Asked for the latest offset, the source opens the next epoch in the store, which fixes its cut
before any task runs, and answers with that cut. The store's epoch record is the truth: the query's
rows are only the log ranges of the epoch, for whoever looks at it, and its checkpoint may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.load_pace import LOAD_PAUSE, LoadPace
from viewkeep.engine.pace import MOST, Pace
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Cut

FORMAT = "viewkeep_log"
WAIT = 0.2  # seconds that a question for new operations may wait for them
POLL = 0.005  # seconds between two looks whether the next epoch is due


class LogSource(DataSource):
    """`spark.readStream.format("viewkeep_log")` with the options url, term, limits and pace."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "log STRING, start BIGINT, stop BIGINT"

    def streamReader(self, schema: StructType) -> LogReader:  # noqa: N802
        return LogReader(dict(self.options))


class LogReader(DataSourceStreamReader):
    """Lives in Spark's planner process for as long as the query runs."""

    def __init__(self, options: dict[str, str]):
        self._url, self._term = options["url"], int(options["term"])
        most = Limits(
            operations=int(options.get("operations", MOST.operations)),
            size=int(options.get("size", MOST.size)),
            chunk=int(options.get("chunk", MOST.chunk)),
            tasks=int(options.get("tasks", MOST.tasks)),
        )
        loads = LoadPace(float(options.get("load_pause", LOAD_PAUSE)))
        self._pace = Pace(most, float(options.get("every", 0.0)), loads=loads)
        self._resident = options.get("resident") == "true"

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        published = Epochs(borrow_store(self._url)).read().published
        return offset(published.epoch, published.cut)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark's limits count rows of a query; ours are the `Limits` of an epoch.
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The cut of the next epoch, which is open from now on; `start` if there is no work.

        If a resident waits for work, there is an offset without work too: for its next turn.
        """
        epochs = Epochs(borrow_store(self._url))
        deadline = time.monotonic() + WAIT
        while True:
            ticks = epochs.store.ticks()
            record, now = epochs.read(), time.monotonic()
            self._pace.follow(record.published, now, time.time())
            is_due = self._pace.is_due(now)
            if record.open is not None or is_due:
                epoch = epochs.open_next(self._term, self._pace.limits_at(now))
                if epoch is not None:
                    self._pace.begin(now)
                    return offset(epoch.epoch, epoch.cut)
            if self._resident:
                turn = {"turn": start.get("turn", 0) + 1}
                return offset(record.published.epoch, record.published.cut) | turn
            if now > deadline:
                return start
            if is_due:
                epochs.store.wait(ticks, max(0.0, deadline - now))
            else:
                time.sleep(POLL)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = cut(start), cut(end)
        return [
            InputPartition((log, before.position(log), stop))
            for log, stop in after.positions.items()
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, int]]:
        yield partition.value


def offset(epoch: int, cut: Cut) -> dict[str, Any]:
    """A cut as Spark keeps it."""
    return {"epoch": epoch, "cut": cut.to_json()}


def cut(offset: dict[str, Any]) -> Cut:
    """The cut of an offset."""
    return Cut.from_json(offset["cut"])
