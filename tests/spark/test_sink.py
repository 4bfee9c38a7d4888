"""Rows from Spark: a DataFrame all or nothing, a stream exactly once, and what workers need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from viewkeep import Database
from viewkeep.errors import PipelineError
from viewkeep.spark.session import check_workers
from viewkeep.spark.sink import CheckedRows, StreamWriter, checked, target


@pytest.fixture
def votes(db: Database) -> Database:
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, stars INT)")
    return db


def append(frame: DataFrame, db: Database, **options: str) -> None:
    writer = frame.write.format("viewkeep").option("url", db.store.url).option("table", "votes")
    writer.options(**options).mode("append").save()


def count(db: Database) -> int:
    return int(db.sql("SELECT COUNT(*) AS n FROM votes").one()["n"])


def test_one_bad_row_leaves_nothing(votes: Database, spark: SparkSession) -> None:
    rows = spark.range(10_000).selectExpr("IF(id = 7777, NULL, id) AS id", "1 AS stars")
    with pytest.raises(PySparkException, match="id"):
        append(rows.repartition(4), votes)
    assert count(votes) == 0
    append(rows.where("id IS NOT NULL").repartition(4), votes)
    assert count(votes) == 9_999


def test_all_rows_are_one_write(votes: Database, spark: SparkSession) -> None:
    before = votes.store.log.head()
    append(spark.range(100).selectExpr("id", "1 AS stars").repartition(5), votes)
    after = votes.store.log.head()
    assert not before.covers(after)
    # An epoch of one operation has to take them all: no cut is between two of the rows.
    assert votes.store.log.bounded_cut(before, after, 1, 1) == after


def test_without_atomic_rows_are_put_as_they_come(votes: Database, spark: SparkSession) -> None:
    append(spark.range(100).selectExpr("id", "1 AS stars"), votes, atomic="false")
    assert count(votes) == 100


def test_a_batch_that_comes_again_changes_nothing(votes: Database) -> None:
    """As when the driver dies after a commit, and before Spark has noted it."""
    import pyarrow as pa

    def rows(*ids: int) -> CheckedRows:
        table = target(votes.catalog.current(), "votes")
        return checked(table, iter([pa.record_batch({"id": pa.array(ids, pa.int64())})]))

    stream = StreamWriter(votes.store.url, "votes", "votes: q")
    stream.commit([rows(1, 2), rows(3)], 0)
    votes.delete("votes", 2)
    stream.commit([rows(1, 2), rows(3)], 0)
    assert [row["id"] for row in votes.scan("votes")] == [1, 3]
    stream.commit([rows(4)], 1)
    head = votes.store.log.head()
    stream.commit([rows()], 2)  # no rows, no write: a view's stream into a table comes to rest
    assert head.covers(votes.store.log.head())
    StreamWriter(votes.store.url, "votes", "votes: other").commit([rows(5)], 0)
    assert [row["id"] for row in votes.scan("votes")] == [1, 3, 4, 5]
    batches = {row["query"]: row["batch"] for row in votes.scan("streamed_batches")}
    assert batches == {"votes: q": 1, "votes: other": 0}


def test_a_stream_into_a_table(votes: Database, spark: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"

    def run() -> None:
        stream = spark.readStream.schema("id BIGINT, stars INT").parquet(str(inbox))
        query = (
            stream.writeStream.format("viewkeep")
            .option("url", votes.store.url)
            .option("table", "votes")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    spark.range(10).selectExpr("id", "1 AS stars").write.parquet(str(inbox))
    run()
    assert count(votes) == 10
    votes.delete("votes", 3)
    spark.range(10, 15).selectExpr("id", "2 AS stars").write.mode("append").parquet(str(inbox))
    run()
    assert count(votes) == 14  # what was taken before did not come again


def test_spark_finds_the_source_by_itself(votes: Database) -> None:
    """Spark looks for `DefaultSource` in packages called pyspark_*; filters are left to it."""
    from pyspark.sql.types import StructType

    import pyspark_viewkeep

    votes.put("votes", [{"id": 1, "stars": 5}])
    source = pyspark_viewkeep.DefaultSource(
        {"url": votes.store.url, "table": "votes", "at": "latest"}
    )
    assert source.name() == "viewkeep"
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in found) == 1  # type: ignore[union-attr]
    assert type(reader).pushFilters is not None
    assert "pushFilters" not in vars(type(reader))


def test_workers_are_looked_at(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    check_workers(spark)
    from viewkeep.spark import session

    monkeypatch.setattr(session, "_LOOK", session._LOOK.replace('"lmdb"', '"not_there"'))
    with pytest.raises(PipelineError, match=r"lacks not_there; install .* PYSPARK_PYTHON"):
        check_workers(spark)


def test_a_look_at_workers_keeps_them(spark: SparkSession) -> None:
    """A worker that has not read all of its input ends, and the next task waits for a new one."""

    def worker() -> int:
        return spark.sparkContext.parallelize([0], 1).map(lambda _: os.getpid()).collect()[0]

    before = {worker() for _ in range(3)}
    for _ in range(3):
        check_workers(spark)
    assert worker() in before
