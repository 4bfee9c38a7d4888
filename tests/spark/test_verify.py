"""Verification: it finds every damage done to a view, and repair undoes it."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from viewkeep import Database
from viewkeep.codec.keys import KeyCodec
from viewkeep.engine.local import catch_up
from viewkeep.errors import CatalogError, NotReady
from viewkeep.spark.compare import EXTRA, MISSING, compare
from viewkeep.stores.contract import StateWrite
from viewkeep.types import BIGINT

Change = Callable[[random.Random], None]


def damage(db: Database, view: str, change: Callable[[bytes], bytes | None]) -> None:
    """Change one row of a view behind the pipeline's back."""
    published = db.epochs.read().published
    table = db.catalog.current().program.placements[view].table.number
    for shard in range(db.store.state.shards):
        found = db.store.state.scan(shard, table, limit=1, at=published.epoch)
        if found.keys:
            write = StateWrite(table, found.keys, [change(found.rows[0])])
            db.store.state.apply(shard, published.epoch, published.epoch - 1, [write])
            return
    raise AssertionError(f"{view} has no rows")


@pytest.fixture
def scored(db: Database) -> Database:
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, value BIGINT)")
    db.sql("CREATE VIEW scores AS SELECT story, SUM(value) AS total FROM votes GROUP BY story")
    db.sql("CREATE VIEW totals AS SELECT total, COUNT(*) AS n FROM scores GROUP BY total")
    db.put("votes", [{"id": n, "story": n % 5, "value": n} for n in range(50)])
    catch_up(db.store)
    return db


@pytest.mark.parametrize("how", ["deleted", "changed", "garbage"])
def test_damage_is_found_and_repaired(scored: Database, spark: SparkSession, how: str) -> None:
    codec = scored.catalog.current().program.placements["scores"].table.row_codec

    def change(row: bytes) -> bytes | None:
        if how == "garbage":
            return b"\xff\xff garbage"
        values = list(codec.decode_one(row))
        values = [value + 1 if index else value for index, value in enumerate(values)]
        return None if how == "deleted" else codec.encode_one(values)

    assert all(verdict.ok for verdict in scored.verify(spark=spark))
    damage(scored, "scores", change)
    (verdict,) = scored.verify("scores", spark=spark)
    assert not verdict.ok
    assert verdict.to_json()["ok"] is False
    if how == "garbage":
        assert verdict.problem is not None
        assert "Corrupt" in verdict.problem
    else:
        assert (verdict.missing, verdict.extra) == (1, 0 if how == "deleted" else 1)
        assert verdict.sample is not None
        assert set(verdict.sample["difference"]) <= {MISSING, EXTRA}

    (verdict,) = scored.verify("scores", repair=True, spark=spark)
    assert verdict.repaired
    scored.pipeline(spark=spark).run_once()
    verdicts = scored.verify(spark=spark)
    assert len(verdicts) == 2
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


def test_a_damaged_base_table_is_reported_and_nothing_is_rebuilt_from_it(
    scored: Database, spark: SparkSession
) -> None:
    for name in ("middle", "unread"):
        scored.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, name STRING)")
        scored.put(name, [{"id": n, "name": f"nobody reads {name}"} for n in range(20)])
    catch_up(scored.store)
    damage(scored, "scores", lambda row: None)
    _damage_base(scored, b"nobody reads unread")
    verdicts = {verdict.view: verdict for verdict in scored.verify(spark=spark)}
    assert "table votes" not in verdicts
    unread = verdicts["table unread"]
    assert str(unread).startswith("DAMAGED  table unread at epoch")
    assert "node-" in str(unread)
    assert "backup" in str(unread)

    table = scored.catalog.current().tables["votes"]
    (row,) = scored.store.tables.get(table.number, [KeyCodec((BIGINT,)).encode_one((7,))])
    assert row is not None
    _damage_base(scored, row)
    scores, votes = scored.verify("scores", repair=True, spark=spark)
    assert not scores.ok
    assert not scores.repaired
    assert scores.refused == "table votes is damaged; restore a backup"
    assert "not rebuilt: table votes is damaged" in str(scores)
    assert votes.view == "table votes"


def _damage_base(db: Database, content: bytes) -> None:
    """Change a byte wherever the files of the nodes have this."""
    for file in Path(db.url.removeprefix("lmdb:")).glob("node-*/data.mdb"):
        whole = file.read_bytes()
        with open(file, "r+b") as data:
            for found in re.finditer(re.escape(content), whole):
                data.seek(found.start() + len(content) // 2)
                data.write(bytes([whole[data.tell()] ^ 1]))


def test_verification_sees_one_epoch_while_writes_go_on(
    site: Database, change: Change, spark: SparkSession
) -> None:
    change(random.Random(1))
    with site.pipeline(spark=spark) as pipeline:
        pipeline.wait(60)
        change(random.Random(2))  # the pipeline publishes these while verify reads
        verdicts = site.verify(spark=spark)
        pipeline.wait(60)
    assert len({verdict.epoch for verdict in verdicts}) == 1
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))
    assert not site.epochs.pins()


def test_only_ready_views_are_verified(scored: Database, spark: SparkSession) -> None:
    scored.sql("CREATE VIEW later AS SELECT COUNT(*) AS n FROM votes")
    with pytest.raises((NotReady, CatalogError), match="later"):
        scored.verify("later", spark=spark)
    assert [verdict.view for verdict in scored.verify(spark=spark)] == ["scores", "totals"]
    with pytest.raises(CatalogError, match="nope"):
        scored.verify("nope", spark=spark)


