"""Partial views beside a pipeline on Spark: resident epochs, and epochs of many tasks."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from viewkeep import Database
from viewkeep.spark.datasource import read

PAGE = """
    CREATE VIEW page AS SELECT s.id, s.title, COUNT(*) AS votes
    FROM stories s JOIN votes v ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.title
"""


@pytest.mark.parametrize("resident", [True, False])
def test_keys_are_kept_by_either_kind_of_epoch(
    db: Database, spark: SparkSession, resident: bool
) -> None:
    db.sql("CREATE TABLE stories (id BIGINT PRIMARY KEY, title STRING)")
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)")
    db.put("stories", [{"id": n, "title": f"t{n}"} for n in range(10)])
    db.put("votes", [{"id": n, "story": n % 5} for n in range(50)])
    with db.pipeline(spark=spark, resident=resident) as pipeline:
        with db.session() as session:
            session.sql(PAGE)
            assert session.scan("page", prefix=3).one()["votes"] == 10
        assert db.scan("page", prefix=9).rows() == []
        pipeline.wait(timeout=120)
        assert {row.id for row in read(spark, db.url, "page", kept="keys").collect()} == {3, 9}
        db.put("votes", [{"id": n, "story": 3 + n % 2} for n in range(50, 3050)])
        pipeline.wait(timeout=120)
        assert db.scan("page", prefix=3).one()["votes"] == 1510
        assert db.scan("page", prefix=4).one()["votes"] == 1510
    kept = read(spark, db.url, "page", kept="rows").collect()
    assert [(row.id, row.votes) for row in kept] == [(3, 1510)]
    with pytest.raises(AnalysisException, match="PartialKey: view page is partial"):
        read(spark, db.url, "page")
    (verdict,) = db.verify("page", spark=spark)
    assert verdict.ok, verdict
