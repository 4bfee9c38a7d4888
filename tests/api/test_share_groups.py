"""A view uses the groups that another view keeps, if those have all that it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import viewkeep
from viewkeep import Database
from viewkeep.plan.nodes import Aggregate

TABLES = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, author STRING);
CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars INT, device STRING);
"""
SCORES = """CREATE VIEW scores AS
    SELECT story, COUNT(*) AS n, SUM(stars) AS stars, MAX(stars) AS best FROM votes GROUP BY story;
"""
AUTHORS = """CREATE VIEW authors AS
    SELECT s.author, SUM(v.stars) AS stars
    FROM stories s JOIN votes v ON v.story = s.id GROUP BY s.author;
"""


@pytest.fixture
def site() -> Iterator[Database]:
    with viewkeep.open(":memory:") as memory:
        memory.sql(TABLES)
        memory.put("stories", [{"id": 1, "author": "ann"}, {"id": 2, "author": "bob"}])
        votes = [(1, 1, 3), (2, 1, None), (3, 2, 4), (4, 2, 5)]
        rows = [{"id": i, "story": s, "stars": n, "device": "x"} for i, s, n in votes]
        memory.put("votes", rows)
        yield memory


def groupings(db: Database) -> int:
    """How many operators group votes by story."""
    operators = db.catalog.current().program.operators
    found = [op.node for op in operators if isinstance(op.node, Aggregate)]
    return sum("story" in str(node.keys) for node in found)


def authors(db: Database) -> list[tuple[object, ...]]:
    return sorted(db.scan("authors").tuples())


def test_explain_says_with_what_groups_are_kept(site: Database) -> None:
    site.sql(SCORES + AUTHORS)
    assert groupings(site) == 1
    assert "kept with view scores: COUNT(*), MAX(stars)" in site.explain("authors")
    assert "kept with" not in site.explain("scores")
    assert authors(site) == [("ann", 3), ("bob", 9)]


def test_the_view_that_brought_them_may_go(site: Database) -> None:
    site.sql(SCORES + AUTHORS)
    site.sql("DROP VIEW scores")
    assert "kept for no view any more: COUNT(*), MAX(stars)" in site.explain("authors")
    site.put("votes", {"id": 5, "story": 1, "stars": 2, "device": "y"})
    site.sql("DELETE FROM votes WHERE id = 4")
    assert authors(site) == [("ann", 5), ("bob", 4)]


def test_groups_that_are_there_get_no_more_calls(site: Database) -> None:
    site.sql(AUTHORS + SCORES)
    assert groupings(site) == 2
    assert authors(site) == [("ann", 3), ("bob", 9)]


def test_a_view_does_not_come_to_need_another_column(site: Database) -> None:
    """Else the column could not be dropped for a view that does not read it."""
    called = "SUM(stars) AS s, MAX(device) AS d"
    site.sql(f"CREATE VIEW d AS SELECT story, {called} FROM votes GROUP BY story")
    site.sql(AUTHORS)
    assert groupings(site) == 2
    site.sql("DROP VIEW d")
    site.sql("ALTER TABLE votes DROP COLUMN device")
    assert authors(site) == [("ann", 3), ("bob", 9)]


def test_views_of_one_change_share(site: Database) -> None:
    site.apply(TABLES + SCORES + AUTHORS)
    assert groupings(site) == 1
    assert authors(site) == [("ann", 3), ("bob", 9)]
    again = site.apply(TABLES + SCORES + AUTHORS, dry_run=True)
    assert not again.pending, again


def test_a_view_replaced_by_itself_stays(site: Database) -> None:
    site.sql(SCORES + AUTHORS)
    before = site.catalog.current().views["authors"]
    site.sql("DROP VIEW scores")
    site.sql(AUTHORS.replace("CREATE", "CREATE OR REPLACE"))
    assert site.catalog.current().views["authors"] == before
