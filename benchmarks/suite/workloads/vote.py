"""Votes counted by story, and joined to stories: the workload of Noria's figure 2."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import polars as pl
from peers.offered import offer

from suite.bench import Bench
from suite.contract import OURS, Experiment, Outcome, Workload
from suite.data import ZIPF, draw, stories, votes
from suite.task import ANSWER, Task, inserts
from viewkeep.database import Database

VOTES = {"vote": "BIGINT", "story": "BIGINT"}
STORIES = {"story": "BIGINT", "title": "STRING"}
COUNT = "SELECT story, COUNT(*) AS votes FROM votes GROUP BY story"
JOINED = f"SELECT s.story, s.title, v.votes FROM stories s JOIN ({COUNT}) v ON s.story = v.story"
WAIT_SECONDS = 120.0


class Vote(Workload):
    """How many votes a second are counted, and how long a reader and a voter wait meanwhile?"""

    name = "vote"

    def experiments(self, bench: Bench) -> list[Experiment]:
        size = bench.size
        count = size.operations
        many = size.pick(50_000, 10_000, 100)
        found = [bench.experiment(f"count by story, Zipf {ZIPF}", counting(count, many, True))]
        few = size.pick(("flink-rocksdb",), (), ())
        found.append(bench.experiment("count by story, uniform", counting(count, many, False), few))
        peers = size.pick(("flink-rocksdb", "pathway"), ("flink-rocksdb",), ())
        found.append(bench.experiment("counts joined to stories", joining(count, many), peers))
        for reads in size.pick((95, 50), (95,), (95,)):
            for load in size.pick((1_000, 5_000), (1_000,), (200,)):
                found.append(self._mix(bench, reads, load, many))
        return found

    def _mix(self, bench: Bench, reads: int, load: int, many: int) -> Experiment:
        task = mixing(int(load * bench.size.seconds), many, reads)
        systems = {OURS: partial(mixed, bench, task, load)}
        peers = bench.peer_systems(task, load=load)
        axis = ("operations/s offered", float(load))
        return Experiment(f"mix of {reads}/{100 - reads}", systems | peers, task.expected, axis)


def counting(count: int, many: int, zipf: bool) -> Task:
    return Task(
        "count",
        {"votes": VOTES},
        {ANSWER: COUNT},
        lambda: inserts(votes=votes(count, many, zipf)),
    )


def joining(count: int, many: int) -> Task:
    return Task(
        "joined",
        {"stories": STORIES, "votes": VOTES},
        {ANSWER: JOINED},
        lambda: inserts(stories=stories(many), votes=votes(count, many, True)),
    )


def mixing(count: int, many: int, reads: int) -> Task:
    """Operations of a mix as a table, and the counts that its votes leave."""

    def rows() -> pl.DataFrame:
        random = np.random.default_rng(3)
        kinds = np.where(random.random(count) < reads / 100, "r", "w")
        chosen = draw(random, many, count, True)
        return pl.DataFrame({"vote": np.arange(count), "kind": kinds, "story": chosen})

    return Task(
        "mix",
        {"mix": {"vote": "BIGINT", "kind": "STRING", "story": "BIGINT"}},
        {ANSWER: "SELECT story, COUNT(*) AS votes FROM mix WHERE kind = 'w' GROUP BY story"},
        lambda: inserts(mix=rows()),
    )


def mixed(bench: Bench, task: Task, load: int, runs: int) -> Outcome:
    """The mix on viewkeep: durable single-row writes, reads of the published view, a pipeline."""
    operations = task.final()["mix"].select("kind", "story").rows()
    samples: dict[str, list[float]] = {}
    with bench.database() as db:
        db.sql(
            "CREATE TABLE votes (run BIGINT, vote BIGINT, story BIGINT, PRIMARY KEY (run, vote))"
        )
        for run in range(runs):
            counted = COUNT.replace("GROUP", f"WHERE run = {run} GROUP")
            db.sql(f"CREATE VIEW answer{run} AS {counted}")
        with bench.pipeline(db):
            db.put("votes", {"run": -1, "vote": 0, "story": 0})
            bench.settle(db)
            for run in range(runs):
                read = partial(db.get, f"answer{run}")
                figures = offer(operations, load, read, partial(_vote, db, run))
                began = time.perf_counter()
                db.wait(timeout=WAIT_SECONDS)
                figures["all published after, s"] = time.perf_counter() - began
                for name, value in figures.items():
                    samples.setdefault(name, []).append(value)
            return Outcome(samples, {ANSWER: db.scan(f"answer{runs - 1}").polars()})


def _vote(db: Database, run: int, vote: int, story: int) -> None:
    db.put("votes", {"run": run, "vote": vote, "story": story})
