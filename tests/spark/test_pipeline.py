"""The pipeline on Spark: it publishes what Spark SQL computes, whatever interrupts it."""

from __future__ import annotations

import gc
import queue
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from viewkeep import Database
from viewkeep.engine import log_splits, pace
from viewkeep.engine.epochs import Epochs, Limits, Published
from viewkeep.engine.lease import Lease
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.local import advance
from viewkeep.engine.log_splits import whole_logs
from viewkeep.engine.report import Report
from viewkeep.errors import Fenced, PipelineError, StoreError, Timeout, ViewFailed
from viewkeep.spark import pipeline as pipeline_module
from viewkeep.spark.pipeline import Pipeline
from viewkeep.stores import open_store
from viewkeep.stores.contract import StateWrite, Store

Change = Callable[[random.Random], None]
SECONDS = 60.0


def assert_verified(db: Database, spark: SparkSession) -> None:
    verdicts = db.verify(spark=spark)
    assert len(verdicts) == len(db.views())
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


@pytest.fixture
def by_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch runs as a stage for each level, and logs are cut, however small it is."""
    monkeypatch.setattr(pace, "ALONE_ROWS", -1)
    monkeypatch.setattr(log_splits, "_LEAST", 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_views_equal_spark_sql_at_every_epoch(
    site: Database, change: Change, spark: SparkSession, seed: int
) -> None:
    source = random.Random(seed)
    with site.pipeline(spark=spark) as pipeline:
        for _ in range(3):
            change(source)
            pipeline.wait(SECONDS)
            assert_verified(site, spark)


@pytest.mark.usefixtures("by_stages")
@pytest.mark.parametrize("seed", [3, 4])
def test_views_are_the_same_by_stages(
    site: Database, change: Change, spark: SparkSession, seed: int
) -> None:
    test_views_equal_spark_sql_at_every_epoch(site, change, spark, seed)


@pytest.mark.usefixtures("by_stages")
@pytest.mark.parametrize(
    "others", [(), ("SELECT g, MAX(x) AS high, COUNT(*) AS n FROM t GROUP BY g",)]
)
def test_the_log_of_a_hot_row_is_cut(
    db: Database, spark: SparkSession, others: tuple[str, ...]
) -> None:
    """A view that level 0 writes where logs are whole is written by level 1 then."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x INT)")
    for number, text in enumerate(("SELECT id, x FROM t WHERE x > 10", *others)):
        db.sql(f"CREATE VIEW v{number} AS {text}")
    seen: list[Published] = []
    pipeline = db.pipeline(spark=spark, on_epoch=seen.append)
    pipeline.run_once()
    db.put("t", [{"id": number, "g": number % 3, "x": number} for number in range(20)])
    for number in range(100):
        db.put("t", {"id": 7, "g": number % 2, "x": number})
    pipeline.run_once()
    assert len(seen[-1].levels) == 2
    assert db.get("v0", 7) == {"id": 7, "x": 99}
    assert_verified(db, spark)


