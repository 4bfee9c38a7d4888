"""ALTER TABLE and RENAME TABLE over MySQL: the table, its rows, and what was declared of it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from viewkeep.catalog import Catalog
from viewkeep.errors import CatalogError

from .test_pymysql import code_of, rows

if TYPE_CHECKING:
    from pymysql import Connection

    from .conftest import Running

TABLE = "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(9) NOT NULL, n INT)"


@pytest.fixture
def table(client: Connection[Any]) -> Connection[Any]:
    for statement in ("DROP VIEW IF EXISTS v", "DROP TABLE IF EXISTS t, u", TABLE):
        rows(client, statement)
    rows(client, "INSERT INTO t (id, a, n) VALUES (1, 'x', 5), (2, 'y', NULL)")
    return client


def columns(client: Connection[Any], table: str = "t") -> list[tuple[Any, ...]]:
    """Name, type, whether it may be NULL, and default."""
    return [(*row[:3], row[4]) for row in rows(client, f"SHOW COLUMNS FROM {table}")][1:]


def warnings(client: Connection[Any]) -> list[str]:
    return [text for _, _, text in rows(client, "SHOW WARNINGS")]


def test_a_new_column_has_its_default_in_rows_that_are_there(table: Connection[Any]) -> None:
    rows(table, "ALTER TABLE t ADD COLUMN b SMALLINT DEFAULT 7 NOT NULL, ADD c VARCHAR(3)")
    assert columns(table)[2:] == [("b", "smallint", "NO", "7"), ("c", "varchar(3)", "YES", None)]
    assert rows(table, "SELECT b, c FROM t") == ((7, None), (7, None))
    rows(table, "INSERT INTO t (id, a) VALUES (3, 'z')")
    assert rows(table, "SELECT b, c FROM t WHERE id = 3") == ((7, None),)
    assert code_of(table, "INSERT INTO t (id, a, c) VALUES (4, 'z', 'long')") == 1406
    assert code_of(table, "INSERT INTO t (id, a, b) VALUES (4, 'z', NULL)") == 1048
    assert code_of(table, "INSERT INTO t (id, a, b) VALUES (4, 'z', 40000)") == 1264


def test_the_default_of_a_migration_goes_again(table: Connection[Any]) -> None:
    """As Django does it: with a default for the rows that are there, and then without."""
    rows(table, "ALTER TABLE `t` ADD COLUMN `b` longtext DEFAULT ('old') NOT NULL")
    rows(table, "ALTER TABLE `t` ALTER COLUMN `b` DROP DEFAULT")
    assert rows(table, "SELECT b FROM t") == (("old",), ("old",))
    assert columns(table)[2] == ("b", "longtext", "NO", None)
    assert code_of(table, "INSERT INTO t (id, a) VALUES (3, 'z')") == 1364
    rows(table, "ALTER TABLE t ALTER COLUMN b SET DEFAULT 'new'")
    rows(table, "INSERT INTO t (id, a) VALUES (3, 'z')")
    assert rows(table, "SELECT b FROM t WHERE id = 3") == (("new",),)


def test_not_null_without_a_default_is_an_empty_value(table: Connection[Any]) -> None:
    rows(
        table,
        "ALTER TABLE t ADD COLUMN b INT UNSIGNED NOT NULL CHECK (`b` >= 0), "
        "ADD COLUMN c TEXT NOT NULL, ADD COLUMN d DECIMAL(5,2) NOT NULL, "
        "ADD COLUMN e BOOLEAN NOT NULL, "
        "ADD COLUMN f DATETIME(6) DEFAULT CURRENT_TIMESTAMP NOT NULL",
    )
    (found, _) = rows(table, "SELECT b, c, d, e, f FROM t")
    assert [str(value) for value in found[:4]] == ["0", "", "0.00", "0"]
    assert abs(dt.datetime.now(dt.UTC).replace(tzinfo=None) - found[4]) < dt.timedelta(minutes=1)
    assert code_of(table, "INSERT INTO t (id, a, b) VALUES (3, 'z', 1)") == 1364
    assert code_of(table, "ALTER TABLE t ADD COLUMN g DATE NOT NULL") == 1067
    assert code_of(table, "ALTER TABLE t ADD COLUMN g INT DEFAULT 'x'") == 1067
    assert code_of(table, "ALTER TABLE t ADD COLUMN b INT") == 1060


def test_a_renamed_column_keeps_what_was_declared(table: Connection[Any]) -> None:
    rows(table, "ALTER TABLE t RENAME COLUMN a TO b")
    assert columns(table)[0] == ("b", "varchar(9)", "NO", None)
    rows(table, "ALTER TABLE t CHANGE b c VARCHAR(12) DEFAULT 'q' NOT NULL")
    assert columns(table)[0] == ("c", "varchar(12)", "NO", "q")
    rows(table, "INSERT INTO t (id) VALUES (3)")
    assert rows(table, "SELECT c FROM t ORDER BY id") == (("x",), ("y",), ("q",))
    assert code_of(table, "ALTER TABLE t RENAME COLUMN nope TO b") == 1054
    assert code_of(table, "ALTER TABLE t RENAME COLUMN c TO n") == 1060


def test_a_wider_type(table: Connection[Any]) -> None:
    rows(table, "ALTER TABLE t MODIFY n BIGINT NULL, MODIFY a VARCHAR(40) NOT NULL")
    assert columns(table) == [("a", "varchar(40)", "NO", None), ("n", "bigint", "YES", None)]
    rows(table, "INSERT INTO t (id, a, n) VALUES (3, %s, %s)", "z" * 40, 2**40)
    assert rows(table, "SELECT n FROM t ORDER BY id") == ((5,), (None,), (2**40,))
    assert "does not hold all of its values" in refusal(table, "ALTER TABLE t MODIFY n INT")
    assert columns(table)[1] == ("n", "bigint", "YES", None)


def test_a_narrower_declaration_is_for_rows_that_fit(table: Connection[Any]) -> None:
    assert code_of(table, "ALTER TABLE t MODIFY n INT NOT NULL") == 1265
    rows(table, "UPDATE t SET n = 300 WHERE n IS NULL")
    rows(table, "ALTER TABLE t MODIFY n INT NOT NULL, MODIFY a VARCHAR(1) NOT NULL")
    assert columns(table) == [("a", "varchar(1)", "NO", None), ("n", "int", "NO", None)]
    assert code_of(table, "ALTER TABLE t MODIFY n TINYINT NOT NULL") == 1265
    rows(table, "ALTER TABLE t MODIFY n SMALLINT NOT NULL")
    assert code_of(table, "INSERT INTO t (id, a, n) VALUES (3, 'z', 40000)") == 1264


def test_columns_go(table: Connection[Any]) -> None:
    rows(table, "ALTER TABLE t DROP COLUMN n, ADD COLUMN n VARCHAR(5)")
    assert rows(table, "SELECT * FROM t") == ((1, "x", None), (2, "y", None))
    assert columns(table)[1] == ("n", "varchar(5)", "YES", None)
    assert code_of(table, "ALTER TABLE t DROP COLUMN nope") == 1091
    assert "key column" in refusal(table, "ALTER TABLE t DROP COLUMN id")


def test_a_renamed_table(table: Connection[Any]) -> None:
    rows(table, "RENAME TABLE `t` TO `u`")
    assert columns(table, "u")[0] == ("a", "varchar(9)", "NO", None)
    rows(table, "INSERT INTO u (a) VALUES ('z')")
    rows(table, "ALTER TABLE viewkeep.u RENAME TO t")
    assert rows(table, "SELECT COUNT(*) FROM t") == ((3,),)
    assert code_of(table, "RENAME TABLE t TO u, u TO t") == 1235
    assert code_of(table, "RENAME TABLE nowhere TO u") == 1146


def test_indexes_and_keys_are_left_out_with_a_warning(table: Connection[Any]) -> None:
    for action in (
        "ADD INDEX i (a)",
        "RENAME INDEX i TO j",
        "DROP INDEX j",
        "DROP FOREIGN KEY f",
        "DROP CHECK c",
        "ADD CONSTRAINT f FOREIGN KEY (n) REFERENCES u (id)",
        "COMMENT = 'x'",
    ):
        rows(table, f"ALTER TABLE t {action}")
        assert len(warnings(table)) == 1, action
    rows(table, "ALTER TABLE t ADD COLUMN b INT FIRST")
    assert "comes last" in warnings(table)[0]
    assert code_of(table, "ALTER TABLE t ADD CONSTRAINT u UNIQUE (a)") == 1235
    assert code_of(table, "ALTER TABLE t DROP PRIMARY KEY") == 1235
    assert code_of(table, "ALTER TABLE t ADD COLUMN c INT AUTO_INCREMENT") == 1075


def test_what_a_view_needs_stays(site: Running, table: Connection[Any]) -> None:
    """A refused statement changes nothing, neither the table nor what was declared."""
    rows(table, "CREATE VIEW v AS SELECT n, COUNT(*) AS c FROM t GROUP BY n")
    before = columns(table)
    assert "v" in refusal(table, "ALTER TABLE t ADD COLUMN b INT, DROP COLUMN n")
    assert "v" in refusal(table, "ALTER TABLE t MODIFY n BIGINT")
    assert columns(table) == before
    assert code_of(table, "ALTER TABLE v ADD COLUMN b INT") == 1347
    rows(table, "ALTER TABLE t MODIFY a VARCHAR(20) NOT NULL")
    assert columns(table)[0] == ("a", "varchar(20)", "NO", None)


def test_a_process_that_dies_leaves_all_columns_declared(
    site: Running, table: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right before or after the table changes: the old or the new columns are declared."""
    made = Catalog.alter_table

    def before(*given: object) -> None:
        raise RuntimeError("killed")

    def after(*given: Any) -> None:
        made(*given)
        raise RuntimeError("killed")

    for die, expected in ((before, "a"), (after, "b")):
        with monkeypatch.context() as patch:
            patch.setattr(Catalog, "alter_table", die)
            assert code_of(table, "ALTER TABLE t RENAME COLUMN a TO b") == 1105
        assert columns(table)[0] == (expected, "varchar(9)", "NO", None)


def test_a_table_made_elsewhere(site: Running, client: Connection[Any]) -> None:
    site.db.sql("CREATE TABLE e (id BIGINT PRIMARY KEY, s STRING DEFAULT 'x')")
    rows(client, "ALTER TABLE e ADD COLUMN n INT DEFAULT 3")
    rows(client, "INSERT INTO e (id) VALUES (1)")
    assert rows(client, "SELECT * FROM e") == ((1, "x", 3),)
    site.db.put("e", {"id": 2})
    assert site.db.get("e", 2) == {"id": 2, "s": "x", "n": 3}
    with pytest.raises(CatalogError, match="has a column n already"):
        site.db.sql("ALTER TABLE e ADD COLUMN n INT")


def refusal(client: Connection[Any], text: str) -> str:
    with pytest.raises(pymysql.err.MySQLError) as caught:
        rows(client, text)
    return str(caught.value)
