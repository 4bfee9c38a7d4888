"""How large the next epoch may be: large enough to be efficient, short enough to be fresh.

Law: the bounds never exceed the limits given, so a worker's memory is bounded however long the
backlog is. They grow while full epochs end sooner than the target, and shrink when one took longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeep.engine.epochs import Limits, Published

MOST = Limits(operations=1_000_000, size=256 << 20, chunk=100_000)
LEAST_OPERATIONS = 10_000
TARGET_SECONDS = 1.0
GROWTH = 2.0
FULL = 0.5  # an epoch with less than this share of its bound says nothing about the bound


@dataclass
class Pace:
    """The share of `most` that the next epoch may take, learnt from the epochs before it."""

    most: Limits = MOST
    target: float = TARGET_SECONDS
    share: float = 0.25
    _learnt: int = -1

    @property
    def limits(self) -> Limits:
        """The bounds of the next epoch."""
        return Limits(
            operations=max(1, min(self.most.operations, self._part(self.most.operations))),
            size=self._part(self.most.size),
            chunk=max(1, self._part(self.most.chunk)),
        )

    def learn(self, published: Published) -> None:
        """Take notice of an epoch that ended; the same epoch counts once."""
        if published.epoch == self._learnt:
            return
        self._learnt = published.epoch
        if published.seconds > 2 * self.target:
            self.share = max(self._least, self.share * self.target / published.seconds)
        elif published.seconds < self.target and self._full(published):
            self.share = min(1.0, self.share * GROWTH)

    def _full(self, published: Published) -> bool:
        return bool(published.loading) or published.operations > FULL * self.limits.operations

    @property
    def _least(self) -> float:
        return min(1.0, LEAST_OPERATIONS / self.most.operations)

    def _part(self, bound: int) -> int:
        return int(bound * self.share)
