"""The case of names does not matter, in the Python API as in SQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from viewkeep import ANY
from viewkeep.errors import DuplicateKey, InvalidRow, UnknownName

if TYPE_CHECKING:
    from viewkeep import Database

    CatchUp = Callable[[], Any]


@pytest.fixture
def votes(db: Database, catch_up: CatchUp) -> Database:
    db.sql("""
        CREATE TABLE Votes (Story BIGINT, Voter STRING, Stars INT, PRIMARY KEY (Story, Voter));
        CREATE VIEW Scores AS SELECT Story, Voter, Stars FROM Votes;
    """)
    db.put("Votes", {"Story": 1, "VOTER": "Ann", "stars": 5})
    catch_up()
    return db


ROW = {"story": 1, "voter": "Ann", "stars": 5}


def test_writes(votes: Database, tmp_path: Path) -> None:
    votes.put("VOTES", [{"STORY": 2, "Voter": "bob"}, {"story": 2, "voter": "cid", "Stars": 1}])
    votes.put("Votes", pl.DataFrame({"Story": [3], "Voter": ["dan"], "STARS": [2]}))
    votes.insert("Votes", [{"Story": 4, "Voter": "eve"}, {"voter": "fay", "story": 4}])
    with pytest.raises(DuplicateKey):
        votes.insert("Votes", {"Story": 4, "Voter": "eve", "Stars": 3})
    votes.delete("Votes", {"Voter": "bob", "Story": 2})
    votes.delete("Votes", (2, "cid"), columns=["Stars"])
    file = tmp_path / "votes.csv"
    file.write_text("STORY,Voter\n5,gus\n")
    votes.load("VOTES", file, progress=False)
    found = {(row["story"], row["voter"]): row["stars"] for row in votes.scan("votes").rows()}
    assert found == {
        (1, "Ann"): 5, (2, "cid"): None, (3, "dan"): 2, (4, "eve"): None, (4, "fay"): None,
        (5, "gus"): None,
    }  # fmt: skip


def test_reads(votes: Database) -> None:
    for name in ("scores", "Scores", "VOTES"):
        assert votes.get(name, (1, "Ann")) == ROW
        assert votes.get(name, {"STORY": 1, "voter": "Ann"}, at="latest") == ROW
        assert votes.get_many(name, [(1, "Ann")], at="stable") == [ROW]
        assert votes.scan(name, prefix={"Story": 1}).rows() == [ROW]
        assert votes.scan(name, slice={"Voter": "Ann"}).rows() == [ROW]
        assert votes.scan(name, slice=(ANY, "Ann")).rows() == [ROW]
        assert votes.aggregate(name, "SUM(Stars)") == {"SUM(Stars)": 5}
        assert votes.read([(name, (1, "Ann"))]) == [ROW]
        assert votes.schema(name).key == ("story", "voter")
    with votes.snapshot() as snapshot, votes.session() as session:
        assert snapshot.get("SCORES", (1, "Ann")) == ROW
        session.put("Votes", {"Story": 1, "Voter": "Ann", "Stars": 5})
        assert session.get("Votes", (1, "Ann")) == ROW
    assert "scores" in votes.explain("Scores")


def test_pages_go_on_under_another_case(votes: Database) -> None:
    votes.put("votes", {"story": 2, "voter": "bob"})
    first = votes.scan("Votes", limit=1)
    assert first.next is not None
    assert len(votes.scan("votes", limit=1, after=first.next)) == 1


def test_feeds(votes: Database) -> None:
    with votes.subscribe("SCORES", prefix={"Story": 1}) as feed:
        (event,) = feed.poll()
    assert event.rows == (ROW,)


def test_a_column_that_is_given_twice(votes: Database) -> None:
    with pytest.raises(InvalidRow, match="twice"):
        votes.put("votes", {"story": 1, "voter": "x", "Stars": 1, "stars": 2})
    with pytest.raises(InvalidRow, match="twice"):
        votes.put("votes", pl.DataFrame({"story": [1], "Story": [1], "voter": ["x"]}))
    with pytest.raises(InvalidRow, match="twice"):
        votes.get("votes", {"story": 1, "Story": 1, "voter": "x"})


def test_unknown_names_are_shown_as_they_are_written(votes: Database) -> None:
    with pytest.raises(InvalidRow, match="votes has no column Starz"):
        votes.put("votes", {"story": 1, "voter": "x", "Starz": 1})
    with pytest.raises(InvalidRow, match="Starz is not in the key"):
        votes.get("votes", {"Starz": 1})
    with pytest.raises(UnknownName, match="Did you mean votes"):
        votes.get("Votez", 1)
