"""Epochs that fail on Spark: workers that die or hang, failures that pass, views set aside."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from viewkeep import Database
from viewkeep.engine import recovery
from viewkeep.engine.failures import trouble_of
from viewkeep.engine.programs import newest_plan
from viewkeep.errors import PipelineError, ViewFailed
from viewkeep.spark import pipeline as pipeline_module

SITE = Path(__file__).parent.parent / "engine" / "poisoned_site"
SECONDS = 120.0

Change = Callable[[random.Random], None]


def run_once(db: Database, poison: str, *options: str) -> None:
    """A pipeline in processes where md5('poison') does what it is told to."""
    command = [
        sys.executable,
        "-c",
        "from viewkeep.cli import main; main()",
        "run",
        db.url,
        "--once",
    ]
    paths = [str(SITE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "VIEWKEEP_POISON": poison}
    options = ("--master", "local[2]", *options)
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def words(db: Database) -> Database:
    db.sql("""
        CREATE TABLE words (id BIGINT PRIMARY KEY, word STRING);
        CREATE VIEW counted AS SELECT word, COUNT(*) AS n FROM words GROUP BY word;
        CREATE VIEW lengths AS SELECT length(word) AS size, SUM(n) AS n FROM counted GROUP BY 1;
        CREATE VIEW hashed AS SELECT id, md5(word) AS h FROM words;
    """)
    db.put("words", [{"id": number, "word": f"w{number % 7}"} for number in range(50)])
    return db


@pytest.mark.parametrize(
    ("poison", "reason", "options"),
    [
        ("die", "the process ended \\(signal 9\\)", ("--failures", "2")),
        pytest.param(
            *("loop", "it ran for more than 5 s", ("--epoch-seconds", "5")),
            marks=pytest.mark.faults,  # it takes a minute
        ),
    ],
)
def test_a_worker_that_dies_or_hangs(
    words: Database, spark: SparkSession, poison: str, reason: str, options: tuple[str, ...]
) -> None:
    words.pipeline(spark=spark).run_once()
    words.put("words", [{"id": 100, "word": "poison"}, {"id": 101, "word": "w1"}])
    run_once(words, poison, *options)
    with pytest.raises(ViewFailed, match=reason):
        words.get("hashed", 1)
    assert [verdict.view for verdict in words.verify(spark=spark)] == ["counted", "lengths"]
    assert all(verdict.ok for verdict in words.verify(spark=spark))
    words.delete("words", 100)
    assert words.repair() == ("hashed",)
    words.pipeline(spark=spark).run_once()
    verdicts = words.verify(spark=spark)
    assert len(verdicts) == 3
    assert all(verdict.ok for verdict in verdicts)


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Have the next attempts of epochs fail."""
    run, attempts = pipeline_module.Pipeline._run_on_spark, list[int]()

    def fail(self: Any, epoch: Any) -> Any:
        attempts.append(epoch.epoch)
        if len(attempts) <= times:
            raise RuntimeError("an executor was lost")
        return run(self, epoch)

    monkeypatch.setattr(pipeline_module.Pipeline, "_run_on_spark", fail)
    return attempts


