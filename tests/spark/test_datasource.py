"""The Spark DataSource: tables and views at one epoch, key filters, columns, and writing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, LessThanOrEqual

from viewkeep import Database
from viewkeep.engine.local import catch_up
from viewkeep.spark.datasource import TableReader, ViewkeepSource, read

EVERY_TYPE = """
CREATE TABLE kinds (
    a INT, b STRING, c BOOLEAN, d BIGINT, e DOUBLE, f DECIMAL(12,3), g BINARY, h DATE, i TIMESTAMP,
    PRIMARY KEY (a, b)
)
"""
ROWS = [
    {
        "a": 1,
        "b": "ä",
        "c": True,
        "d": -(2**62),
        "e": 0.1,
        "f": Decimal("-1.250"),
        "g": b"\x00\xff",
        "h": dt.date(2024, 2, 29),
        "i": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    },
    {"a": 1, "b": "", **dict.fromkeys("cdefghi")},
    {"a": 2, "b": "z", **dict.fromkeys("cdefghi")},
]


@pytest.fixture
def kinds(db: Database) -> Database:
    """A table with a column of every type, and a view of it by its first key column."""
    db.sql(EVERY_TYPE)
    db.sql("CREATE VIEW counted AS SELECT a, b, COUNT(*) AS n FROM kinds GROUP BY a, b")
    db.put("kinds", ROWS)
    catch_up(db.store)
    return db


def dicts(frame: DataFrame) -> list[dict[str, object]]:
    rows = [row.asDict() for row in frame.collect()]
    return sorted(rows, key=lambda row: (row["a"], row["b"]))


def test_every_type_comes_through(kinds: Database, spark: SparkSession) -> None:
    found = dicts(read(spark, kinds.store.url, "kinds"))
    for row in found:
        row["g"] = None if row["g"] is None else bytes(row["g"])  # type: ignore[call-overload]
        if isinstance(row["i"], dt.datetime):
            row["i"] = row["i"].astimezone(dt.UTC).replace(tzinfo=None)
    assert found == sorted(ROWS, key=lambda row: (row["a"], row["b"]))


def test_columns_are_chosen(kinds: Database, spark: SparkSession) -> None:
    url = kinds.store.url
    assert read(spark, url, "kinds", columns=["d", "a"]).columns == ["d", "a"]
    reader = spark.read.format("viewkeep").option("url", url).option("table", "kinds")
    assert sorted(row.a for row in reader.schema("a INT").load().collect()) == [1, 1, 2]
    with pytest.raises(PySparkException, match="no column nope"):
        read(spark, url, "kinds", columns=["nope"])


def test_spark_prunes_no_columns_of_python_sources(spark: SparkSession) -> None:
    """When this fails, Spark has learnt it, and the option `columns` can become automatic."""
    jvm = spark._jvm
    assert jvm is not None
    builder = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
    )
    assert "SupportsPushDownRequiredColumns" not in [
        i.getSimpleName() for i in builder.getInterfaces()
    ]


def reader_of(db: Database, table: str, *filters: Filter) -> TableReader:
    source = ViewkeepSource({"url": db.store.url, "table": table})
    reader = source.reader(source.schema())
    assert isinstance(reader, TableReader)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return reader


def rows_read(reader: TableReader) -> int:
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def test_key_filters_narrow_what_is_read(kinds: Database) -> None:
    assert rows_read(reader_of(kinds, "kinds")) == 3
    assert rows_read(reader_of(kinds, "kinds", EqualTo(("a",), 1))) == 2
    assert rows_read(reader_of(kinds, "kinds", EqualTo(("a",), 1), EqualTo(("b",), "ä"))) == 1
    assert rows_read(reader_of(kinds, "kinds", GreaterThan(("a",), 1))) == 3  # a superset
    assert rows_read(reader_of(kinds, "kinds", GreaterThan(("a",), 2))) == 1
    assert rows_read(reader_of(kinds, "kinds", LessThanOrEqual(("a",), 1))) == 2
    assert rows_read(reader_of(kinds, "kinds", EqualTo(("b",), "ä"))) == 3  # no key prefix
    assert rows_read(reader_of(kinds, "kinds", EqualTo(("a",), "text"))) == 3  # cannot be a key


def test_key_of_a_view_leads_to_one_shard(kinds: Database) -> None:
    assert len(reader_of(kinds, "counted").partitions()) == kinds.store.state.shards
    narrow = reader_of(kinds, "counted", EqualTo(("a",), 1), EqualTo(("b",), "ä"))
    assert len(narrow.partitions()) == 1
    assert rows_read(narrow) == 1


def test_filters_give_the_same_rows(kinds: Database, spark: SparkSession) -> None:
    frame = read(spark, kinds.store.url, "kinds").select("a", "b")
    for condition in ("a = 1", "a = 1 AND b = 'ä'", "a > 1", "a <=> 1", "a IN (2)", "b > ''"):
        expected = [r for r in ROWS if _holds(r, condition)]
        assert frame.where(condition).count() == len(expected), condition


def _holds(row: dict[str, object], condition: str) -> bool:
    a, b = row["a"], row["b"]
    assert isinstance(a, int)
    assert isinstance(b, str)
    return {
        "a = 1": a == 1,
        "a = 1 AND b = 'ä'": a == 1 and b == "ä",
        "a > 1": a > 1,
        "a <=> 1": a == 1,
        "a IN (2)": a == 2,
        "b > ''": b > "",
    }[condition]


def test_a_frame_stays_at_its_epoch(kinds: Database, spark: SparkSession) -> None:
    url = kinds.store.url
    table, view = read(spark, url, "kinds"), read(spark, url, "counted")
    kinds.delete("kinds", (1, "ä"))
    kinds.put("kinds", {"a": 9, "b": "new"})
    catch_up(kinds.store)
    assert (table.count(), view.count()) == (3, 3)
    assert [row["b"] for row in dicts(read(spark, url, "counted"))] == ["", "z", "new"]
    assert [row["b"] for row in dicts(read(spark, url, "kinds"))] == ["", "z", "new"]


def test_latest_reads_what_is_not_published_yet(kinds: Database, spark: SparkSession) -> None:
    kinds.put("kinds", {"a": 9, "b": "new"})
    reader = spark.read.format("viewkeep").option("url", kinds.store.url).option("table", "kinds")
    assert reader.load().count() == 3
    assert reader.option("at", "latest").load().count() == 4


def test_writing_puts_rows(kinds: Database, spark: SparkSession) -> None:
    url = kinds.store.url
    source = read(spark, url, "kinds").where("b = 'ä'")
    moved = source.selectExpr("a + 10 AS a", *"bcdefghi")
    for _ in range(2):  # writing again changes nothing
        moved.write.format("viewkeep").option("url", url).option("table", "kinds").mode(
            "append"
        ).save()
    assert kinds.get("kinds", (11, "ä")) == {**ROWS[0], "a": 11}
    some = spark.createDataFrame([(1, "ä", 5)], "a INT, b STRING, d BIGINT")
    some.write.format("viewkeep").option("url", url).option("table", "kinds").mode("append").save()
    assert kinds.get("kinds", (1, "ä")) == {**ROWS[0], "d": 5}
    assert len(kinds.scan("kinds")) == 4


@pytest.mark.parametrize(
    ("table", "mode", "message"),
    [
        ("kinds", "overwrite", "append"),
        ("counted", "append", "is a view"),
        ("nope", "append", "no table or view nope"),
    ],
)
def test_what_cannot_be_written(
    kinds: Database, spark: SparkSession, table: str, mode: str, message: str
) -> None:
    frame = spark.createDataFrame([(1, "x")], "a INT, b STRING")
    writer = frame.write.format("viewkeep").option("url", kinds.store.url)
    with pytest.raises(PySparkException, match=message):
        writer.option("table", table).mode(mode).save()


def test_what_cannot_be_read(kinds: Database, spark: SparkSession) -> None:
    url = kinds.store.url
    with pytest.raises(PySparkException, match="no table or view nope"):
        read(spark, url, "nope")
    with pytest.raises(PySparkException, match="neither published nor pinned"):
        read(spark, url, "kinds", epoch=999)
    with pytest.raises(PySparkException, match="needs"):
        spark.read.format("viewkeep").option("url", url).load()
