"""Streams of a view: each epoch exactly once, through stops, restarts and failed batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from viewkeep import Database
from viewkeep.engine.epochs import Published
from viewkeep.errors import CatalogError, EpochGone, InvalidReadPoint, ViewkeepError
from viewkeep.spark.changes import ViewChanges
from viewkeep.spark.datasource import ViewkeepSource, epoch_of, read

Batch = list[dict[str, Any]]


@pytest.fixture
def votes(db: Database, catch_up: Callable[[], Published]) -> Database:
    """Votes and their totals by story, which an epoch holds."""
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story INT, stars INT)")
    db.sql("CREATE VIEW totals AS SELECT story, SUM(stars) AS stars FROM votes GROUP BY story")
    db.put("votes", [{"id": n, "story": n % 3, "stars": n} for n in range(30)])
    catch_up()
    return db


def totals(db: Database) -> Counter[tuple[Any, ...]]:
    return Counter((row["story"], row["stars"]) for row in db.scan("totals"))


def applied(batches: list[Batch]) -> Counter[tuple[Any, ...]]:
    """The rows that inserts and deletes lead to; a row that is doubled or lost shows."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for row in (row for batch in batches for row in batch):
        rows[row["story"], row["stars"]] += {"insert": 1, "delete": -1}[row["_change"]]
    return Counter({row: count for row, count in rows.items() if count})


def reader_of(db: Database, **options: str) -> ViewChanges:
    source = ViewkeepSource({"url": db.store.url, "view": "totals", **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ViewChanges)
    return reader


def rows_of(reader: ViewChanges, start: dict[str, Any], end: dict[str, Any]) -> Batch:
    found = [
        row
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["story"], row["_epoch"], row["_change"]))


def latest(reader: ViewChanges, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, ReadAllAvailable())


