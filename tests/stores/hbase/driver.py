"""A process that keeps the views of a database, for tests that kill it.

    python -m tests.stores.hbase.driver URL SEED

It runs epochs without Spark, one round of housekeeping after each, and gives up one epoch of eight
after it has written all of it, and then runs it once more, as a task does that comes late. It ends
when its input does. Any error ends it, except that another driver took over.
"""

from __future__ import annotations

import random
import select
import sys
from contextlib import suppress

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import run_epoch
from viewkeep.errors import Fenced
from viewkeep.stores import open_store

LEASE = 5.0  # seconds
IDLE = 0.2
GIVEN_UP = 1 / 8
LIMITS = Limits(operations=1_000)  # after a pause there are many epochs


def main(url: str, seed: str) -> None:
    store, source = open_store(url), random.Random(seed)
    epochs = Epochs(store)
    lease = epochs.acquire(LEASE)
    while not select.select([sys.stdin], [], [], 0)[0]:
        seen = store.ticks()
        try:
            epochs.renew(lease)
            epoch = epochs.open_next(lease.term, LIMITS)
            if epoch is None:
                store.wait(seen, IDLE)
                continue
            reports = run_epoch(store, epoch)
            if source.random() < GIVEN_UP:
                epochs.abandon(lease.term, epoch)
                epochs.open_next(lease.term, LIMITS)
                with suppress(Fenced):
                    run_epoch(store, epoch)
                continue
            epochs.publish(lease.term, epoch, reports)
            housekeep(store)
        except Fenced:
            lease = epochs.acquire(LEASE)
    epochs.release(lease)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