def test_multisets_and_tolerance(spark: SparkSession) -> None:
    def rows(*values: tuple[object, ...]) -> object:
        return spark.createDataFrame(list(values), "k STRING, x DOUBLE")

    def counts(a: object, b: object) -> dict[str, int]:
        return compare(a, b).counts()  # type: ignore[arg-type]

    big = 1e15
    assert counts(rows(("a", 1.0), ("a", 1.0)), rows(("a", 1.0))) == {MISSING: 1}
    assert counts(rows(("a", 1.0)), rows(("a", 1.0), ("a", 1.0))) == {EXTRA: 1}
    assert counts(rows((None, None)), rows((None, None))) == {}
    assert counts(rows(("a", big), ("a", 3.0)), rows(("a", 3.0), ("a", big + 0.125))) == {}
    assert counts(rows(("a", 1.0)), rows(("a", 1.0 + 1e-9))) == {MISSING: 1, EXTRA: 1}
    assert counts(rows(("a", float("nan"))), rows(("a", float("nan")))) == {}
    assert counts(rows(("a", None)), rows(("a", 0.0))) == {MISSING: 1, EXTRA: 1}


EXTREMES = {
    "plain": "SELECT g, avg(b) AS a FROM t GROUP BY g",
    "parts": "SELECT avg(DISTINCT b) AS a, avg(b) FILTER (WHERE id > 1) AS p, avg(x) AS x FROM t",
    "windowed": "SELECT id, avg(b) OVER (PARTITION BY g) AS a FROM t",
    "nested": "SELECT count(a) AS n, max(a) AS m FROM plain",
    "dates": "SELECT id, date_add(d, 1) AS a, ts + INTERVAL 1 DAY AS b, add_months(d, -1) AS c"
    " FROM t",
    "counted": "SELECT count(date_add(d, 1)) AS n, count(date_sub(d, 1)) AS m FROM t",
    "grouped": "SELECT date_add(d, 1) AS k, count(*) AS n FROM t GROUP BY date_add(d, 1)",
}


def test_no_alarm_where_spark_means_something_else(db: Database, spark: SparkSession) -> None:
    """Averages that doubles cannot add, and dates that Python does not have."""
    db.sql("""
        CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, b BIGINT, x DOUBLE, d DATE, ts TIMESTAMP)
    """)
    for name, query in EXTREMES.items():
        db.sql(f"CREATE VIEW {name} AS {query}")
    ends = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29), None]
    values = [2**63 - 1, -(2**63), 2**62 + 1, -(2**62), 5, 2**63 - 1, -(2**63) + 3, None]
    rows = [
        {
            "id": n,
            "g": n // 4,
            "b": value,
            "x": n / 2,
            "d": ends[n % 4],
            "ts": ends[n % 4] and dt.datetime.combine(ends[n % 4], dt.time(12)),
        }
        for n, value in enumerate(values)
    ]
    db.put("t", rows)
    catch_up(db.store)
    verdicts = db.verify(spark=spark)
    assert {v.view: (v.missing, v.extra, v.problem) for v in verdicts} == dict.fromkeys(
        EXTREMES, (0, 0, None)
    )
    codec = db.catalog.current().program.placements["plain"].table.row_codec

    def change(row: bytes) -> bytes:
        *values, average = codec.decode_one(row)
        return codec.encode_one([*values, average + 1.0])

    damage(db, "plain", change)
    (verdict,) = db.verify("plain", spark=spark)
    assert not verdict.ok


def test_names_in_windows_of_qualify_are_columns(db: Database, spark: SparkSession) -> None:
    """Items of SELECT have the names of columns here, and mean something else."""
    db.sql("CREATE TABLE sales (id BIGINT PRIMARY KEY, region STRING, amount BIGINT)")
    over = "OVER (PARTITION BY region ORDER BY"
    db.sql(
        "CREATE VIEW best AS SELECT region, id % 5 AS product, SUM(amount) AS amount FROM sales "
        f"GROUP BY region, id % 5 QUALIFY ROW_NUMBER() {over} SUM(amount) DESC, id % 5) = 1"
    )
    db.sql(
        "CREATE VIEW least AS SELECT region, id, -amount AS amount FROM sales "
        f"QUALIFY ROW_NUMBER() {over} amount, id) = 1"
    )
    db.put("sales", [{"id": n, "region": "ab"[n % 2], "amount": n * n % 23} for n in range(40)])
    catch_up(db.store)
    verdicts = db.verify(spark=spark)
    assert all(verdict.ok for verdict in verdicts), [str(verdict) for verdict in verdicts]


def test_the_wanted_rows_of_a_partial_view_are_verified(
    scored: Database, spark: SparkSession
) -> None:
    scored.sql(
        "CREATE VIEW page WITH (partial = true) AS SELECT story, SUM(value) AS total "
        "FROM votes GROUP BY story"
    )
    catch_up(scored.store)
    for story in (1, 3, 77):
        scored.scan("page", prefix=story)
    scored.put("votes", {"id": 50, "story": 3, "value": 1000})
    catch_up(scored.store)
    (verdict,) = scored.verify("page", spark=spark)
    assert verdict.ok, verdict
    assert verdict.rows == 2
    damage(scored, "page", lambda row: None)
    (verdict,) = scored.verify("page", spark=spark)
    assert (verdict.missing, verdict.extra) == (1, 0)
