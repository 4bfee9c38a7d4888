"""Where the time of an epoch goes, and what the store and Arrow alone could do with the same rows.

One process without Spark: votes counted by story, and a selection kept row by row. For each, the
seconds of the levels; beside it the least that must be done by anyone with these libraries: reading
the log's bytes, decoding them to columns, grouping them, and putting the rows of the result into
LMDB in key order. Then single writes through Spark, step by step.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as in a Spark worker

import lmdb
import numpy as np
import polars as pl
from shared.measure import SCORES, VOTES, database, show, warm

from viewkeep.codec.rows import RowCodec
from viewkeep.database import Database
from viewkeep.engine.epochs import Epochs, Limits, Published
from viewkeep.engine.local import run_epoch
from viewkeep.stores.contract import START

KEPT = "CREATE VIEW recent AS SELECT id, story FROM votes WHERE story % 2 = 0"
STORIES = 50_000
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=500_000)
    parser.add_argument("--writes", type=int, default=20, help="single writes through Spark")
    arguments = parser.parse_args()
    for name, view in (("counted by story", SCORES), ("kept row by row", KEPT)):
        show(name, alone(view, arguments.operations))
    show("a single write, with a resident", through_spark(arguments.writes, True))
    show("a single write, a job for each epoch", through_spark(arguments.writes, False))


def alone(view: str, operations: int) -> dict[str, float | int | str]:
    """The levels of one epoch in this process, and the least there is to do."""
    with database("relaxed") as db:
        db.sql(VOTES)
        db.sql(view)
        advance(db, 1)  # the plan is loaded then
        chosen = np.random.default_rng(1).zipf(1.2, operations) % STORIES
        votes = pl.DataFrame({"id": np.arange(operations), "story": chosen})
        for part in votes.iter_slices(20_000):
            db.put("votes", part)
        spent, (published, reports) = timed(lambda: advance(db, operations))
        levels = {report.level: 0.0 for report in reports}
        for report in reports:
            levels[report.level] += report.seconds
        rows = db.scan(db.views()[0]).polars()
        floor = least(db, published, rows)
    total = sum(floor.values())
    return {
        "operations": operations,
        "operations/s": operations / spent,
        "rows written": sum(report.rows_written for report in reports),
        **{f"level {level}, s": seconds for level, seconds in sorted(levels.items())},
        "opening and publishing, s": max(0.0, spent - sum(levels.values())),
        **{f"at least: {what}, s": seconds for what, seconds in floor.items()},
        "distance from the least": spent / total,
    }


def advance(db: Database, operations: int) -> tuple[Published, list]:
    epochs = Epochs(db.store)
    lease = epochs.acquire()
    epoch = epochs.open_next(lease.term, Limits(operations=operations))
    assert epoch is not None
    reports = run_epoch(db.store, epoch)
    published = epochs.publish(lease.term, epoch, reports)
    epochs.release(lease)
    return published, reports


def least(db: Database, published: Published, result: pl.DataFrame) -> dict[str, float]:
    """What the same rows cost without anything of ours around it."""
    spent: dict[str, float] = {}
    splits = db.store.log.splits(START, published.cut)

    def read() -> list:
        return [batch for split in splits for batch in db.store.log.read(split)]

    spent["reading the log"], batches = timed(read)
    codec = RowCodec(db.schema("votes").columns)
    spent["decoding it"], frames = timed(lambda: [codec.decode(batch.rows) for batch in batches])
    votes = pl.concat(frames)
    if "votes" in result.columns:
        spent["grouping"], _ = timed(lambda: votes.group_by("story").agg(pl.len()))
    else:
        spent["selecting"], _ = timed(lambda: votes.filter(pl.col("story") % 2 == 0))
    first = result.columns[0]
    keys = result[first].to_numpy().astype(">u8")
    keys = [bytes(key) for key in np.sort(keys).view("V8")]
    values = [bytes(40)] * len(keys)
    with empty_lmdb() as (env, table):

        def put() -> None:
            with env.begin(write=True) as txn, txn.cursor(table) as cursor:
                cursor.putmulti(zip(keys, values, strict=True))

        spent["putting the result into LMDB"], _ = timed(put)
    return spent


@contextmanager
def empty_lmdb() -> Iterator[tuple]:
    with (
        tempfile.TemporaryDirectory(prefix="viewkeep-bench-") as folder,
        lmdb.open(str(Path(folder)), map_size=1 << 30, max_dbs=1, sync=False) as env,
    ):
        yield env, env.open_db(b"rows")


def through_spark(writes: int, resident: bool) -> dict[str, float | int | str]:
    """From a write until a reader sees it, and what of that the epoch took."""
    spark = warm()
    seen: list[Published] = []
    waited: list[float] = []
    with database("full") as db:
        db.sql(VOTES)
        db.sql(SCORES)
        with db.pipeline(spark=spark, resident=resident, on_epoch=seen.append) as pipeline:
            pipeline.wait(timeout=60)
            if resident:
                while db.store.meta.get("resident") is None:  # until its first turn
                    time.sleep(0.1)
            for number in range(writes):
                began = time.perf_counter()
                db.put("votes", {"id": number, "story": 1})
                db.wait(timeout=60)
                waited.append(time.perf_counter() - began)
    spark.stop()
    epochs = seen[-writes:]
    return {
        "writes": writes,
        "until it is seen, s": median(waited),
        "of that the epoch, s": median([epoch.seconds for epoch in epochs]),
        "of that the levels, s": median([sum(epoch.levels) for epoch in epochs]),
    }


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    made = work()
    return time.perf_counter() - began, made


if __name__ == "__main__":
    main()
