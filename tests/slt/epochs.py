"""Epochs in this process until all that was written is published, but not for ever.

A view that never becomes ready would keep `catch_up` busy without end; here that is a failure.
"""

from __future__ import annotations

from viewkeep.engine.epochs import Epochs
from viewkeep.engine.local import advance
from viewkeep.engine.programs import newest_plan
from viewkeep.stores.contract import Store

MOST_EPOCHS = 40  # small tests need a few; large ones give their own bound


def run_epochs(store: Store, most: int = MOST_EPOCHS) -> int:
    """Run epochs until there is nothing left to do; how many there were."""
    epochs = Epochs(store)
    lease = epochs.acquire()
    try:
        for count in range(most):
            if advance(store, lease.term) is None:
                return count
    finally:
        epochs.release(lease)
    views = [name for name in newest_plan(store).views if not epochs.ready(name)]
    raise AssertionError(f"after {most} epochs there is still work to do; not ready: {views}")
