"""Queries that no view could be kept by: DuckDB answers them, over rows of one point alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from viewkeep.access.duckdb import child as duck_child
from viewkeep.access.duckdb import pool as duck_pool
from viewkeep.access.duckdb import query as duck
from viewkeep.errors import (
    QueryTimeout,
    QueryTooLarge,
    SqlError,
    Timeout,
    UnknownName,
    Unsupported,
)
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP

if TYPE_CHECKING:
    from viewkeep import Database

    CatchUp = Callable[[], Any]

SHOP = """
    CREATE TABLE items (id INT PRIMARY KEY, kind STRING, price DECIMAL(8,2), since DATE, w DOUBLE);
    CREATE TABLE sales (day DATE, n INT, item INT, amount BIGINT, at TIMESTAMP,
        PRIMARY KEY (day, n));
    CREATE VIEW sold AS SELECT item, SUM(amount) AS amount FROM sales GROUP BY item;
    INSERT INTO items VALUES
        (1, 'pen', 2.50, DATE '2024-01-01', 0.5), (2, 'ink', 7, NULL, NULL), (3, NULL, 1, NULL, 2);
    INSERT INTO sales VALUES
        (DATE '2024-03-01', 1, 1, 10, TIMESTAMP '2024-03-01 08:00:00.25'),
        (DATE '2024-03-01', 2, 2, 5, NULL),
        (DATE '2024-03-02', 1, 1, 7, TIMESTAMP '2024-03-02 09:00:00'),
        (DATE '2024-03-05', 1, NULL, 9, NULL);
