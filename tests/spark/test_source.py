"""The log source without Spark around it: offsets are cuts, and asking for one opens an epoch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from viewkeep import Database
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.local import run_epoch
from viewkeep.errors import Fenced
from viewkeep.spark.source import LogReader, cut
from viewkeep.stores.contract import START

LIMIT = ReadAllAvailable()


@pytest.fixture
def term(db: Database) -> Iterator[int]:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    epochs = Epochs(db.store)
    lease = epochs.acquire()
    yield lease.term
    epochs.release(lease)


def reader_of(db: Database, term: int, **options: int) -> LogReader:
    given = {name: str(value) for name, value in options.items()}
    return LogReader({"url": db.store.url, "term": str(term), **given})


def finish(db: Database, term: int) -> None:
    epoch = db.epochs.read().open
    assert epoch is not None
    db.epochs.publish(term, epoch, run_epoch(db.store, epoch))


def test_offsets_are_cuts_of_epochs(db: Database, term: int) -> None:
    reader = reader_of(db, term)
    start = reader.initialOffset()
    assert (start["epoch"], cut(start)) == (0, START)
    db.put("t", [{"id": n, "x": 1} for n in range(100)])
    end = reader.latestOffset(start, LIMIT)
    opened = db.epochs.read().open
    assert opened is not None
    assert end == {"epoch": 1, "cut": opened.cut.to_json()}
    assert reader.latestOffset(start, LIMIT) == end  # open already: the same again
    parts = [part.value for part in reader.partitions(start, end)]
    assert parts == [(log, 0, stop) for log, stop in opened.cut.positions.items()]
    assert [list(reader.read(part)) for part in reader.partitions(start, end)] == [
        [part] for part in parts
    ]


def test_no_work_is_the_same_offset(db: Database, term: int) -> None:
    reader = reader_of(db, term)
    start = reader.latestOffset(reader.initialOffset(), LIMIT)  # the epoch of the new plan
    finish(db, term)
    assert reader.latestOffset(start, LIMIT) == start


def test_the_next_epoch_waits_until_it_is_due(db: Database, term: int) -> None:
    slow, quick = reader_of(db, term, every=3600), reader_of(db, term)
    db.put("t", {"id": 1, "x": 1})
    start = slow.latestOffset(slow.initialOffset(), LIMIT)
    assert slow.latestOffset(start, LIMIT) == start  # it is open
    finish(db, term)
    db.put("t", {"id": 2, "x": 1})
    assert slow.latestOffset(start, LIMIT) == start
    assert db.epochs.read().open is None
    assert quick.latestOffset(start, LIMIT)["epoch"] == 2


@pytest.mark.parametrize("bound", [{"operations": 20}, {"size": 4_000}], ids=str)
def test_a_backlog_does_not_wait(db: Database, term: int, bound: dict[str, int]) -> None:
    db.sql("CREATE TABLE wide (id BIGINT PRIMARY KEY, s STRING)")
    for number in range(20):
        db.put("wide", {"id": number, "s": "x" * 500})
        db.put("t", [{"id": 10 * number + n, "x": 1} for n in range(9)])
    reader = reader_of(db, term, every=3600, **bound)
    at, head = reader.initialOffset(), db.store.log.head()
    while not cut(at).covers(head):
        opened = reader.latestOffset(at, LIMIT)
        assert opened != at
        at = opened
        finish(db, term)
    assert db.epochs.read().published.epoch > 3
    db.put("t", {"id": 1, "x": 1})
    assert reader.latestOffset(at, LIMIT) == at


def test_a_stale_driver_opens_nothing(db: Database, term: int) -> None:
    db.put("t", {"id": 1, "x": 1})
    with pytest.raises(Fenced):
        reader_of(db, term - 1).latestOffset({"epoch": 0}, LIMIT)
    assert db.epochs.read().open is None
