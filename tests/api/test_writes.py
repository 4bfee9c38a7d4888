"""Writing rows: puts, inserts, deletes, of dicts and frames, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from viewkeep.errors import DuplicateKey, InvalidRow, UnknownName

if TYPE_CHECKING:
    from viewkeep import Database

EVERY_TYPE = """
    CREATE TABLE t (k BIGINT PRIMARY KEY, b BOOLEAN, i INT, l BIGINT, d DOUBLE, n DECIMAL(10,2),
                    s STRING, x BINARY, day DATE, at TIMESTAMP)
"""
FULL = {
    "k": 1,
    "b": True,
    "i": -5,
    "l": 2**62,
    "d": 1.5,
    "n": Decimal("12.34"),
    "s": "süß",
    "x": b"\0\xff",
    "day": dt.date(2026, 1, 2),
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678900),
}


@pytest.fixture
def votes(db: Database) -> Database:
    db.sql("CREATE TABLE votes (story BIGINT, voter STRING, stars INT, PRIMARY KEY (story, voter))")
    return db


def test_every_type_comes_back(db: Database) -> None:
    db.sql(EVERY_TYPE)
    db.put("t", FULL)
    assert db.get("t", 1) == FULL
    db.put("t", {"k": 2})
    assert db.get("t", 2) == {**dict.fromkeys(FULL), "k": 2}
    assert db.scan("t").rows() == [FULL, {**dict.fromkeys(FULL), "k": 2}]


def test_zoned_datetimes_are_instants(db: Database) -> None:
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, at TIMESTAMP)")
    zone = dt.timezone(dt.timedelta(hours=2))
    db.put("t", {"k": 1, "at": dt.datetime(2026, 1, 1, 12, tzinfo=zone)})
    assert db.get("t", 1) == {"k": 1, "at": dt.datetime(2026, 1, 1, 10)}


def test_put_sets_some_columns_only(votes: Database) -> None:
    assert votes.put("votes", {"story": 1, "voter": "ann", "stars": 3}) == 1
    votes.put("votes", {"story": 1, "voter": "ann"})
    assert votes.get("votes", (1, "ann")) == {"story": 1, "voter": "ann", "stars": 3}
    votes.put("votes", [{"story": 1, "voter": "bob"}, {"story": 1, "voter": "ann", "stars": 4}])
    assert votes.get("votes", {"story": 1, "voter": "bob"}) == {
        "story": 1,
        "voter": "bob",
        "stars": None,
    }
    assert votes.get("votes", (1, "ann")) == {"story": 1, "voter": "ann", "stars": 4}


def test_rows_of_one_call_apply_in_order(votes: Database) -> None:
    votes.put("votes", [{"story": 1, "voter": "a", "stars": n} for n in range(5)])
    assert votes.get("votes", (1, "a")) == {"story": 1, "voter": "a", "stars": 4}


@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas"])
def test_frames(votes: Database, kind: str) -> None:
    columns = {"story": [1, 2], "voter": ["a", "b"], "stars": [5, 4]}
    made = {"arrow": pa.table, "polars": pl.DataFrame, "pandas": pd.DataFrame}[kind](columns)
    assert votes.insert("votes", made) == 2
    assert votes.scan("votes").tuples() == [(1, "a", 5), (2, "b", 4)]
    with pytest.raises(DuplicateKey, match="story = 1, voter = 'a'"):
        votes.insert("votes", made)


def test_frame_with_some_columns(votes: Database) -> None:
    votes.put("votes", {"story": 1, "voter": "a", "stars": 5})
    votes.put("votes", pl.DataFrame({"story": [1, 2], "voter": ["a", "b"]}))
    assert votes.scan("votes").tuples() == [(1, "a", 5), (2, "b", None)]


def test_insert_refuses_existing_keys_whole(votes: Database) -> None:
    votes.insert("votes", {"story": 1, "voter": "a"})
    with pytest.raises(DuplicateKey, match="nothing was written"):
        votes.insert("votes", [{"story": 2, "voter": "b"}, {"story": 1, "voter": "a"}])
    with pytest.raises(DuplicateKey):
        votes.insert("votes", [{"story": 3, "voter": "b"}, {"story": 3, "voter": "b"}])
    assert len(votes.scan("votes")) == 1


def test_delete(votes: Database) -> None:
    votes.put("votes", [{"story": n, "voter": "a", "stars": n} for n in range(4)])
    votes.delete("votes", (0, "a"))
    votes.delete("votes", (99, "a"))
    votes.delete("votes", (1, "a"), columns=["stars"])
    votes.delete("votes", (98, "a"), columns=["stars"])
    assert votes.delete_many("votes", [(2, "a"), (3, "a")]) == 2
    assert votes.scan("votes").tuples() == [(1, "a", None)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"story": None, "voter": "a"}, "key column story must not be NULL"),
        ({"voter": "a"}, "key column story must not be NULL"),
        ({"story": "one", "voter": "a"}, "key column story: needs an int"),
        ({"story": 1, "voter": "a", "stars": 2**40}, "column stars: 1099511627776 does not fit"),
        ({"story": 1, "voter": "a", "stars": 1.5}, "column stars: needs an int"),
        ({"story": 1, "voter": "a", "starz": 1}, "no column starz; its columns are story"),
    ],
)
def test_bad_rows_are_refused_whole(votes: Database, row: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRow, match=message):
        votes.put("votes", row)
    with pytest.raises(InvalidRow, match=r"row 2|no column"):
        votes.put("votes", [{"story": 7, "voter": "z", "stars": 1}, {**row, "stars": "x"}])
    assert len(votes.scan("votes")) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"story": [1, 2], "voter": ["a", None]}, "row 2: key column voter must not be NULL"),
        ({"story": [1, 2]}, "key column voter is missing"),
        ({"story": [1, 2.5], "voter": ["a", "b"]}, "row 2: column story: 2.5 is not a BIGINT"),
        ({"story": ["1"], "voter": ["a"]}, "column story is BIGINT and takes no String"),
        ({"story": [1], "voter": ["a"], "x": [1]}, "no column x"),
    ],
)
def test_bad_frames_are_refused_whole(
    votes: Database, columns: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(InvalidRow, match=message):
        votes.put("votes", pl.DataFrame(columns, strict=False))
    assert len(votes.scan("votes")) == 0


def test_oversize_row(db: Database) -> None:
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, s STRING)")
    with pytest.raises(InvalidRow):
        db.put("t", {"k": 1, "s": "x" * (65 << 20)})
    assert db.get("t", 1) is None


def test_not_rows(votes: Database) -> None:
    with pytest.raises(InvalidRow, match="rows are dicts or a frame"):
        votes.put("votes", 7)
    with pytest.raises(InvalidRow, match="row 1: a row is a dict"):
        votes.put("votes", [(1, 2)])
    assert votes.put("votes", []) == 0


def test_unknown_table(votes: Database) -> None:
    with pytest.raises(UnknownName, match="Did you mean votes"):
        votes.put("vote", {"story": 1})
    votes.sql("CREATE VIEW v AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story")
    with pytest.raises(UnknownName, match="is a view"):
        votes.put("v", {"story": 1})


def test_frames_with_times_beyond_the_calendar_are_refused(db: Database) -> None:
    db.sql("CREATE TABLE days (id BIGINT PRIMARY KEY, day DATE, at TIMESTAMP)")
    good = pl.DataFrame({"id": [1], "day": [dt.date(9999, 12, 31)], "at": [dt.datetime(1, 1, 1)]})
    db.insert("days", good)
    late = pl.DataFrame({"id": [2], "day": pl.Series([3_000_000]).cast(pl.Int32).cast(pl.Date)})
    with pytest.raises(InvalidRow, match="days, row 1: column day"):
        db.insert("days", late)
