"""Pipelines on Spark over awkward logs, proved by Spark SQL and by the live tables."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeep
from viewkeep import Database
from viewkeep.engine import pace
from viewkeep.engine.local import catch_up
from viewkeep.stores.contract import StateWrite

from .logs import WORST

SECONDS = 60.0


def tables(db: Database) -> None:
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, value DECIMAL(9,2))")
    db.sql("CREATE TABLE stories (id BIGINT PRIMARY KEY, title STRING)")
    db.sql("CREATE VIEW scores AS SELECT story, SUM(value) AS total FROM votes GROUP BY story")
    db.sql("""CREATE VIEW titled AS SELECT v.id, s.title, v.value
              FROM votes v JOIN stories s ON v.story = s.id""")


def change(db: Database, source: random.Random) -> None:
    for _ in range(60):
        number = source.randrange(80)
        if source.random() < 0.2:
            db.delete("votes", number)
        elif source.random() < 0.3:
            db.put("stories", {"id": number % 7, "title": source.choice(["a", "b", None])})
        else:
            db.put("votes", {"id": number, "story": number % 7, "value": source.randrange(9)})


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ("logs=3,lose=30,rivals=20", False),
        pytest.param("logs=3,lose=30,rivals=20", True, marks=pytest.mark.long),
        pytest.param(WORST, True, marks=pytest.mark.long),
        pytest.param(WORST, False, marks=pytest.mark.long),
    ],
)
def test_a_pipeline(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    alone: bool,
) -> None:
    if not alone:
        monkeypatch.setattr(pace, "ALONE_ROWS", -1)
    source = random.Random(1)
    url = f"awkward:{options}:{tmp_path}/a.vk"
    with viewkeep.make(url, nodes=2, shards=2, durability="relaxed") as db:
        tables(db)
        with db.pipeline(spark=spark) as pipeline:
            for _ in range(2 if alone else 1):
                change(db, source)
                pipeline.wait(SECONDS)
                verdicts = db.verify(spark=spark)
                assert [verdict.view for verdict in verdicts] == ["scores", "titled"]
                assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


def test_verify_compares_delta_with_the_live_table(tmp_path: Path, spark: SparkSession) -> None:
    url = f"awkward:{WORST}:{tmp_path}/a.vk"
    with viewkeep.make(url, nodes=2, shards=2, durability="relaxed") as db:
        tables(db)
        change(db, random.Random(2))
        catch_up(db.store)
        assert all(verdict.ok for verdict in db.verify(spark=spark))
        program = db.catalog.current().program
        (delta,) = (one for one, _ in program.consumers("table:1"))
        epoch, number = db.epochs.read().published.epoch, delta.rows_table.number
        for shard in range(2):
            found = db.store.state.scan(shard, number, limit=1, at=epoch).keys
            lost = [StateWrite(number, found, [None] * len(found))]
            db.store.state.apply(shard, epoch, epoch - 1, lost)
        wrong = {verdict.view: verdict for verdict in db.verify(spark=spark) if not verdict.ok}
        assert "rows are not what its log has brought" in str(wrong["table votes"].problem)
        assert "scores" in wrong
