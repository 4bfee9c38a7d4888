"""Resident epochs on Spark: killed, fenced, poisoned, crowded out by a backlog, and stopped."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from viewkeep import Database
from viewkeep.engine import pace
from viewkeep.engine.epochs import Epochs, OpenEpoch, Published
from viewkeep.engine.failures import trouble_of
from viewkeep.engine.report import Report
from viewkeep.errors import Fenced, PipelineError, ViewFailed
from viewkeep.spark import pipeline as pipeline_module
from viewkeep.spark.pipeline import Pipeline

from .test_faults import command, descendants, parent

SITE = Path(__file__).parent.parent / "engine" / "poisoned_site"
SECONDS = 120.0

Change = Callable[[random.Random], None]


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def is_resident(db: Database) -> bool:
    """Whether a resident's attempt has the epochs."""
    raw = db.store.meta.get("resident")
    return raw is not None and b'"attempt": ""' not in raw


def await_resident(db: Database) -> None:
    until(lambda: is_resident(db), "no resident has started")


@pytest.fixture
def words(db: Database) -> Database:
    db.sql("""
        CREATE TABLE words (id BIGINT PRIMARY KEY, word STRING);
        CREATE VIEW counted AS SELECT word, COUNT(*) AS n FROM words GROUP BY word;
        CREATE VIEW lengths AS SELECT length(word) AS size, SUM(n) AS n FROM counted GROUP BY 1;
        CREATE VIEW hashed AS SELECT id, md5(word) AS h FROM words;
    """)
    return db


def put(db: Database, numbers: range) -> None:
    db.put("words", [{"id": number, "word": f"w{number % 7}"} for number in numbers])


def check(db: Database, spark: SparkSession) -> None:
    verdicts = db.verify(spark=spark)
    assert len(verdicts) == len(db.views())
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