def test_a_failure_that_passes_is_no_fault_of_a_view(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = failing(monkeypatch, times=2)
    words.pipeline(spark=spark).run_once()
    assert attempts == [1, 1, 1]
    assert trouble_of(words.store) is None
    assert all(verdict.ok for verdict in words.verify(spark=spark))


def test_one_that_does_not_pass_ends_a_run_that_only_catches_up(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = failing(monkeypatch, times=100)
    with pytest.raises(PipelineError, match="an executor was lost"):
        words.pipeline(spark=spark, failures=2).run_once()
    assert attempts == [1, 1]
    assert "2 times since epoch 0: an epoch failed: an executor was lost (no view fails" in str(
        words.status().trouble
    )
    assert not newest_plan(words.store).failed
    monkeypatch.undo()
    words.pipeline(spark=spark).run_once()
    assert words.status().trouble is None


def test_whoever_waits_is_told(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, times=100)
    with words.pipeline(spark=spark, failures=2) as pipeline:
        with pytest.raises(PipelineError, match="an executor was lost; the pipeline goes on"):
            pipeline.wait(SECONDS)
        pipeline.check()
        monkeypatch.undo()
        monkeypatch.setattr(recovery, "find_culprits", lambda *given: {})
        words.wait(SECONDS)
        pipeline.wait(SECONDS)


def test_the_query_goes_on_after_failures(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with words.pipeline(spark=spark, failures=3, resident=False) as pipeline:
        number = 0
        while not pipeline._asked.wait(0.1):  # until the query runs the epochs
            pipeline.check()
            number += 1
            words.put("words", {"id": 1000 + number, "word": "more"})
        pipeline.wait(SECONDS)
        attempts = failing(monkeypatch, times=1)
        words.put("words", {"id": 1, "word": "again"})
        published = pipeline.wait(SECONDS)
        assert attempts[:2] == [published.epoch] * 2
        # Now one that blames a view.
        hashed = newest_plan(words.store).program.placements["hashed"]
        (operator,) = hashed.operators
        monkeypatch.setattr(recovery, "find_culprits", lambda *given: {operator: "a bad row"})
        failing(monkeypatch, times=3)
        words.put("words", {"id": 2, "word": "bad"})
        pipeline.wait(SECONDS)
        with pytest.raises(ViewFailed, match="a bad row"):
            words.get("hashed", 1)
        words.put("words", {"id": 3, "word": "good"})
        words.repair()
        pipeline.wait(SECONDS)
        assert words.get("hashed", 1) is not None
    assert all(verdict.ok for verdict in words.verify(spark=spark))


def test_dropping_the_view_helps_at_once(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pipeline_module.Pipeline._run_on_spark

    def fail(self: Any, epoch: Any) -> Any:
        if "hashed" in newest_plan(words.store).views:
            words.sql("DROP VIEW hashed")  # somebody does, while the epoch fails
            raise RuntimeError("a bad row")
        return run(self, epoch)

    monkeypatch.setattr(pipeline_module.Pipeline, "_run_on_spark", fail)
    published = words.pipeline(spark=spark, failures=100).run_once()
    assert published.epoch == 2
    assert all(verdict.ok for verdict in words.verify(spark=spark))


def test_an_epoch_that_a_driver_left_behind_counts(words: Database, spark: SparkSession) -> None:
    """Drivers that die with the epoch: after some, the next one looks before it runs it."""
    term = words.epochs.acquire()
    assert words.epochs.open_next(term.term, pipeline_module.MOST) is not None
    words.epochs.release(term)
    found = list[int]()
    recover = recovery.find_culprits

    def look(*given: Any) -> dict[str, str]:
        found.append(given[1].epoch)
        return recover(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "find_culprits", look)
        words.pipeline(spark=spark, failures=1).run_once()
    assert found == [1]
    assert not newest_plan(words.store).failed
    assert all(verdict.ok for verdict in words.verify(spark=spark))


def test_a_slow_epoch_that_blames_nobody_gets_more_time(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, allowed = pipeline_module.Pipeline._run_on_spark, list[float]()

    def slow(self: Any, epoch: Any) -> Any:
        allowed.append(self._allowed)
        if len(allowed) < 3:
            self._overdue = True
            raise RuntimeError("the job was cancelled")
        self._overdue = False
        return run(self, epoch)

    monkeypatch.setattr(pipeline_module.Pipeline, "_run_on_spark", slow)
    monkeypatch.setattr(recovery, "find_culprits", lambda *given: {})
    pipeline = words.pipeline(spark=spark, epoch_seconds=100)
    pipeline.run_once()
    assert allowed[:3] == [100, 200, 400]
    assert pipeline._allowed == 100