def test_a_stream_through_stops_and_a_batch_that_failed(
    votes: Database, spark: SparkSession, tmp_path: Path, catch_up: Callable[[], Published]
) -> None:
    batches: dict[int, Batch] = {}
    failing: list[int] = []

    def take(frame: DataFrame, number: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        if number in batches:
            assert sorted(map(str, batches[number])) == sorted(map(str, rows))
        batches[number] = rows
        if number in failing:
            raise RuntimeError("the sink is away")

    def start(**trigger: Any) -> StreamingQuery:
        stream = spark.readStream.format("viewkeep").option("url", votes.store.url)
        query = stream.option("view", "totals").load().writeStream.foreachBatch(take)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return query.trigger(**trigger).start() if trigger else query.start()

    query = start()
    query.processAllAvailable()
    assert applied([*batches.values()]) == totals(votes)
    assert {row["_change"] for row in batches[0]} == {"insert"}
    votes.put("votes", {"id": 1, "story": 2, "stars": 100})
    epoch = catch_up().epoch
    query.processAllAvailable()
    assert {row["_epoch"] for row in batches[max(batches)]} == {epoch}
    query.stop()

    # While nobody reads, three epochs; the batch that has them fails once and comes again.
    known = set(batches)
    for key in (2, 3, 4):
        votes.delete("votes", key)
        catch_up()
    failing.append(max(known) + 1)
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        start(availableNow=True).awaitTermination()
    votes.put("votes", {"id": 5, "story": 7, "stars": 1})
    catch_up()
    failing.clear()
    start(availableNow=True).awaitTermination()
    assert applied([*batches.values()]) == totals(votes)
    assert len({row["_epoch"] for row in batches[max(known) + 1]}) == 3
    before = {number for number, rows in batches.items() if rows}
    start(availableNow=True).awaitTermination()
    assert {number for number, rows in batches.items() if rows} == before
    assert len(votes.epochs.pins()) <= 2  # what a stopped query needs, no more


def test_batches_are_functions_of_their_offsets(
    votes: Database, catch_up: Callable[[], Published]
) -> None:
    reader = reader_of(votes)
    begin = reader.initialOffset()
    first = latest(reader, begin)
    rows = rows_of(reader, begin, first)
    assert len(rows) == 3
    assert latest(reader, first) == first  # nothing new: no batch
    votes.put("votes", {"id": 0, "story": 0, "stars": 50})
    second_epoch = catch_up().epoch
    second = latest(reader, first)
    assert second["epoch"] == second_epoch
    changed = rows_of(reader, first, second)
    assert [(row["_change"], row["story"]) for row in changed] == [("delete", 0), ("insert", 0)]
    # A reader of another process finds the pins by the offsets.
    votes.put("votes", {"id": 3, "story": 1, "stars": 50})
    catch_up()
    again = reader_of(votes)
    assert rows_of(again, first, second) == changed
    again.commit(second)
    assert [pin.epoch for pin in votes.epochs.pins()] == [second["epoch"]]


def test_from_now_and_from_an_epoch(votes: Database, catch_up: Callable[[], Published]) -> None:
    now = reader_of(votes, startingEpoch="now")
    begin = now.initialOffset()
    first = latest(now, begin)
    assert rows_of(now, begin, first) == []
    votes.delete("votes", 29)
    catch_up()
    second = latest(now, first)
    changed = rows_of(now, first, second)
    assert [row["_change"] for row in changed] == ["delete", "insert"]
    numbered = reader_of(votes, startingEpoch=str(first["epoch"]))
    assert rows_of(numbered, numbered.initialOffset(), second) == changed


def test_a_batch_holds_so_many_epochs(votes: Database, catch_up: Callable[[], Published]) -> None:
    reader = reader_of(votes, maxEpochsPerTrigger="2")
    first = latest(reader, reader.initialOffset())
    for key in range(5):
        votes.delete("votes", key)
        end = catch_up().epoch
    steps, found, begin = [first], [], first
    while (following := latest(reader, begin)) != begin:
        found += rows_of(reader, begin, following)
        steps.append(following)
        begin = following
        if len(steps) == 3:  # a restart between two batches
            reader = reader_of(votes, maxEpochsPerTrigger="2")
    assert [step["epoch"] for step in steps] == [*range(first["epoch"], end, 2), end]
    whole = rows_of(reader_of(votes), first, begin)
    assert sorted(map(str, found)) == sorted(map(str, whole))
    reader.commit(begin)
    assert [pin.epoch for pin in votes.epochs.pins()] == [end], "only what comes next is kept"


def test_a_limited_query_that_takes_what_is_there(
    votes: Database, catch_up: Callable[[], Published]
) -> None:
    first = latest(reader_of(votes), {"start": "beginning"})
    for key in range(3):
        votes.delete("votes", key)
        catch_up()
    reader = reader_of(votes, maxEpochsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    last = votes.epochs.read().published.epoch
    votes.delete("votes", 9)
    catch_up()
    begin, ends = first, []
    while (following := latest(reader, begin)) != begin:
        begin = following
        ends.append(following["epoch"])
    assert ends == [first["epoch"] + 2, last]


def test_history_is_kept_until_it_is_processed(
    votes: Database, catch_up: Callable[[], Published]
) -> None:
    reader = reader_of(votes)
    first = latest(reader, reader.initialOffset())
    for key in range(1, 4):
        votes.delete("votes", key)
        catch_up()
    second = latest(reader, first)
    assert len(rows_of(reader, first, second)) == 6
    for pin in votes.epochs.pins():  # as when the query was stopped for longer than keep_seconds
        votes.epochs.unpin(pin)
    for key in range(4, 7):
        votes.delete("votes", key)
        catch_up()
    again = reader_of(votes)
    end = latest(again, first)
    with pytest.raises(EpochGone, match=r"cannot go on after epoch .* another checkpoint"):
        rows_of(again, first, end)


def test_a_view_made_anew_ends_its_streams(
    votes: Database, catch_up: Callable[[], Published]
) -> None:
    reader = reader_of(votes)
    first = latest(reader, reader.initialOffset())
    votes.sql(
        "CREATE OR REPLACE VIEW totals AS SELECT story, MAX(stars) AS stars FROM votes "
        "GROUP BY story"
    )
    catch_up()
    end = latest(reader, first)
    with pytest.raises(EpochGone, match="replaced, rebuilt or dropped"):
        rows_of(reader, first, end)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "votes"}, "base table; streams are of views"),
        ({"view": "nope"}, "no view is called nope; there are totals"),
        ({"view": "totals", "table": "votes"}, "give one of them"),
        ({"view": "totals", "startingEpoch": "soon"}, '"now" or the number of an epoch'),
        ({"view": "totals", "maxEpochsPerTrigger": "0"}, "maxEpochsPerTrigger is at least 1"),
        ({}, "needs"),
    ],
)
def test_what_cannot_be_followed(votes: Database, options: dict[str, str], message: str) -> None:
    source = ViewkeepSource({"url": votes.store.url, **options})
    with pytest.raises(ViewkeepError, match=message):
        source.streamReader(source.schema())


def test_names_of_columns_that_are_taken(
    votes: Database, catch_up: Callable[[], Published]
) -> None:
    votes.sql("CREATE VIEW taken AS SELECT id, story AS _epoch FROM votes")
    catch_up()
    with pytest.raises(CatalogError, match="has a column _epoch"):
        ViewkeepSource({"url": votes.store.url, "view": "taken"}).schema()


def test_a_frame_says_its_epoch(
    votes: Database, spark: SparkSession, catch_up: Callable[[], Published]
) -> None:
    published = votes.status().epoch
    frame = read(spark, votes.store.url, "totals")
    assert epoch_of(frame) == published
    assert epoch_of(frame.where("story > 0").select("stars")) == published
    assert epoch_of(spark.range(3).toDF("n")) is None
    votes.delete("votes", 1)
    later = read(spark, votes.store.url, "totals", columns=["stars"])
    assert epoch_of(later) == published
    epoch = catch_up().epoch
    later = read(spark, votes.store.url, "totals", columns=["stars"])
    assert epoch_of(later) == epoch
    with pytest.raises(InvalidReadPoint, match=f"epochs {published}, {epoch}"):
        epoch_of(frame.crossJoin(later))
    same = read(spark, votes.store.url, "votes", epoch=published)
    assert epoch_of(frame.crossJoin(same)) == published
    with pytest.raises(PySparkException, match="needs"):
        spark.read.format("viewkeep").option("url", votes.store.url).option(
            "view", "totals"
        ).load().collect()
