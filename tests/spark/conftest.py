"""What the Spark tests share: a news site with a view of every kind, and random changes of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from viewkeep import Database

TABLES = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, author STRING, title STRING, score DOUBLE);
CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, value INT, weight DECIMAL(10,2))
"""
VIEWS = {
    "titles": "SELECT id, coalesce(title, '?') AS title FROM stories "
    "WHERE score > 0 OR author IS NULL",
    "scores": "SELECT story, COUNT(*) AS votes, SUM(value) AS total, AVG(value) AS mean "
    "FROM votes GROUP BY story",
    "extremes": "SELECT story, MIN(weight) AS low, MAX(weight) AS high, "
    "COUNT(DISTINCT value) AS kinds FROM votes GROUP BY story HAVING COUNT(*) > 1",
    "authors": "SELECT author, COUNT(*) AS stories, SUM(score) AS score "
    "FROM stories GROUP BY author",
    "overall": "SELECT COUNT(*) AS votes, SUM(weight) AS weight FROM votes",
    "by_votes": "SELECT votes, COUNT(*) AS stories FROM scores GROUP BY votes",
    "headlines": "SELECT s.id, s.title, v.votes "
    "FROM stories s LEFT JOIN scores v ON v.story = s.id",
    "voted": "SELECT s.author, COUNT(*) AS votes, SUM(v.weight) AS weight "
    "FROM votes v JOIN stories s ON v.story = s.id GROUP BY s.author",
    "unvoted": "SELECT id, author FROM stories s "
    "WHERE NOT EXISTS (SELECT * FROM votes v WHERE v.story = s.id)",
    "above": "SELECT v.id, v.value FROM votes v "
    "WHERE v.value > (SELECT AVG(w.value) FROM votes w WHERE w.story = v.story)",
    "most": "SELECT story, votes FROM scores ORDER BY votes DESC, story LIMIT 3",
    "places": "SELECT id, author, RANK() OVER (PARTITION BY author ORDER BY score DESC) AS place "
    "FROM stories",
    "texts": "SELECT author AS text FROM stories UNION SELECT title FROM stories",
}


def make_site(db: Database) -> None:
    """The tables and views of the news site."""
    db.sql(TABLES)
    for name, select in VIEWS.items():
        db.sql(f"CREATE VIEW {name} AS {select}")


def change_site(db: Database, source: random.Random, operations: int = 40) -> None:
    """Random puts, partial puts and deletes: NULLs, re-inserts, changed groups, one hot story."""
    for _ in range(operations):
        key = source.randrange(60)
        kind = source.random()
        if kind < 0.15:
            db.delete(source.choice(("stories", "votes")), key)
        elif kind < 0.35:
            row = {
                "id": key,
                "author": source.choice((None, "ann", "bob", "çelik")),
                "title": source.choice((None, "", "a title", "Ünïcode")),
                "score": source.choice((None, -1.5, 0.0, 0.1, 1e10, source.uniform(-5, 5))),
            }
            db.put("stories", row)
        elif kind < 0.45:
            db.put("votes", {"id": key, "value": source.choice((None, -1, 1, 5))})
        else:
            votes = [
                {
                    "id": source.randrange(60),
                    "story": source.choice((None, 1, 1, 1, source.randrange(10))),
                    "value": source.choice((None, 1, -1, 2**31 - 1)),
                    "weight": source.choice((None, "1.25", "-0.10", "99999999.99")),
                }
                for _ in range(source.randrange(1, 4))
            ]
            db.put("votes", [_decimal(vote) for vote in votes])


def _decimal(vote: dict[str, object]) -> dict[str, object]:
    from decimal import Decimal

    weight = vote["weight"]
    return {**vote, "weight": None if weight is None else Decimal(str(weight))}


@pytest.fixture
def site(db: Database) -> Database:
    """The news site, without rows."""
    make_site(db)
    return db


@pytest.fixture
def change(site: Database) -> Callable[[random.Random], None]:
    """Applies some random operations to the news site."""
    return lambda source: change_site(site, source)
