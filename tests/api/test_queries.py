"""SELECT over several tables and views at once: what it reads, and at which point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from viewkeep.access.relations import TableRelation, ViewRelation
from viewkeep.engine.operators.join import whole
from viewkeep.errors import QueryTooLarge

if TYPE_CHECKING:
    from viewkeep import Database

    CatchUp = Callable[[], Any]


@pytest.fixture
def shop(db: Database, catch_up: CatchUp) -> Database:
    db.sql("""
        CREATE TABLE items (id INT PRIMARY KEY, kind STRING, price INT);
        CREATE TABLE sales (id INT PRIMARY KEY, item INT, n INT);
        INSERT INTO items VALUES (1, 'pen', 2), (2, 'ink', 7), (3, 'ink', 5), (4, NULL, 1);
        INSERT INTO sales VALUES (1, 1, 10), (2, 1, 20), (3, 2, 1), (4, NULL, 9);
        CREATE VIEW sold AS SELECT item, sum(n) AS n FROM sales GROUP BY item;
        CREATE VIEW kinds AS SELECT kind FROM items;
    """)
    catch_up()
    return db


def rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(text)]


def test_tables_and_views_together(shop: Database) -> None:
    text = """SELECT i.id, s.n FROM items i LEFT JOIN sold s ON s.item = i.id ORDER BY i.id"""
    assert rows(shop, text) == [(1, 30), (2, 1), (3, None), (4, None)]
    text = "SELECT i.id FROM items i WHERE i.id NOT IN (SELECT item FROM sold) ORDER BY 1"
    assert rows(shop, text) == []
    text = "SELECT id, (SELECT n FROM sold WHERE item = items.id) AS n FROM items ORDER BY id"
    assert rows(shop, text) == [(1, 30), (2, 1), (3, None), (4, None)]
    text = "SELECT item FROM sold UNION ALL SELECT id FROM items WHERE id > 3 ORDER BY item"
    assert rows(shop, text) == [(None,), (1,), (2,), (4,)]


def test_rows_of_a_view_whose_key_is_hidden(shop: Database) -> None:
    text = "SELECT count(*) AS n FROM kinds a FULL JOIN kinds b ON a.kind = b.kind AND a.kind < 'j'"
    assert rows(shop, text) == [(8,)]  # two inks in pairs; a pen and a NULL alone on each side
    assert rows(shop, "SELECT * FROM kinds ORDER BY kind LIMIT 2") == [(None,), ("ink",)]


def test_distinct_values_of_many_rows(db: Database) -> None:
    """A query adds up what a view may leave to a later level."""
    db.sql("CREATE TABLE many (k BIGINT PRIMARY KEY, x BIGINT)")
    db.put("many", pl.DataFrame({"k": range(20_000), "x": [k % 15_000 for k in range(20_000)]}))
    text = "SELECT COUNT(DISTINCT x) AS n, SUM(DISTINCT x) AS s, COUNT(x) AS a FROM many"
    assert rows(db, text) == [(15_000, sum(range(15_000)), 20_000)]
    text = "SELECT k % 2 AS g, COUNT(DISTINCT x) AS n, MEDIAN(DISTINCT x) AS m FROM many GROUP BY 1"
    assert sorted(rows(db, text)) == [(0, 7_500, 7_499.0), (1, 7_500, 7_500.0)]


def test_one_point_for_all(shop: Database, catch_up: CatchUp) -> None:
    shop.sql("INSERT INTO items VALUES (9, 'pad', 3); INSERT INTO sales VALUES (9, 9, 5)")
    assert rows(shop, "SELECT i.id FROM items i JOIN sales s ON s.item = i.id WHERE i.id = 9") == [
        (9,)
    ]
    # A view is read at the published epoch, so the table beside it is read at that cut.
    text = "SELECT i.id FROM items i LEFT JOIN sold s ON s.item = i.id WHERE i.id = 9"
    assert rows(shop, text) == []
    catch_up()
    assert rows(shop, text) == [(9,)]


def test_without_tables(shop: Database) -> None:
    assert rows(shop, "SELECT 1 + 1 AS two") == [(2,)]
    assert rows(shop, "SELECT a FROM VALUES (2), (1) AS v(a) ORDER BY a") == [(1,), (2,)]


def test_keys_are_looked_up(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(*args: object) -> None:
        raise AssertionError("all rows are read")

    monkeypatch.setattr(TableRelation, "scan", scan)
    monkeypatch.setattr(ViewRelation, "scan", scan)
    text = "SELECT i.kind, s.n FROM items i JOIN sales s ON s.item = i.id"
    assert rows(shop, f"{text} WHERE i.id = 1 AND s.id IN (1, 2) ORDER BY n") == [
        ("pen", 10),
        ("pen", 20),
    ]
    text = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.kind = b.kind"
    assert rows(shop, f"{text} WHERE a.id = 2 AND b.id = 3") == [(2, 3)]
    text = "SELECT i.id, n FROM items i JOIN sold ON i.id = item WHERE i.id = 1 AND item = 1"
    assert rows(shop, text) == [(1, 30)]


def test_joins_are_bounded(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_JOINED", 6)
    alike = "SELECT a.id FROM items a {} JOIN items b ON a.kind <=> b.kind"
    assert len(rows(shop, alike.format(""))) == 6
    assert len(rows(shop, "SELECT a.id FROM items a JOIN items b ON a.id = b.id")) == 4
    monkeypatch.setattr(whole, "MOST_JOINED", 5)
    for text in (alike.format(""), alike.format("FULL"), "SELECT 1 AS n FROM items a, items b"):
        with pytest.raises(QueryTooLarge, match=r"a join of the query has (6|16) rows, and 5 are"):
            shop.sql(text)
    assert len(rows(shop, "SELECT id FROM items a WHERE kind IN (SELECT kind FROM items)")) == 3


def test_insert_of_a_join(shop: Database) -> None:
    shop.sql("""
        CREATE TABLE totals (id INT PRIMARY KEY, n BIGINT);
        INSERT INTO totals SELECT i.id, s.n FROM items i JOIN sold s ON s.item = i.id;
    """)
    assert rows(shop, "SELECT * FROM totals ORDER BY id") == [(1, 30), (2, 1)]
