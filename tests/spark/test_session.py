"""The session: settings of its own over a shared context, and a master that retries tasks."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from viewkeep.errors import PipelineError
from viewkeep.spark.gateway import log_file, retrying
from viewkeep.spark.session import SESSION_SETTINGS, session


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_retry_tasks(given: str, used: str) -> None:
    assert retrying(given) == used


def test_a_running_session_is_not_changed(spark: SparkSession) -> None:
    given = spark.newSession()
    given.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    own = session(spark=given)
    assert own.sparkContext is given.sparkContext
    assert given.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert {key: own.conf.get(key) for key in SESSION_SETTINGS} == SESSION_SETTINGS


def test_another_master_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="stop that session first"):
        session("spark://elsewhere:7077")


def test_spark_writes_to_a_file_and_not_to_the_terminal(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    assert log_file() is not None
    spark.range(10).count()
    assert capfd.readouterr().err == ""


def test_workers_have_one_polars_thread(spark: SparkSession) -> None:
    def threads(item: int) -> str | None:
        import os

        return os.environ.get("POLARS_MAX_THREADS")

    assert spark.sparkContext.parallelize([0], 1).map(threads).collect() == ["1"]
