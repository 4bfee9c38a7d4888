"""What a view that is loaded costs those who write: epochs beside it, and how long it takes.

A table of 200,000 votes with two views; a third view is created, loaded and dropped, in turns with
each `load_pause`, without Spark. A process writes a vote at a time: one after the other, or one
each 20 ms, or none. Epochs that bring operations are compared with those just before the view.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from random import Random

import numpy as np
from shared.measure import database, show

import viewkeep
from viewkeep.database import Database
from viewkeep.engine.epochs import Epochs, Published
from viewkeep.engine.housekeeping import Housekeeper
from viewkeep.engine.lease import Lease
from viewkeep.engine.load_pace import LoadPace
from viewkeep.engine.local import catch_up, run_epoch
from viewkeep.engine.pace import Pace

ROWS, STORIES, BATCH = 200_000, 1_000, 10_000
TABLE = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars BIGINT)"
KEPT = (
    "CREATE VIEW scores AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story",
    "CREATE VIEW totals AS SELECT COUNT(*) AS n, SUM(stars) AS stars FROM votes",
)
NEW = {
    "sums of groups": "SELECT story % 997 AS g, SUM(stars) AS s FROM votes GROUP BY story % 997",
    "another order of all rows": "SELECT story, id, stars FROM votes ORDER BY story, id",
}
PAUSES = (1.0, 0.3, 0.1, 0.0)
WRITERS = {"one write after the other": 0.0, "a write each 20 ms": 0.02, "nobody writes": None}
USUAL_SECONDS = 1.0  # of epochs before the view


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with database("relaxed") as db:
        fill(db)
        for title, text in NEW.items():
            for writer, every in WRITERS.items():
                show(f"{title}, {writer}", measure(db, text, every, rounds))


def fill(db: Database) -> None:
    db.sql(TABLE)
    for text in KEPT:
        db.sql(text)
    random = Random(1)
    for start in range(0, ROWS, BATCH):
        db.put("votes", [vote(random, id) for id in range(start, start + BATCH)])
    catch_up(db.store)


def vote(random: Random, id: int) -> dict[str, int]:
    return {"id": id, "story": random.randrange(STORIES), "stars": random.randint(1, 5)}


def measure(
    db: Database, text: str, every: float | None, rounds: int
) -> dict[str, float | int | str]:
    before: dict[float, list[float]] = defaultdict(list)
    beside: dict[float, list[float]] = defaultdict(list)
    longest: dict[float, list[float]] = defaultdict(list)
    took: dict[float, list[float]] = defaultdict(list)
    for number in range(rounds):
        for pause in PAUSES if number % 2 else reversed(PAUSES):
            with writing(db, every), driving(db, pause) as driver:
                before[pause] += driver.seconds(driver.run(USUAL_SECONDS))
                db.sql(f"CREATE VIEW loaded AS {text}")
                began = time.perf_counter()
                published = driver.run(600, "loaded")
                took[pause].append(time.perf_counter() - began)
                beside[pause] += driver.seconds(published)
                longest[pause].append(max(one.seconds for one in published))
                db.sql("DROP VIEW loaded")
            catch_up(db.store)
    figures: dict[str, float | int | str] = {}
    for pause in PAUSES:
        name = f"pause {pause:g}"
        figures[f"{name}: view loaded after, s"] = float(np.median(took[pause]))
        figures[f"{name}: longest epoch, ms"] = 1_000 * float(np.median(longest[pause]))
        usual, loading = 1_000 * np.array(before[pause]), 1_000 * np.array(beside[pause])
        if len(loading):
            figures[f"{name}: epoch before, ms"] = float(np.median(usual))
            figures[f"{name}: epoch meanwhile, ms"] = float(np.median(loading))
            figures[f"{name}: 95th percentile before, ms"] = float(np.percentile(usual, 95))
            figures[f"{name}: 95th percentile meanwhile, ms"] = float(np.percentile(loading, 95))
            figures[f"{name}: epochs meanwhile"] = len(loading)
    return figures


class Driver:
    """The loop of a resident, with its pace."""

    def __init__(self, db: Database, lease: Lease, pause: float):
        self.store, self.lease = db.store, lease
        self.epochs, self.pace = Epochs(db.store), Pace(loads=LoadPace(pause))
        self.house = Housekeeper()

    def run(self, seconds: float, until_ready: str | None = None) -> list[Published]:
        """Epochs until a view is ready, or for some seconds."""
        made: list[Published] = []
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            ticks = self.store.ticks()
            epoch = self.epochs.open_next(self.lease.term, self.pace.limits_at(now))
            if epoch is None:
                self.store.wait(ticks, min(0.1, end - now))
                continue
            reports = run_epoch(self.store, epoch)
            published = self.epochs.publish(self.lease.term, epoch, reports)
            self.pace.learn(published, time.monotonic())
            self.house.note(published, sum(report.rows_written for report in reports))
            self.house.round(self.store)
            made.append(published)
            if until_ready is not None and self.epochs.ready(until_ready, published):
                break
        return made

    @staticmethod
    def seconds(published: list[Published]) -> list[float]:
        """Of the epochs that brought operations."""
        return [one.seconds for one in published if one.operations]


@contextmanager
def driving(db: Database, pause: float) -> Iterator[Driver]:
    epochs = Epochs(db.store)
    lease = epochs.acquire()
    try:
        yield Driver(db, lease, pause)
    finally:
        epochs.release(lease)


@contextmanager
def writing(db: Database, every: float | None) -> Iterator[None]:
    """Another process that writes a vote at a time."""
    if every is None:
        yield
        return
    context = multiprocessing.get_context("spawn")
    stop, begun = context.Event(), context.Event()
    process = context.Process(target=write, args=(db.store.url, every, stop, begun))
    process.start()
    try:
        begun.wait(60)
        yield
    finally:
        stop.set()
        process.join()


def write(url: str, every: float, stop: Event, begun: Event) -> None:
    random = Random(time.time_ns())
    with viewkeep.open(url, create=False) as db:
        while not stop.wait(every):
            db.put("votes", vote(random, random.randrange(ROWS)))
            begun.set()


if __name__ == "__main__":
    main()
