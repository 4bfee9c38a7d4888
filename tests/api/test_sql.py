"""Statements through `Database.sql`: what they do, what they give back, what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from viewkeep.access.statements import update_delete
from viewkeep.errors import (
    CatalogError,
    DuplicateKey,
    InvalidRow,
    NotReady,
    SqlError,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]


@pytest.fixture
def shop(db: Database) -> Database:
    db.sql("""
        CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING, price DECIMAL(8,2), stock INT);
        INSERT INTO items VALUES (1, 'pen', 1.50, 10), (2, 'ink', 7.25, 0), (3, 'pad', NULL, 4);
    """)
    return db


def ids(db: Database) -> list[int]:
    return [row["id"] for row in db.scan("items")]


def test_insert(shop: Database) -> None:
    result = shop.sql("INSERT INTO items (stock, id) VALUES (1, 4), (2, 5)")
    assert result.affected == 2
    assert shop.get("items", 4) == {"id": 4, "name": None, "price": None, "stock": 1}
    with pytest.raises(DuplicateKey, match="id = 5"):
        shop.sql("INSERT INTO items (id) VALUES (6), (5)")
    assert shop.get("items", 6) is None
    shop.sql("INSERT OR REPLACE INTO items VALUES (5, 'cup', 3.00, 9)")
    assert shop.get("items", 5) == {
        "id": 5,
        "name": "cup",
        "price": Decimal("3.00"),
        "stock": 9,
    }


def test_insert_refuses_bad_rows(shop: Database) -> None:
    for text in (
        "INSERT INTO items (id) VALUES (NULL)",
        "INSERT INTO items (name) VALUES ('x')",
        "INSERT INTO items (id, colour) VALUES (9, 'red')",
        "INSERT INTO items VALUES (9, 'x')",
        "INSERT INTO items (id, stock) VALUES (9, 'many')",
    ):
        with pytest.raises((SqlError, InvalidRow)):
            shop.sql(text)
    assert ids(shop) == [1, 2, 3]


def test_update_by_key_and_by_predicate(shop: Database) -> None:
    assert shop.sql("UPDATE items SET stock = stock + 1 WHERE id = 1").affected == 1
    assert shop.sql("UPDATE items SET stock = 0 WHERE id = 77").affected == 0
    assert shop.sql("UPDATE items SET price = price * 2, name = 'x' WHERE stock > 3").affected == 2
    assert shop.scan("items").tuples() == [
        (1, "x", Decimal("3.00"), 11),
        (2, "ink", Decimal("7.25"), 0),
        (3, "x", None, 4),
    ]
    assert shop.sql("UPDATE items SET stock = NULL").affected == 3


def test_update_of_nothing_and_of_null_predicates(shop: Database) -> None:
    assert shop.sql("UPDATE items SET stock = 1 WHERE price > 100").affected == 0
    assert shop.sql("UPDATE items SET stock = 1 WHERE price > 1 OR price IS NULL").affected == 3
    assert shop.sql("UPDATE items SET stock = 2 WHERE NOT (price > 100)").affected == 2


def test_delete(shop: Database) -> None:
    assert shop.sql("DELETE FROM items WHERE id IN (1, 99)").affected == 1
    assert shop.sql("DELETE FROM items WHERE stock = 0").affected == 1
    assert ids(shop) == [3]
    assert shop.sql("DELETE FROM items").affected == 1
    assert ids(shop) == []


def test_what_others_write_while_a_statement_runs(
    shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed row is read again; one that begins to match is as written just after it."""
    matching, reads = update_delete._matching, [0]

    def interrupted(*arguments: Any) -> Any:
        found = matching(*arguments)
        reads[0] += 1
        if reads[0] == 1:
            shop.put("items", [{"id": 4, "stock": 0}, {"id": 3, "stock": 0}])
        if reads[0] == 3:
            shop.put("items", {"id": 1, "stock": 3})
        return found

    monkeypatch.setattr(update_delete, "_matching", interrupted)
    assert shop.sql("UPDATE items SET name = 'none' WHERE stock = 0").affected == 1
    names = {row["id"]: row["name"] for row in shop.scan("items")}
    assert names == {1: "pen", 2: "none", 3: "pad", 4: None}
    assert shop.sql("UPDATE items SET name = 'none' WHERE stock = 0").affected == 3
    assert reads[0] == 2
    assert shop.sql("UPDATE items SET stock = stock + 1 WHERE id = 1").affected == 1
    assert reads[0] == 4, "the row had changed, and was read again"
    assert shop.sql("SELECT stock FROM items WHERE id = 1").one() == {"stock": 4}


