"""A query of several base tables sees all of them at one moment, whatever is written meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from viewkeep.access.relations import TableRelation
from viewkeep.errors import EpochGone

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.access.reads import ReadPoint

    CatchUp = Callable[[], Any]

BOTH = "SELECT a.id, a.n AS x, b.n AS y FROM a JOIN b ON a.id = b.id ORDER BY a.id"


@pytest.fixture
def two(db: Database) -> Database:
    db.sql("CREATE TABLE a (id INT PRIMARY KEY, n INT); CREATE TABLE b (id INT PRIMARY KEY, n INT)")
    db.sql("INSERT INTO a VALUES (1, 0), (2, 0); INSERT INTO b VALUES (1, 0), (2, 0)")
    return db


def test_writes_between_the_reads_are_not_seen(
    two: Database, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, reads = TableRelation.scan, []

    def scanned(self: TableRelation, *args: Any) -> Any:
        found = scan(self, *args)
        reads.append(self.name)
        if len(reads) == 1:
            two.sql("UPDATE a SET n = 5 WHERE id = 1; DELETE FROM b WHERE id = 2")
            two.sql("INSERT INTO a VALUES (3, 3); INSERT INTO b VALUES (3, 3)")
            catch_up()  # the log may be truncated now
        return found

    monkeypatch.setattr(TableRelation, "scan", scanned)
    rows = two.sql(BOTH).tuples()
    # Either the moment before all that, or, if its log is gone, one after it; never between.
    assert rows in ([(1, 0, 0), (2, 0, 0)], [(1, 5, 0), (3, 3, 3)])
    assert two.sql(BOTH).tuples() == [(1, 5, 0), (3, 3, 3)]


def test_by_key_too(two: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    find, reads = TableRelation.find, []

    def found(self: TableRelation, *args: Any) -> Any:
        rows = find(self, *args)
        reads.append(self.name)
        if len(reads) == 1:
            two.put("a", {"id": 1, "n": 9})
            two.put("b", {"id": 1, "n": 9})
        return rows

    monkeypatch.setattr(TableRelation, "find", found)
    text = "SELECT a.n AS x, b.n AS y FROM a JOIN b ON a.id = b.id WHERE a.id = 1 AND b.id = 1"
    assert two.sql(text).tuples() == [(0, 0)]
    assert two.sql(text).tuples() == [(9, 9)]


def test_invariants_hold_beside_a_writer(two: Database) -> None:
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            two.put("a", [{"id": 1, "n": number}, {"id": 2, "n": number}])
            two.put("b", [{"id": 1, "n": number}, {"id": 2, "n": number}])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            (_, x1, y1), (_, x2, y2) = two.sql(BOTH).tuples()
            assert x1 == x2  # one write is never split
            assert y1 == y2
            assert x1 - y1 in (0, 1)  # b follows a
    finally:
        done.set()
        writer.join()


def test_the_log_is_kept_where_it_goes_too_fast(two: Database) -> None:
    points: list[ReadPoint] = []

    def read(point: ReadPoint) -> int:
        points.append(point)
        if len(points) <= 3:
            raise EpochGone("truncated")
        assert two.epochs.pins()
        return len(points)

    assert two._reader.at_head(read) == 4
    assert all(point.cut == two.store.log.head() for point in points)
    assert not two.epochs.pins()
