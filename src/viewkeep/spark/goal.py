"""What `wait` waits for: the epoch that has all that was written and created before the call."""

from __future__ import annotations

from dataclasses import dataclass

from viewkeep.engine.epochs import Published
from viewkeep.engine.programs import newest_plan
from viewkeep.stores.contract import Cut, Store


@dataclass(frozen=True)
class CatchUpGoal:
    """What views hold when they have caught up with all that was written at some time."""

    cut: Cut
    plan: int

    @classmethod
    def now(cls, store: Store) -> CatchUpGoal:
        plan = newest_plan(store)
        # Views that are repaired come with a plan of their own, once an epoch covers the cut.
        return cls(store.log.head(), plan.version + bool(plan.repairs))

    def reached(self, done: Published) -> bool:
        return done.cut.covers(self.cut) and done.plan >= self.plan and not done.loading


def behind(done: Published, goal: Cut, timeout: float | None) -> str:
    """How far the views are behind, in words."""
    left = max(0, goal.operations - done.cut.operations)
    loading = f", and {len(done.loading)} inputs of views are being loaded" if done.loading else ""
    return (
        f"after {timeout:g} s the views are {left} operations behind{loading}; "
        f"epoch {done.epoch} is published"
    )
