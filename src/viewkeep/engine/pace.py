"""When the next epoch begins, how large it may be, and in how many tasks it runs.

Law: the bounds never exceed the limits given, so a worker's memory is bounded however long the
backlog is. They grow while full epochs end sooner than their target, and shrink when one took much
longer. What an epoch may load of new views is the business of `LoadPace`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from viewkeep.engine.epochs import Limits, OpenEpoch, Published
from viewkeep.engine.load_pace import LOADING_SECONDS, LoadPace
from viewkeep.engine.report import Report
from viewkeep.plan.program import Program, producer_id

MOST = Limits(operations=500_000, size=128 << 20, chunk=50_000)
LEAST_OPERATIONS = 10_000
BACKLOG_SECONDS = 3.0  # a full epoch is behind the log already, and large ones cost less
GROWTH = 4.0  # at most, from one epoch to the next


@dataclass
class Pace:
    """The share of `most` that the next epoch may take, learnt from the epochs before it.

    `every` is the least time in seconds from the beginning of one epoch to that of the next. A
    backlog does not wait. `loads` says what an epoch loads.
    """

    most: Limits = MOST
    every: float = 0.0
    share: float = 1.0
    was_full: bool = False  # whether the last epoch was, so that more is left to do
    loads: LoadPace = field(default_factory=LoadPace)
    _learnt: int = -1
    _begun: float = -math.inf

    def is_due(self, now: float) -> bool:
        """Whether the next epoch may begin; `now` is of a clock that never goes back."""
        return self.was_full or now - self._begun >= self.every

    def begin(self, now: float) -> None:
        """An epoch begins."""
        self._begun = now

    def follow(self, published: Published, now: float, wall: float) -> None:
        """Go on from an epoch that another process may have run.

        `now` is of the clock of `is_due`, and `wall` the same moment in seconds since 1970.
        """
        ended = wall - published.at / 1e9  # seconds ago
        self.learn(published, now - max(0.0, ended))
        self._begun = max(self._begun, now - max(0.0, ended + published.seconds))

    @property
    def limits(self) -> Limits:
        """The bounds of the next epoch, but for what it may load beside operations."""
        return replace(
            self.most,
            operations=max(1, min(self.most.operations, self._part(self.most.operations))),
            size=self._part(self.most.size),
            chunk=max(1, self._part(self.most.chunk)),
        )

    def limits_at(self, now: float) -> Limits:
        """The bounds of an epoch that begins now."""
        return self.loads.bounded(self.limits, now)

    def learn(self, published: Published, ended: float = -math.inf) -> None:
        """Take notice of an epoch that ended, and when; the same epoch counts once."""
        if published.epoch == self._learnt:
            return
        self._learnt = published.epoch
        self.loads.learn(published, ended)
        self.was_full = published.more or bool(published.loading)
        target = LOADING_SECONDS if published.loading else BACKLOG_SECONDS
        if published.seconds > 2 * target:
            self.share = max(self._least, self.share * target / published.seconds)
        elif published.seconds < target and self.was_full:
            wanted = target / max(published.seconds, 1e-3)
            self.share = min(1.0, self.share * min(GROWTH, wanted))

    @property
    def _least(self) -> float:
        return min(1.0, LEAST_OPERATIONS / self.most.operations)

    def _part(self, bound: int) -> int:
        return int(bound * self.share)


ALONE_ROWS = 100_000
ALONE_LOADED = 20_000  # rows that one task loads in the time that a job takes to begin


@dataclass
class Work:
    """How much work the next epoch is likely to be, learnt from the epochs before it."""

    rows_per_operation: float | None = None
    most: int = field(default_factory=lambda: ALONE_ROWS)  # rows of an epoch with little work

    def learn(self, epoch: OpenEpoch, reports: Iterable[Report]) -> None:
        """Take notice of what an epoch did."""
        if epoch.operations and not epoch.loading:
            rows = sum(report.rows_in + report.rows_written for report in reports)
            known = self.rows_per_operation or 1.0
            self.rows_per_operation = max(rows / epoch.operations, known / 2)

    def is_little(self, epoch: OpenEpoch, program: Program) -> bool:
        """Whether one task should run the whole epoch."""
        if epoch.rows_to_load > ALONE_LOADED:
            return False
        rows = self.rows_per_operation or _most_feeds(program)
        return epoch.operations * rows <= self.most


def _most_feeds(program: Program) -> int:
    """How many rows one operation may make at once: the most feeds of a base table."""
    fed = (len(program.consumers(producer_id(source))) for source in program.sources)
    return max(fed, default=1)
