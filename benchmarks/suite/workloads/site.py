"""The news site of `viewkeep demo`: eight views of three tables, kept while readers read and vote.

Epochs of votes in this process are counted in processor time. Freshness and reads are measured
beside a pipeline that is a process of its own. At the end every view is compared with its query,
recomputed by Spark SQL.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import epochs
import shared.reader
from peers.offered import quantiles

from suite.bench import Bench
from suite.contract import OURS, Experiment, Outcome, Workload, Wrong
from suite.workloads.freshness import IDLE_SECONDS, WAIT_SECONDS
from viewkeep.database import Database
from viewkeep.demo.site import STORIES, VIEWS, Traffic
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance

VOTES_PER_SECOND, READS_PER_SECOND = 2_000, 500.0


class Site(Workload):
    """What does a vote cost a site of eight views, and how soon do its readers see it?"""

    name = "site"

    def experiments(self, bench: Bench) -> list[Experiment]:
        found = [
            Experiment(
                "news site, one process",
                {OURS: partial(in_process, bench, size)},
                axis=("votes in an epoch", float(size)),
            )
            for size in (1, 100, 1_000)
        ]
        idle, busy = partial(at_rest, bench), partial(under_load, bench)
        load = f"news site, {VOTES_PER_SECOND:,} votes/s offered"
        return [
            *found,
            Experiment("news site, idle, single votes", {OURS: idle}),
            Experiment(load, {OURS: busy}),
        ]


def in_process(bench: Bench, size: int, runs: int) -> Outcome:
    """Processor time of one epoch of some votes, through all eight views."""
    random, spent = Random(2), list[float]()
    with bench.database("relaxed") as db:
        epochs.fill(db, VIEWS)
        term = Epochs(db.store).acquire().term
        for number in range(1 + runs * bench.size.pick(10, 5, 1)):
            db.put("votes", [epochs.vote(random) for _ in range(size)])
            gc.collect()
            began = time.process_time()
            advance(db.store, term, Limits())
            if number:  # the first epoch warms up
                spent.append(time.process_time() - began)
        check(db, bench)
    return Outcome({"epoch, processor ms": [1e3 * seconds for seconds in spent]})


def at_rest(bench: Bench, runs: int) -> Outcome:
    """One durable vote, then quiet: the time until its epoch is published."""
    random, spent = Random(2), list[float]()
    with running(bench) as db:
        for _ in range(runs * bench.size.pick(20, 10, 2)):
            time.sleep(IDLE_SECONDS)
            began = time.perf_counter()
            db.put("votes", epochs.vote(random))
            db.wait(timeout=WAIT_SECONDS)
            spent.append(1e3 * (time.perf_counter() - began))
        check(db, bench)
    return Outcome({"vote until seen, ms": spent})


def under_load(bench: Bench, runs: int) -> Outcome:
    """Votes at a steady load: how long a wait for all of them takes, and what a read takes."""
    waits, figures = list[float](), dict[str, list[float]]()
    with running(bench) as db, Reader(db) as reader:
        traffic = Traffic(db, VOTES_PER_SECOND, lambda _: None)
        began = time.perf_counter()
        traffic.start()
        try:
            until = began + 4 * bench.size.seconds * runs
            while time.perf_counter() < until:
                asked = time.perf_counter()
                db.wait(timeout=WAIT_SECONDS)
                waits.append(time.perf_counter() - asked)
                time.sleep(0.02)
        finally:
            traffic.stop()
        reached = traffic.written / (time.perf_counter() - began)
        reads = reader.end()
        db.wait(timeout=WAIT_SECONDS)
        check(db, bench)
    beside = {f"{name} beside": seconds for name, seconds in reads.items()}
    for name, seconds in {"wait": waits, **beside}.items():
        figures |= {f"{name} {label}, ms": [value] for label, value in quantiles(seconds)}
    figures["written operations/s"] = [reached]
    return Outcome(figures)


@contextmanager
def running(bench: Bench) -> Iterator[Database]:
    """The site, durable, with a pipeline that has settled."""
    with bench.database() as db:
        epochs.fill(db, VIEWS)
        with bench.pipeline(db):
            random = Random(5)
            for _ in range(bench.size.pick(20, 20, 2)):
                db.put("votes", epochs.vote(random))
                db.wait(timeout=WAIT_SECONDS)
            bench.settle(db)
            yield db


def check(db: Database, bench: Bench) -> None:
    """Every view equals its query, recomputed."""
    for found in db.verify(spark=bench.spark()):
        if not found.ok:
            raise Wrong(str(found))


class Reader:
    """Another process that reads scores by key, at a steady pace, until it is ended."""

    def __init__(self, db: Database):
        script = str(Path(shared.reader.__file__))
        command = [sys.executable, script, db.url, "story_scores", str(STORIES)]
        self._process = subprocess.Popen(
            [*command, str(READS_PER_SECOND)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Reader:
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is ready
        return self

    def __exit__(self, *ended: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def end(self) -> dict[str, list[float]]:
        """Seconds of each read, and of counting for as long as a read usually takes."""
        output, _ = self._process.communicate()
        found: dict[str, list[float]] = json.loads(output)
        return found