@pytest.fixture
def by_jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that run as jobs of their own, in one task or by stages."""
    found: list[int] = []
    run = Pipeline._run_on_spark

    def noted(self: Pipeline, epoch: OpenEpoch) -> list[Report]:
        found.append(epoch.epoch)
        return run(self, epoch)

    monkeypatch.setattr(Pipeline, "_run_on_spark", noted)
    return found


def test_small_epochs_are_no_jobs(words: Database, spark: SparkSession, by_jobs: list[int]) -> None:
    seen: list[Published] = []
    with words.pipeline(spark=spark, on_epoch=seen.append) as pipeline:
        await_resident(words)
        jobs = len(by_jobs)
        for number in range(20):
            put(words, range(number, number + 1))
            pipeline.wait(SECONDS)
        last = words.epochs.read().published
        until(lambda: seen[-1] == last, "the last epoch is not reported")
        assert len(by_jobs) == jobs
    assert [published.epoch for published in seen] == list(range(1, last.epoch + 1))
    assert last.epoch >= jobs + 20
    check(words, spark)


def test_a_backlog_runs_on_all_cores_and_then_the_resident_goes_on(
    words: Database, spark: SparkSession, by_jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "ALONE_ROWS", 2_000)
    stages: list[int] = []
    run_epoch = pipeline_module.run_epoch

    def noted(*given: Any) -> Any:
        stages.append(given[2].epoch)
        return run_epoch(*given)

    monkeypatch.setattr(pipeline_module, "run_epoch", noted)
    with words.pipeline(spark=spark) as pipeline:
        await_resident(words)
        for turn in range(2):
            put(words, range(10))
            pipeline.wait(SECONDS)
            before = len(stages)
            put(words, range(1000 * turn, 1000 * turn + 5_000))
            published = pipeline.wait(SECONDS)
            assert stages[before:] == by_jobs[-1:] == [published.epoch]
            await_resident(words)
            put(words, range(10))
            assert pipeline.wait(SECONDS).epoch > published.epoch
            assert stages[before:] == [published.epoch]
    check(words, spark)


def test_views_are_loaded_beside_a_resident(words: Database, spark: SparkSession) -> None:
    put(words, range(500))
    with words.pipeline(spark=spark) as pipeline:
        await_resident(words)
        words.sql("CREATE VIEW late AS SELECT word, MAX(id) AS last FROM words GROUP BY word")
        put(words, range(500, 510))
        pipeline.wait(SECONDS)
        assert words.get("late", "w3") == {"word": "w3", "last": 507}
        await_resident(words)
        words.sql("DROP VIEW late")
        put(words, range(510, 520))
        pipeline.wait(SECONDS)
        assert is_resident(words)
    check(words, spark)


def test_a_stale_driver_is_fenced_by_its_resident(words: Database, spark: SparkSession) -> None:
    with words.pipeline(spark=spark) as stale:
        await_resident(words)
        stale.wait(SECONDS)
        lease = stale._lease
        assert lease is not None
        epochs = Epochs(words.store)
        epochs.release(lease)  # as if its lease had run out while it slept
        successor = epochs.acquire()
        before = epochs.read()
        put(words, range(10))
        with pytest.raises(Fenced):
            stale.wait(SECONDS)
        assert epochs.read() == before
    epochs.release(successor)
    words.pipeline(spark=spark).run_once()
    check(words, spark)


def test_stop_ends_the_resident_at_once(words: Database, spark: SparkSession) -> None:
    pipeline = words.pipeline(spark=spark).start()
    await_resident(words)
    began = time.monotonic()
    pipeline.stop()
    assert time.monotonic() - began < 10.0
    assert not is_resident(words)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    words.pipeline(spark=spark).run_once()  # the lease was given back


def test_what_on_epoch_raises_ends_the_pipeline(words: Database, spark: SparkSession) -> None:
    def refuse(published: Published) -> None:
        if is_ready.is_set():
            raise ValueError("not this one")

    is_ready = threading.Event()
    with words.pipeline(spark=spark, on_epoch=refuse) as pipeline:
        await_resident(words)
        is_ready.set()
        put(words, range(10))
        assert pipeline._ended.wait(SECONDS)
    with pytest.raises(PipelineError, match="not this one"):
        pipeline.check()
    assert not is_resident(words)


def test_turns_follow_each_other_without_work(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "RESIDENT_SECONDS", 0.2)
    with words.pipeline(spark=spark) as pipeline:
        ids = set[bytes]()

        def turns() -> int:
            raw = words.store.meta.get("resident")
            if raw is not None:
                ids.add(raw[:42])
            return len(ids)

        until(lambda: turns() > 3, "there are no turns")
        put(words, range(10))
        pipeline.wait(SECONDS)
    check(words, spark)


def test_residents_that_fail_without_an_epoch_end_the_pipeline(
    words: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def lost(*given: Any, **options: Any) -> Any:
        tried.append(1)
        raise RuntimeError("an executor was lost")

    with words.pipeline(spark=spark, failures=2) as pipeline:
        pipeline.wait(SECONDS)
        monkeypatch.setattr(pipeline_module, "run_resident", lost)
        assert pipeline._ended.wait(SECONDS)
        with pytest.raises(PipelineError, match="an executor was lost"):
            pipeline.check()
    assert len(tried) == 2


# -- processes that are killed -----------------------------------------------------------------


@contextmanager
def running(db: Database, *options: str, poison: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """`viewkeep run` as a process, where md5('poison') does what it is told to."""
    paths = [str(SITE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "VIEWKEEP_POISON": poison}
    code = "from viewkeep.cli import main; main()"
    arguments = [sys.executable, "-c", code, "run", db.url, "--master", "local[2]", *options]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: is_resident(db) or process.poll() is not None, "no resident has started")
            assert process.poll() is None
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(SECONDS)


def workers_of(driver: int) -> list[int]:
    daemons = [
        pid
        for pid in descendants(driver)
        if b"viewkeep.spark.daemon" in command(pid) and b"pyspark.worker" in command(pid)
    ]
    return [pid for pid in daemons if parent(pid) in daemons]


def test_a_resident_that_is_killed_is_run_again(words: Database, spark: SparkSession) -> None:
    """At random moments, with epochs under way; Spark runs the task again, the driver goes on."""
    source, number = random.Random(1), 0
    with running(words) as driver:
        for _ in range(4):
            raw = words.store.meta.get("resident")
            writing = time.monotonic() + source.uniform(0.05, 0.5)
            while time.monotonic() < writing:
                put(words, range(number, number + 5))
                number += 5
            for pid in workers_of(driver.pid):
                os.kill(pid, signal.SIGKILL)
            put(words, range(number, number + 5))
            number += 5
            words.wait(SECONDS)
            until(lambda raw=raw: words.store.meta.get("resident") != raw, "no new attempt")
        assert trouble_of(words.store) is None
    assert driver.returncode == 0
    check(words, spark)


def test_the_resident_of_a_killed_driver_ends(words: Database, spark: SparkSession) -> None:
    with running(words) as driver:
        workers = workers_of(driver.pid)
        assert workers
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait(SECONDS)
        until(lambda: all(not command(pid) for pid in workers), "a worker goes on")
    put(words, range(20))
    words.pipeline(spark=spark).run_once()
    check(words, spark)


@pytest.mark.parametrize(
    ("poison", "reason", "options"),
    [
        ("raise", "the well is poisoned", ("--failures", "1")),
        ("die", "the process ended \\(signal 9\\)", ("--failures", "1")),
        pytest.param(
            *("loop", "it ran for more than 5 s", ("--epoch-seconds", "5")),
            marks=pytest.mark.faults,  # it takes a minute
        ),
    ],
)
def test_a_view_that_fails_in_a_resident_is_set_aside(
    words: Database, spark: SparkSession, poison: str, reason: str, options: tuple[str, ...]
) -> None:
    put(words, range(50))
    with running(words, *options, poison=poison):
        words.put("words", [{"id": 100, "word": "poison"}, {"id": 101, "word": "w1"}])
        words.wait(SECONDS)
        with pytest.raises(ViewFailed, match=reason):
            words.get("hashed", 1)
        await_resident(words)
        put(words, range(200, 210))
        words.wait(SECONDS)
        words.delete("words", 100)
        assert words.repair() == ("hashed",)
        until(lambda: words.epochs.ready("hashed"), "it is not repaired")
    assert len(words.verify(spark=spark)) == 3
    check(words, spark)