def test_concurrent_updates_lose_nothing(shop: Database) -> None:
    """Read-modify-write by predicate from two threads: every increment counts."""
    shop.sql("UPDATE items SET stock = 0")
    failures: list[BaseException] = []

    def add(key: int) -> None:
        try:
            for _ in range(20):
                while not _tried(shop, f"UPDATE items SET stock = stock + 1 WHERE id = {key}"):
                    pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add, args=(1,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    row = shop.get("items", 1)
    assert row is not None
    assert row["stock"] == 40


def _tried(db: Database, text: str) -> bool:
    from viewkeep.errors import Conflict

    try:
        db.sql(text)
    except Conflict:
        return False
    return True


def test_select_from_a_table(shop: Database) -> None:
    assert shop.sql("SELECT * FROM items").columns == ["id", "name", "price", "stock"]
    assert len(shop.sql("SELECT * FROM items")) == 3
    result = shop.sql("SELECT name, stock * 2 AS double FROM items WHERE stock > 0 ORDER BY name")
    assert result.tuples() == [("pad", 8), ("pen", 20)]
    result = shop.sql("SELECT id FROM items ORDER BY stock DESC LIMIT 2")
    assert result.tuples() == [(1,), (3,)]
    result = shop.sql("SELECT COUNT(*) AS n, SUM(price) AS p, MAX(stock) AS m FROM items")
    assert result.one() == {"n": 3, "p": Decimal("8.75"), "m": 10}
    result = shop.sql("SELECT stock > 0 AS some, COUNT(*) AS n FROM items GROUP BY stock > 0")
    assert sorted(result.tuples()) == [(False, 1), (True, 2)]
    assert shop.sql("SELECT id FROM items WHERE id = 2").tuples() == [(2,)]


def test_select_from_a_view(shop: Database, catch_up: CatchUp) -> None:
    shop.sql("CREATE VIEW stocked AS SELECT id, name, stock FROM items WHERE stock > 0")
    with pytest.raises(NotReady):
        shop.sql("SELECT * FROM stocked")
    catch_up()
    shop.put("items", {"id": 9, "stock": 1})
    assert shop.sql("SELECT id FROM stocked ORDER BY id").tuples() == [(1,), (3,)]
    assert shop.sql("SELECT SUM(stock) AS n FROM stocked").one() == {"n": 14}
    catch_up()
    assert shop.sql("SELECT id FROM stocked WHERE name IS NULL").tuples() == [(9,)]


def test_select_from_an_aggregate_view(shop: Database, catch_up: CatchUp) -> None:
    shop.sql("""
        CREATE VIEW by_stock AS
            SELECT stock > 0 AS some, COUNT(*) AS n, AVG(price) AS mean
            FROM items GROUP BY stock > 0
    """)
    catch_up()
    result = shop.sql("SELECT n, some FROM by_stock WHERE n > 1")
    assert result.tuples() == [(2, True)]


def test_views_follow(shop: Database, catch_up: CatchUp) -> None:
    shop.sql("""
        CREATE VIEW names AS SELECT name, COUNT(*) AS n FROM items GROUP BY name;
        CREATE VIEW counts AS SELECT n, COUNT(*) AS names FROM names GROUP BY n;
    """)
    catch_up()
    assert shop.get("counts", 1) == {"n": 1, "names": 3}
    shop.sql("UPDATE items SET name = 'pen' WHERE id = 2; DELETE FROM items WHERE id = 3")
    catch_up()
    assert shop.get("names", "pen") == {"name": "pen", "n": 2}
    assert shop.get("names", "pad") is None
    assert shop.scan("counts").tuples() == [(2, 1)]


def test_explain_show_describe(shop: Database) -> None:
    shop.sql("CREATE VIEW names AS SELECT name, COUNT(*) AS n FROM items GROUP BY name")
    assert "items" in shop.explain("names")
    assert "items" in shop.explain()
    assert "items" in shop.explain("SELECT stock, COUNT(*) AS n FROM items GROUP BY stock")
    assert repr(shop.sql("EXPLAIN SELECT stock, COUNT(*) AS n FROM items GROUP BY stock"))
    assert shop.sql("SHOW TABLES").rows()[0]["name"] == "items"
    assert shop.sql("SHOW VIEWS").rows()[0]["name"] == "names"
    described = shop.sql("DESCRIBE items").rows()
    assert described[0] == {"column": "id", "type": "BIGINT", "nullable": False, "key": 1}
    assert described[2]["type"] == "DECIMAL(8,2)"
    with pytest.raises(UnknownName, match="Did you mean names"):
        shop.explain("name")


def test_statements_in_a_row(shop: Database) -> None:
    results = list(shop.execute("SELECT COUNT(*) AS n FROM items; DELETE FROM items WHERE id = 1;"))
    assert [len(result) for result in results] == [1, 0]
    assert results[1].affected == 1
    assert shop.sql("").columns == []
    with pytest.raises(UnknownName):
        shop.sql("DELETE FROM items WHERE id = 2; SELECT * FROM nothing; DELETE FROM items")
    assert ids(shop) == [3]


def test_refusals(shop: Database) -> None:
    with pytest.raises(SqlSyntaxError):
        shop.sql("SELEKT 1")
    with pytest.raises(UnknownName, match="items"):
        shop.sql("SELECT * FROM itemz")
    with pytest.raises(UnknownName):
        shop.sql("SELECT colour FROM items")
    with pytest.raises((TypeMismatch, SqlError)):
        shop.sql("UPDATE items SET stock = 'x' WHERE id = 1")
    with pytest.raises(CatalogError, match="exists already"):
        shop.sql("CREATE TABLE items (id BIGINT PRIMARY KEY)")
    shop.sql("CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY)")
    shop.sql("CREATE VIEW v AS SELECT id FROM items")
    with pytest.raises(CatalogError, match="items is read by v; drop that view first"):
        shop.sql("DROP TABLE items")
    with pytest.raises(SqlError):
        shop.sql("DELETE FROM v WHERE id = 1")
    with pytest.raises(SqlError):
        shop.sql("INSERT INTO v VALUES (1)")
    shop.sql("DROP VIEW v; DROP TABLE items; DROP TABLE IF EXISTS items")
    assert shop.tables() == []


def test_show_create(db: Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT, day DATE, d DECIMAL(10,2), PRIMARY KEY (day, id))")
    db.sql("CREATE OR REPLACE VIEW V (a, b) AS SELECT day, COUNT(*) FROM t GROUP BY day ORDER BY 2")
    db.sql("CREATE INDEX i ON t (d DESC)")

    def shown(kind: str, name: str) -> str:
        return str(db.sql(f"SHOW CREATE {kind} {name}").one()["createtab_stmt"])

    columns = "`id` BIGINT, `day` DATE, `d` DECIMAL(10,2)"
    assert shown("TABLE", "T") == f"CREATE TABLE `t` ({columns}, PRIMARY KEY (`day`, `id`))"
    assert shown("VIEW", "`v`") == (
        "CREATE VIEW V (a, b) AS SELECT day, COUNT(*) FROM t GROUP BY day ORDER BY 2"
    )
    assert shown("INDEX", "i") == "CREATE INDEX i ON TABLE t(d DESC)"
    with pytest.raises(UnknownName, match="There are: i, t, v"):
        shown("TABLE", "nope")
    for wrong in ("SHOW CREATE", "SHOW CREATE t", "SHOW CREATE VIEW (SELECT 1)"):
        with pytest.raises(SqlSyntaxError, match="SHOW CREATE"):
            db.sql(wrong)
