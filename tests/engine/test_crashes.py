"""Drivers that die anywhere, tasks delivered twice, drivers that wake up late: nothing changes."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from pathlib import Path

import pytest

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.lease import Lease, holder
from viewkeep.engine.local import run_epoch
from viewkeep.errors import EpochGone, Fenced
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store
from viewkeep.stores.faulty import FaultPlan, FaultyStore, InjectedCrash

from .history import History

VIEWS = [
    "CREATE VIEW per_g AS SELECT g, COUNT(*) AS n, SUM(d) AS d, MIN(x) AS x FROM items GROUP BY g",
    "CREATE VIEW whole AS SELECT COUNT(*) AS n, MAX(x) AS x, COUNT(DISTINCT g) AS gs FROM items",
    "CREATE VIEW chosen AS SELECT id, g, x FROM items WHERE x > 3",
    "CREATE VIEW by_g AS SELECT id, x FROM items ORDER BY g, x DESC",
    "CREATE VIEW groups AS SELECT n, COUNT(*) AS times FROM per_g GROUP BY n",
]
RATES = {
    "log.read": 0.03,
    "state.get": 0.03,
    "state.apply": 0.08,
    "state.scan": 0.05,
    "state.find": 0.03,
    "state.floor": 0.05,
    "state.scan_ranges": 0.05,
    "tables.scan": 0.05,
    "meta.cas": 0.05,
    "log.truncate": 0.1,
    "state.sweep": 0.05,
    "log.bounded_cut": 0.05,
}


def write_something(history: History, source: random.Random) -> None:
    rows = [
        {
            "id": source.randrange(8),
            "part": source.randrange(2),
            "g": source.choice(["a", "b", None]),
            "x": source.randrange(10),
            "d": source.choice([0.1, 0.2, None]),
        }
        for _ in range(source.randrange(1, 6))
    ]
    history.put(rows)
    if source.random() < 0.5:
        history.delete([(source.randrange(8), source.randrange(2))])


def drive(store: Store, source: random.Random) -> Lease:
    """A driver's life: take over, then run epochs until there is no work or it dies."""
    epochs = Epochs(store)
    held = holder(store)
    if held is not None:  # the dead driver of this process
        epochs.release(held)
    lease = epochs.acquire()
    limits = Limits(operations=source.randrange(2, 9), chunk=3)
    while (epoch := epochs.open_next(lease.term, limits)) is not None:
        epochs.publish(lease.term, epoch, run_epoch(store, epoch))
        housekeep(store, budget=5)
    return lease


@pytest.mark.parametrize("seed", range(12))
def test_a_driver_that_dies_anywhere(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    with closing(create_store(str(tmp_path / "db"), durability="relaxed")) as store:
        history = History(store)
        plan = FaultPlan.seeded(seed, RATES, twice=0.1)
        faulty = FaultyStore(store, plan)
        views = list(VIEWS)
        deaths = 0
        for _ in range(12):
            write_something(history, source)
            if views and source.random() < 0.6:
                history.create_view(views.pop(0))
            while True:
                try:
                    drive(faulty, source)
                    break
                except InjectedCrash:
                    deaths += 1
                    history.check()  # what is published stays whole while an epoch lies open
            history.check()
        assert deaths > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_driver_that_wakes_up_late(tmp_path: Path, seed: int) -> None:
    """Its tasks run again at every later moment; each time they change nothing or are refused."""
    source = random.Random(seed)
    with closing(create_store(str(tmp_path / "db"), durability="relaxed")) as store:
        history = History(store)
        for text in VIEWS:
            history.create_view(text)
        epochs = Epochs(store)
        late = []
        for _ in range(6):
            write_something(history, source)
            held = holder(store)
            if held is not None:
                epochs.release(held)
            lease = epochs.acquire()
            epoch = epochs.open_next(lease.term, Limits())
            assert epoch is not None
            late.append((lease.term, epoch))
            drive(store, source)
            for term, old in late:
                with suppress(Fenced, EpochGone):
                    run_epoch(store, old)
                with pytest.raises(Fenced):
                    epochs.publish(term, old, [])
                history.check()