def test_an_epoch_that_outgrows_one_task_runs_by_stages(
    site: Database, change: Change, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def outgrown(*given: object) -> None:
        tried.append(1)

    monkeypatch.setattr(pipeline_module, "run_alone", outgrown)
    with site.pipeline(spark=spark) as pipeline:
        pipeline.wait(SECONDS)
        change(random.Random(5))
        pipeline.wait(SECONDS)
    assert tried
    assert_verified(site, spark)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_histories(site: Database, change: Change, spark: SparkSession, seed: int) -> None:
    test_views_equal_spark_sql_at_every_epoch(site, change, spark, seed)


def test_once_catches_up_and_stops(site: Database, change: Change, spark: SparkSession) -> None:
    change(random.Random(3))
    published = site.pipeline(spark=spark).run_once()
    assert published.cut.positions == site.store.log.head().positions
    assert site.pipeline(spark=spark).run_once() == published  # nothing to do: no epoch


def test_once_ends_though_writes_go_on(db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    for n in range(30):
        db.put("t", {"id": n, "x": 1})

    def write_more(published: Published) -> None:
        db.put("t", {"id": 1000 + published.epoch, "x": 2})

    Pipeline(db, spark=spark, max_operations=10, on_epoch=write_more).run_once()
    assert db.epochs.read().published.cut.positions != db.store.log.head().positions
    assert db.get("v", 1) == {"x": 1, "n": 30}


@pytest.fixture
def asked_at(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[Published]:
    """What was published when a pipeline started its query."""
    found: queue.Queue[Published] = queue.Queue()
    start_query = Pipeline._start_query

    def noted(pipeline: Pipeline, lease: Lease) -> StreamingQuery:
        found.put(Epochs(pipeline._store).read().published)
        return start_query(pipeline, lease)

    monkeypatch.setattr(Pipeline, "_start_query", noted)
    return found


def test_the_query_starts_when_nothing_is_left_to_do(
    site: Database, change: Change, spark: SparkSession, asked_at: queue.Queue[Published]
) -> None:
    change(random.Random(12))
    head = site.store.log.head()
    with site.pipeline(spark=spark, max_operations=10) as pipeline:
        published = asked_at.get(timeout=SECONDS)
        assert published.cut.positions == head.positions
        change(random.Random(13))  # while the query starts
        pipeline.wait(SECONDS)
    assert_verified(site, spark)


def test_the_query_starts_though_there_is_always_something_to_do(
    site: Database,
    spark: SparkSession,
    asked_at: queue.Queue[Published],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_module, "HEAD_SECONDS", 0.0)

    def write_more(published: Published) -> None:
        site.put("votes", {"id": published.epoch % 50, "story": published.epoch % 7, "value": 1})

    with site.pipeline(spark=spark, on_epoch=write_more) as pipeline:
        asked_at.get(timeout=SECONDS)
        assert pipeline._asked.wait(SECONDS)  # it runs epochs


def test_a_backlog_goes_before_the_query(
    db: Database,
    spark: SparkSession,
    asked_at: queue.Queue[Published],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_module, "HEAD_SECONDS", 0.001)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    for n in range(80):
        db.put("t", {"id": n, "x": 1})
    with db.pipeline(spark=spark, max_operations=10):
        published = asked_at.get(timeout=SECONDS)
    assert published.epoch > 2
    assert 80 - published.cut.operations < 10


def test_epochs_go_on_while_the_query_starts(
    site: Database, change: Change, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun, may_go_on = Pipeline._start_query, threading.Event(), threading.Event()

    def slow(self: Pipeline, lease: Lease) -> StreamingQuery:
        begun.set()
        assert may_go_on.wait(SECONDS)
        return start(self, lease)

    monkeypatch.setattr(Pipeline, "_start_query", slow)
    with site.pipeline(spark=spark) as pipeline:
        assert begun.wait(SECONDS)
        change(random.Random(15))
        try:
            pipeline.wait(SECONDS)
        finally:
            may_go_on.set()
        assert not pipeline._asked.is_set()
        change(random.Random(16))
        pipeline.wait(SECONDS)
    assert_verified(site, spark)


def test_a_failure_while_the_query_starts_ends_the_query(
    site: Database, change: Change, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, advance_, begun = Pipeline._start_query, Pipeline._advance, threading.Event()

    def told(self: Pipeline, lease: Lease) -> StreamingQuery:
        begun.set()
        return start(self, lease)

    def failing(self: Pipeline, *given: Any) -> bool:
        if begun.is_set():
            raise StoreError("the disk is full")
        return advance_(self, *given)

    monkeypatch.setattr(Pipeline, "_start_query", told)
    monkeypatch.setattr(Pipeline, "_advance", failing)
    change(random.Random(17))
    with site.pipeline(spark=spark) as pipeline:
        assert begun.wait(SECONDS)
        assert pipeline._ended.wait(SECONDS)
    with pytest.raises(PipelineError, match="the disk is full"):
        pipeline.check()
    assert spark.streams.active == []


def test_stop_ends_the_query_though_an_epoch_goes_on(
    site: Database, change: Change, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "GRACE_SECONDS", 0.5)
    run, stuck, may_go_on = pipeline_module.run_alone, threading.Event(), threading.Event()

    def slow(*given: Any) -> list[Report] | None:
        stuck.set()
        may_go_on.wait(SECONDS)
        return run(*given)

    pipeline = site.pipeline(spark=spark, resident=False).start()
    try:
        while not pipeline._asked.wait(0.1):
            pipeline.check()
            change(random.Random(18))  # until the query runs an epoch
        pipeline.wait(SECONDS)
        monkeypatch.setattr(pipeline_module, "run_alone", slow)
        change(random.Random(19))
        assert stuck.wait(SECONDS)
        pipeline.stop()
        with pytest.raises(PipelineError, match="has not ended"):
            pipeline.start()
    finally:
        may_go_on.set()
    driver = pipeline._driver
    assert driver is not None
    driver.join(SECONDS)
    assert spark.streams.active == []
    monkeypatch.undo()
    site.pipeline(spark=spark).run_once()
    assert_verified(site, spark)


def test_stop_before_the_query_starts(
    site: Database, change: Change, spark: SparkSession, asked_at: queue.Queue[Published]
) -> None:
    change(random.Random(14))
    first = threading.Event()

    def write_more(published: Published) -> None:
        site.put("votes", {"id": published.epoch % 50, "story": 1, "value": 1})
        first.set()

    pipeline = site.pipeline(spark=spark, on_epoch=write_more).start()
    assert first.wait(SECONDS)
    pipeline.stop()
    pipeline.check()
    assert asked_at.empty()
    published = site.pipeline(spark=spark).run_once()  # the lease was given back
    assert published.cut.positions == site.store.log.head().positions


def test_workers_do_not_collect_garbage_among_their_modules(
    site: Database, spark: SparkSession
) -> None:
    site.pipeline(spark=spark).run_once()
    numbers = spark.sparkContext.parallelize(range(8), 8)
    frozen = numbers.map(lambda _: gc.get_freeze_count()).collect()
    assert max(frozen) > 10_000


def test_a_pipeline_leaves_no_store_open(db: Database, spark: SparkSession) -> None:
    """A process that runs many pipelines must not gather the maps of all their databases."""
    opened: list[Store] = []

    def note(url: str) -> Store:
        opened.append(open_store(url))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_module, "open_store", note)
        db.pipeline(spark=spark).run_once()
        with db.pipeline(spark=spark) as pipeline:
            pipeline.wait(SECONDS)
    assert opened
    for store in opened:
        with pytest.raises(StoreError, match="closed"):
            store.log.head()


def test_epochs_are_bounded(db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    for start in range(0, 500, 20):
        db.put("t", [{"id": n, "x": n % 3} for n in range(start, start + 20)])
    seen: list[Published] = []
    Pipeline(db, spark=spark, max_operations=100, on_epoch=seen.append).run_once()
    assert len(seen) >= 5
    assert max(epoch.operations for epoch in seen) <= 100
    assert sum(row["n"] for row in db.scan("v").rows()) == 500


def test_new_view_is_loaded_in_chunks_while_others_go_on(db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW old AS SELECT COUNT(*) AS n FROM t")
    db.put("t", [{"id": n, "x": n % 3} for n in range(1000)])
    db.pipeline(spark=spark).run_once()
    db.sql("CREATE VIEW fresh AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    while_loading: list[bool] = []
    counts: list[int] = []

    def during(published: Published) -> None:
        while_loading.append(bool(published.loading))
        if len(while_loading) < 4:
            db.put("t", {"id": 5000 + len(while_loading), "x": 1})
            db.delete("t", len(while_loading))
        row = db.get("old")
        assert row is not None
        counts.append(row["n"])

    limits = Limits(operations=1000, chunk=100)
    with Pipeline(db, spark=spark, limits=limits, on_epoch=during) as pipeline:
        pipeline.wait(SECONDS)
    assert sum(while_loading) >= 2
    assert counts
    assert all(count == 1000 for count in counts)
    assert_verified(db, spark)


def test_wait_says_how_far_behind(site: Database, change: Change, spark: SparkSession) -> None:
    change(random.Random(4))
    pipeline = site.pipeline(spark=spark)
    with pytest.raises(PipelineError, match="not running"):
        pipeline.wait(SECONDS)
    with pipeline, pytest.raises(Timeout, match="operations behind"):
        pipeline.wait(timeout=0.0)


def test_only_one_pipeline_at_a_time(site: Database, spark: SparkSession) -> None:
    with (
        site.pipeline(spark=spark),
        pytest.raises(PipelineError, match="another pipeline runs"),
    ):
        site.pipeline(spark=spark).start()
    site.pipeline(spark=spark).run_once()  # the lease was given back


def test_epoch_of_a_crashed_driver_is_run_again(
    site: Database, change: Change, spark: SparkSession
) -> None:
    change(random.Random(5))
    store, epochs = site.store, Epochs(site.store)
    lease = epochs.acquire()
    advance(store, lease.term)
    change(random.Random(6))
    opened = epochs.open_next(lease.term, Limits())
    assert opened is not None
    messages = [m for log in whole_logs(store, opened) for m in run_sources(store, opened, log)]
    for_one = [message for message in messages if message[0] == 0]
    list(run_level(store, opened, 1, [0], for_one))  # dies before the other shards
    epochs.release(lease)
    change(random.Random(7))  # not part of the open epoch: its cut is stored

    seen: list[Published] = []
    site.pipeline(spark=spark, on_epoch=seen.append).run_once()
    assert (seen[0].epoch, seen[0].cut) == (opened.epoch, opened.cut)
    assert_verified(site, spark)


def test_stale_driver_is_fenced(site: Database, change: Change, spark: SparkSession) -> None:
    stale = site.pipeline(spark=spark).start()
    try:
        stale.wait(SECONDS)
        lease = stale._lease
        assert lease is not None
        epochs = Epochs(site.store)
        epochs.release(lease)  # as if its lease had run out while it slept
        successor = epochs.acquire()
        before = epochs.read()
        change(random.Random(8))
        with pytest.raises(Fenced):
            stale.wait(SECONDS)
        assert isinstance(stale.exception, Fenced)
        assert epochs.read() == before
    finally:
        stale.stop()
    epochs.release(successor)
    site.pipeline(spark=spark).run_once()
    assert_verified(site, spark)


def test_replayed_batch_is_skipped(site: Database, change: Change, spark: SparkSession) -> None:
    change(random.Random(9))
    with site.pipeline(spark=spark, resident=False) as pipeline:
        published = pipeline.wait(SECONDS)
        pipeline._run_batch(spark.range(1), 0)
        assert site.epochs.read().published == published


def test_lost_checkpoint_is_no_loss(site: Database, change: Change, spark: SparkSession) -> None:
    # Every start has a new checkpoint folder, so each of these has lost the one before.
    for seed in (10, 11):
        change(random.Random(seed))
        site.pipeline(spark=spark).run_once()
    assert_verified(site, spark)


def test_failure_names_its_cause(db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    db.put("t", {"id": 1, "x": 1})
    db.pipeline(spark=spark).run_once()
    damage_all(db, "v", b"\xff garbage")
    db.put("t", {"id": 2, "x": 1})
    db.pipeline(spark=spark, failures=1).run_once()
    with pytest.raises(ViewFailed, match="Corrupt"):
        db.get("v", 1)
    db.repair("v")
    db.pipeline(spark=spark).run_once()
    assert_verified(db, spark)


def damage_all(db: Database, view: str, row: bytes) -> None:
    """Overwrite every row of a view's state at the published epoch."""
    published = db.epochs.read().published
    placement = db.catalog.current().program.placements[view]
    for shard in range(db.store.state.shards):
        found = db.store.state.scan(shard, placement.table.number, limit=1000, at=published.epoch)
        writes = [StateWrite(placement.table.number, found.keys, [row] * len(found.keys))]
        if found.keys:
            db.store.state.apply(shard, published.epoch, published.epoch - 1, writes)


def test_pipeline_takes_a_database_or_its_url(site: Database, spark: SparkSession) -> None:
    Pipeline(site, spark=spark).run_once()
    Pipeline(site.store.url, spark=spark).run_once()