"""
MEMORY = 128 << 20
ALWAYS = "rand() >= 0"  # true, and no view is kept by it


@pytest.fixture
def shop(db: Database, catch_up: CatchUp) -> Database:
    db.sql(SHOP)
    catch_up()
    return db


QUERIES = [
    # What is asked, and the same in DuckDB's own words.
    ("SELECT bit_and(amount) AS x, bit_or(amount) AS y FROM sales", None),
    (
        "SELECT day, n, sum(amount) OVER (ORDER BY day RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND "
        "CURRENT ROW) AS s FROM sales ORDER BY day, n",
        None,
    ),
    (
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 9) "
        "SELECT n, kind FROM r LEFT JOIN items ON id = n ORDER BY n",
        None,
    ),
    (
        "SELECT i.id, s.amount FROM items i LEFT JOIN sold s ON s.item = i.id AND "
        "s.amount > (SELECT min(amount) FROM sales) ORDER BY i.id",
        None,
    ),
    (
        f"SELECT * FROM items WHERE {ALWAYS} ORDER BY id DESC",
        "SELECT * FROM items ORDER BY id DESC",
    ),
    (
        f"SELECT kind FROM items WHERE {ALWAYS} ORDER BY kind",
        "SELECT kind FROM items ORDER BY kind NULLS FIRST",
    ),
    (
        f"SELECT at, amount / 2 AS h FROM sales WHERE {ALWAYS} ORDER BY at DESC, h",
        'SELECT "at", amount / 2 AS h FROM sales ORDER BY "at" DESC NULLS LAST, h',
    ),
    (f"SELECT count(*) AS n FROM sold WHERE {ALWAYS}", "SELECT count(*) AS n FROM sold"),
    (
        f"SELECT x.a FROM items AS x(a, b, c, d, e) WHERE {ALWAYS} ORDER BY 1",
        "SELECT id AS a FROM items ORDER BY 1",
    ),
    (
        f"SELECT array_agg(id) AS a FROM items WHERE {ALWAYS}",
        "SELECT array_agg(id) AS a FROM items",
    ),
]


@pytest.mark.parametrize(("text", "own"), QUERIES)
def test_answers(shop: Database, text: str, own: str | None) -> None:
    with duckdb.connect() as oracle:
        for name in ("items", "sales", "sold"):
            oracle.register(name, shop.scan(name).arrow())
        expected = oracle.execute(own or text).fetchall()
    result = shop.sql(text)
    assert result.tuples() == expected
    assert result.how.startswith("by DuckDB over ")


def test_it_says_how_and_at_which_epoch(shop: Database) -> None:
    result = shop.sql(f"SELECT id FROM items WHERE {ALWAYS}")
    assert (result.how, result.epoch) == ("by DuckDB over items by scanning it", None)
    result = shop.sql(f"SELECT id FROM items JOIN sold ON item = id AND {ALWAYS}")
    assert result.how == "by DuckDB over items, sold by scanning them"
    assert result.epoch == shop.epochs.read().published.epoch
    assert shop.sql("SELECT uuid() AS u").how == "by DuckDB"
    text = f"SELECT amount FROM sales WHERE day = DATE '2024-03-01' AND {ALWAYS}"
    assert shop.sql(text).how == "by DuckDB over sales by the beginning of its key"
    assert shop.sql(f"{text} AND n = 2").how == "by DuckDB over sales by key"
    assert shop.sql(f"{text} AND n = 2").tuples() == [(5,)]
    assert shop.sql(f"SELECT amount FROM sold WHERE item IN (1, 2, 8) AND {ALWAYS}").how == (
        "by DuckDB over sold by key"
    )


def test_a_condition_of_one_part_does_not_narrow_another(shop: Database) -> None:
    text = f"SELECT id FROM items WHERE id = 1 AND {ALWAYS} UNION ALL SELECT id FROM items"
    assert len(shop.sql(text)) == 4


def test_columns_have_our_types(shop: Database) -> None:
    prepared = shop.prepare(
        "SELECT sum(amount) AS s, now() AS t, uuid() AS u, rand() AS r, now() > ? AS b, "
        "CAST(1 AS TINYINT) AS i FROM sales"
    )
    assert prepared.columns is not None
    names = {"s": BIGINT, "t": TIMESTAMP, "u": STRING, "r": DOUBLE, "b": BOOLEAN, "i": INT}
    assert dict(prepared.columns) == names
    row = prepared.run(dt.datetime(2024, 1, 1)).one()
    assert (row["s"], row["b"], row["i"], len(row["u"])) == (31, True, 1, 36)
    assert abs(row["t"] - dt.datetime.now(dt.UTC).replace(tzinfo=None)) < dt.timedelta(minutes=5)
    price = shop.sql(f"SELECT price FROM items WHERE id = 1 AND {ALWAYS}").one()["price"]
    assert price == Decimal("2.50")
    with pytest.raises(Unsupported, match=r"a column is INTERVAL, .*CAST it"):
        shop.sql("SELECT INTERVAL 1 DAY AS i")
    with pytest.raises(Unsupported, match="column s is HUGEINT in DuckDB and has a value"):
        shop.sql(f"SELECT sum(9223372036854775807) AS s FROM items WHERE {ALWAYS}")


def test_one_point(shop: Database, catch_up: CatchUp) -> None:
    shop.sql("INSERT INTO sales VALUES (DATE '2024-04-01', 1, 3, 1, NULL)")
    shop.sql("INSERT INTO items VALUES (9, 'pad', 1, NULL, NULL)")
    text = f"SELECT i.id FROM items i LEFT JOIN sold ON item = i.id WHERE i.id = 9 AND {ALWAYS}"
    assert shop.sql(text).tuples() == []  # with a view, the table is read at the published cut
    assert shop.sql(f"SELECT id FROM items WHERE id = 9 AND {ALWAYS}").tuples() == [(9,)]
    assert shop.sql(f"SELECT id FROM items WHERE id = 9 AND {ALWAYS}", at="stable").tuples() == []
    catch_up()
    assert shop.sql(text).tuples() == [(9,)]
    with shop.session(timeout=0.01) as session:
        session.put("sales", {"day": dt.date(2024, 5, 1), "n": 1, "item": 9, "amount": 2})
        with pytest.raises(Timeout, match="lacks 1 operation"):
            session.sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT rand() AS r, content FROM items, read_text('/etc/passwd')",
        "SELECT rand() AS r FROM glob('/etc/*')",
        "SELECT * FROM `/etc/passwd`",
        "SELECT * FROM '/etc/passwd'",
        "SELECT rand() AS r FROM information_schema.tables",
        "SELECT rand() AS r FROM duckdb_settings()",
        "SELECT rand() AS r FROM sqlite_master",
        "SELECT (SELECT count(*) FROM read_csv('/etc/passwd')) AS r FROM items",
        "SELECT getenv('HOME') AS home",
        "COPY items TO '/tmp/items.csv'",
        "ATTACH '/tmp/x.db'",
    ],
)
def test_nothing_outside_is_reached(shop: Database, text: str) -> None:
    with pytest.raises(SqlError):
        shop.sql(text)


def test_duckdb_itself_is_closed() -> None:
    items = duckdb.sql("SELECT 1 AS x").arrow()  # a variable is no table
    assert items is not None
    with duck_child.open_duck(64 << 20) as connection:
        for text in (
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM read_text('/etc/passwd')",
            "SELECT * FROM '/etc/passwd'",
            "SELECT * FROM items",
            "COPY (SELECT 1) TO '/tmp/viewkeep-outside.csv'",
            "ATTACH '/tmp/viewkeep-outside.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "SET memory_limit = '64GB'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(text)


def test_errors_are_ours_first(shop: Database) -> None:
    with pytest.raises(UnknownName, match=r"no column knid in items.*Did you mean kind\?"):
        shop.sql("SELECT knid FROM items")
    with pytest.raises(UnknownName, match="no table or view is called nothing"):
        shop.sql("SELECT rand() AS r FROM nothing")
    with pytest.raises(UnknownName, match="no function nosuch"):
        shop.sql("SELECT nosuch(id) AS x FROM items")
    with pytest.raises(Unsupported, match=r"rand has another value.*DuckDB says: Binder Error"):
        shop.sql("SELECT rand() AS r, kind, count(*) AS n FROM items")
    with pytest.raises(Unsupported, match=r"rand has another value.*there is no column knid"):
        shop.sql("SELECT rand() AS r, knid FROM items")
    with pytest.raises(Unsupported, match="two columns are called id"):
        shop.sql("SELECT id, id FROM items")


def test_views_and_writes_are_refused_as_before(shop: Database) -> None:
    for text in (
        "CREATE VIEW v AS SELECT rand() AS r, id FROM items",
        "INSERT INTO items SELECT id + 10, kind, price, since, rand() FROM items",
        "EXPLAIN SELECT rand() AS r FROM items",
    ):
        with pytest.raises(Unsupported, match="another value each time"):
            shop.sql(text)


def test_bounds(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(duck, "MOST_ROWS", 3)
        assert len(shop.sql(f"SELECT id FROM items WHERE {ALWAYS}")) == 3
        with pytest.raises(QueryTooLarge, match="reads more than 3 rows"):
            shop.sql(f"SELECT id FROM items JOIN sold ON item = id AND {ALWAYS}")
    with monkeypatch.context() as patch:
        patch.setattr(duck_pool, "MOST_RESULTS", 2)
        with pytest.raises(QueryTooLarge, match="gives more than 2 rows"):
            shop.sql(f"SELECT id FROM items WHERE {ALWAYS}")
    with monkeypatch.context() as patch:
        patch.setattr(duck_pool, "MOST_BYTES", 1_000)
        with pytest.raises(QueryTooLarge, match="gives more than 1,000 bytes"):
            shop.sql(f"SELECT repeat('x', 2000) AS x FROM items WHERE {ALWAYS}")
    endless = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT n FROM r"
    with pytest.raises(QueryTimeout, match=r"took longer than 2 s.*\(max_seconds\)"):
        shop.sql(f"{endless} WHERE n < 0", max_seconds=2)
    with pytest.raises(QueryTooLarge, match=r"the 128 MiB that.*\(max_query_memory\)"):
        shop.sql(
            "SELECT length(repeat('x', 1000000000)) AS n, uuid() AS u", max_query_memory=MEMORY
        )
    assert len(shop.sql(f"SELECT id FROM items WHERE {ALWAYS}", max_query_memory=MEMORY)) == 3
