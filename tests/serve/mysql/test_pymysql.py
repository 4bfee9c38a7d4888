"""PyMySQL as it is: tables, rows of every type, views, sessions, transactions, errors."""

from __future__ import annotations

import datetime as dt
import json
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from pymysql.constants import CLIENT

if TYPE_CHECKING:
    from tests.serve.mysql.conftest import Running, Serve

    from viewkeep import Database

    Connection = pymysql.Connection[Any]


def rows(connection: Connection, sql: str, *values: object) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return tuple(cursor.fetchall())


def code_of(connection: Connection, sql: str, *values: object) -> int:
    with pytest.raises(pymysql.err.MySQLError) as raised:
        rows(connection, sql, *values)
    return int(raised.value.args[0])


TYPES = """CREATE TABLE types (
    id INT PRIMARY KEY, small SMALLINT, big BIGINT, whole INT UNSIGNED, price DECIMAL(20,4),
    ratio DOUBLE, name VARCHAR(40) NOT NULL DEFAULT 'none', note TEXT, data VARBINARY(100),
    day DATE, moment DATETIME(6), flag BOOLEAN
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"""


def test_every_type_comes_back_as_it_went(client: Connection) -> None:
    rows(client, TYPES)
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)
    one = (
        1, -5, 2**62, 2**32 - 1, Decimal("-123456789012.5000"), 0.1, "it's a \\ \"x\" ☃ %_", "a\nb",
        bytes(range(100)), dt.date(1999, 12, 31), moment, True,
    )  # fmt: skip
    two = (2, *[None] * 5, "n", *[None] * 5)
    marks = ", ".join(["%s"] * 12)
    with client.cursor() as cursor:
        assert cursor.executemany(f"INSERT INTO types VALUES ({marks})", [one, two]) == 2
    found = rows(client, "SELECT * FROM types ORDER BY id")
    assert found == ((*one[:-1], 1), two)
    assert rows(client, "SELECT * FROM types WHERE id = %s", 1) == (found[0],)
    for column, value in zip(
        ["small", "big", "whole", "price", "name", "note", "data", "day", "moment", "flag"],
        [*one[1:5], *one[6:]],
        strict=True,
    ):
        assert rows(client, f"SELECT id FROM types WHERE {column} = %s", value) == ((1,),), column
    assert rows(client, "SELECT id FROM types WHERE flag") == ((1,),)
    assert rows(client, "SELECT id FROM types WHERE name LIKE %s", "it's a \\\\%") == ((1,),)


def test_a_value_is_converted_or_refused_never_changed(client: Connection) -> None:
    rows(client, "CREATE TABLE strict_t (id INT PRIMARY KEY, n INT, d DECIMAL(5,2), s VARCHAR(3))")
    insert = "INSERT INTO strict_t VALUES (%s, %s, %s, %s)"
    rows(client, insert, "1", "12", "1.5", 77)
    assert rows(client, "SELECT * FROM strict_t") == ((1, 12, Decimal("1.50"), "77"),)
    assert code_of(client, insert, 2, 1.5, None, None) == 1366
    assert code_of(client, insert, 2, "x", None, None) == 1366
    assert code_of(client, insert, 2, 2**31, None, None) == 1264
    assert code_of(client, insert, 2, None, Decimal("1.555"), None) == 1366
    assert code_of(client, insert, 2, None, Decimal("1000"), None) == 1366
    assert code_of(client, insert, 2, None, None, "long") == 1406
    assert code_of(client, insert, None, 1, None, None) == 1048
    assert code_of(client, "UPDATE strict_t SET s = 'long' WHERE id = 1") == 1406
    assert code_of(client, "INSERT INTO strict_t (id, nope) VALUES (3, 4)") == 1054
    assert code_of(client, "INSERT INTO strict_t VALUES (3, 4)") == 1136
    assert rows(client, "SELECT COUNT(*) FROM strict_t") == ((1,),)


def test_defaults_and_not_null(client: Connection) -> None:
    rows(
        client,
        "CREATE TABLE defaults (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b VARCHAR(9) "
        "DEFAULT 'x', c INT NOT NULL, d DATETIME DEFAULT CURRENT_TIMESTAMP)",
    )
    rows(client, "INSERT INTO defaults (id, c) VALUES (1, 2)")
    rows(client, "INSERT INTO defaults VALUES (2, DEFAULT, DEFAULT, 3, NULL)")
    found = rows(client, "SELECT a, b, c FROM defaults ORDER BY id")
    assert found == ((7, "x", 2), (7, "x", 3))
    written = rows(client, "SELECT d FROM defaults WHERE id = 1")[0][0]
    assert abs(dt.datetime.now(dt.UTC).replace(tzinfo=None) - written) < dt.timedelta(minutes=1)
    assert code_of(client, "INSERT INTO defaults (id) VALUES (3)") == 1364
    assert code_of(client, "UPDATE defaults SET c = NULL WHERE id = 1") == 1048


def test_columns_that_an_alter_table_elsewhere_made(site: Running, client: Connection) -> None:
    """What was declared through MySQL holds; a new column has the default that it was given."""
    rows(client, "CREATE TABLE notes (id BIGINT PRIMARY KEY, a VARCHAR(9) NOT NULL DEFAULT 'q')")
    rows(client, "INSERT INTO notes (id, a) VALUES (1, 'x')")
    site.db.sql("ALTER TABLE notes ADD COLUMN n INT DEFAULT 5")
    rows(client, "INSERT INTO notes (id) VALUES (2)")
    rows(client, "INSERT INTO notes (id, n) VALUES (3, NULL)")
    assert rows(client, "SELECT * FROM notes ORDER BY id") == (
        (1, "x", 5),
        (2, "q", 5),
        (3, "q", None),
    )
    assert [(row[0], row[1], row[4]) for row in rows(client, "SHOW COLUMNS FROM notes")] == [
        ("id", "bigint", None),
        ("a", "varchar(9)", "q"),
        ("n", "int", "5"),
    ]
    site.db.sql("ALTER TABLE notes DROP COLUMN a")
    rows(client, "INSERT INTO notes (id) VALUES (4)")
    assert rows(client, "SELECT * FROM notes WHERE id > 2 ORDER BY id") == ((3, None), (4, 5))


def test_numbers_are_given_out(site: Running, client: Connection) -> None:
    rows(client, "CREATE TABLE numbered (id BIGINT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(9))")
    with client.cursor() as cursor:
        cursor.execute("INSERT INTO numbered (s) VALUES ('a')")
        first = cursor.lastrowid
        assert rows(client, "SELECT LAST_INSERT_ID(), @@last_insert_id") == ((first, first),)
        cursor.execute("INSERT INTO numbered (s) VALUES ('b'), ('c')")
        assert cursor.lastrowid > first
        cursor.execute("INSERT INTO numbered VALUES (0, 'd'), (NULL, 'e'), (DEFAULT, 'f')")
    found = rows(client, "SELECT id, s FROM numbered ORDER BY id")
    assert [s for _, s in found] == list("abcdef")
    rows(client, "INSERT INTO numbered VALUES (1000, 'g')")
    rows(client, "INSERT INTO numbered (s) VALUES ('h')")
    assert rows(client, "SELECT id FROM numbered WHERE s = 'h'") == ((1001,),)
    # A writer who knows of no numbers takes the next ones; those given out go past them.
    site.db.put("numbered", [{"id": n, "s": "put"} for n in range(1002, 1300)])
    rows(client, "INSERT INTO numbered (s) VALUES ('i')")
    assert rows(client, "SELECT id FROM numbered WHERE s = 'i'")[0][0] >= 1300


def test_numbers_of_many_writers_differ(site: Running, client: Connection) -> None:
    rows(client, "CREATE TABLE crowd (id INT AUTO_INCREMENT PRIMARY KEY, who INT)")

    def write(who: int) -> None:
        with site.connect() as own, own.cursor() as cursor:
            for _ in range(10):
                cursor.execute("INSERT INTO crowd (who) VALUES (%s), (%s)", (who, who))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(client, "SELECT COUNT(*), COUNT(DISTINCT who) FROM crowd") == ((120, 6),)


def test_conflicts(client: Connection) -> None:
    rows(client, "CREATE TABLE stock (item VARCHAR(9) PRIMARY KEY, n INT, note VARCHAR(9))")
    insert = "INSERT INTO stock (item, n) VALUES ('a', 1), ('b', 2)"
    rows(client, insert)
    with pytest.raises(pymysql.err.IntegrityError, match="1062"):
        rows(client, "INSERT INTO stock (item, n) VALUES ('c', 3), ('a', 9)")
    assert rows(client, "SELECT COUNT(*) FROM stock") == ((2,),), "whole or not at all"
    with client.cursor() as cursor:
        assert cursor.execute("INSERT IGNORE INTO stock (item, n) VALUES ('c', 3), ('a', 9)") == 1
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall()[0][:2] == ("Warning", 1062)
    upsert = "INSERT INTO stock (item, n) VALUES ('a', 5), ('d', 4) ON DUPLICATE KEY UPDATE "
    rows(client, upsert + "n = VALUES(n)")
    rows(client, upsert + "n = n + VALUES(n), note = 'more'")
    rows(
        client,
        "INSERT INTO stock (item, n) VALUES ('b', 7) AS new ON DUPLICATE KEY UPDATE n = new.n",
    )
    rows(client, "INSERT INTO stock (item, n) VALUES ('d', 99) ON DUPLICATE KEY UPDATE item = item")
    rows(client, "REPLACE INTO stock (item, note) VALUES ('c', 'new')")
    assert rows(client, "SELECT * FROM stock ORDER BY item") == (
        ("a", 10, "more"),
        ("b", 7, None),
        ("c", None, "new"),
        ("d", 8, "more"),
    )


def test_own_writes_are_seen_in_views(running: Running) -> None:
    with running.connect() as client:
        rows(client, "CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
        rows(
            client,
            "CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story",
        )
        for n in range(1, 30):
            rows(client, "INSERT INTO votes VALUES (%s, %s)", n, n % 2)
            assert rows(client, "SELECT votes FROM scores WHERE story = %s", n % 2) == (
                ((n + 1) // 2,),
            )
        assert rows(client, "SELECT * FROM scores ORDER BY story") == ((0, 14), (1, 15))
        rows(client, "UPDATE votes SET story = 0 WHERE id = 1")
        rows(client, "DELETE FROM votes WHERE id IN (3, 5)")
        assert rows(client, "SELECT * FROM scores ORDER BY story") == ((0, 15), (1, 12))


def test_a_token_takes_the_promise_elsewhere(running: Running) -> None:
    with running.connect() as one, running.connect() as two:
        rows(one, "CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
        rows(one, "CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story")
        assert rows(one, "SELECT * FROM scores") == ()
        running.held.set()
        rows(one, "INSERT INTO votes VALUES (1, 1)")
        ((token,),) = rows(one, "SELECT @@viewkeep_session")
        assert rows(two, "SELECT * FROM scores") == (), "it has promised nothing"
        rows(two, "SET viewkeep_session = %s", token)
        rows(two, "SET viewkeep_timeout = 0.05")
        with pytest.raises(pymysql.err.OperationalError, match="lacks 1 operation") as raised:
            rows(two, "SELECT * FROM scores")
        assert raised.value.args[0] == 1205
        rows(two, "SET viewkeep_at = 'latest'")
        assert rows(two, "SELECT * FROM scores") == ()
        rows(two, "SET viewkeep_at = 'default', viewkeep_timeout = 30")
        running.held.clear()
        assert rows(two, "SELECT votes FROM scores WHERE story = 1") == ((1,),)
        assert code_of(two, "SET viewkeep_session = 'nonsense'") == 1231
        assert code_of(two, "SET viewkeep_at = 'yesterday'") == 1231


def test_who_waits_holds_nobody_up(running: Running) -> None:
    """More sessions wait for an epoch than there are threads, and others are served."""
    with running.connect() as client:
        rows(client, "CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
        rows(client, "CREATE VIEW total AS SELECT COUNT(*) AS n FROM votes")
        assert rows(client, "SELECT n FROM total") == ((0,),)
        running.held.set()
        waiting = [running.connect() for _ in range(40)]
        found: list[tuple[Any, ...]] = []

        def ask(connection: Connection) -> None:
            found.append(rows(connection, "SELECT n FROM total"))

        for n, connection in enumerate(waiting):
            rows(connection, "INSERT INTO votes VALUES (%s, 1)", n)
        threads = [threading.Thread(target=ask, args=(connection,)) for connection in waiting]
        for thread in threads:
            thread.start()
        assert rows(client, "SELECT COUNT(*) FROM votes") == ((40,),)
        assert not found
        running.held.clear()
        for thread in threads:
            thread.join()
        assert found == [((40,),)] * 40
        for connection in waiting:
            connection.close()


def test_a_rollback_of_writes_says_that_it_is_none(client: Connection) -> None:
    rows(client, "CREATE TABLE undo (id INT PRIMARY KEY)")
    client.begin()
    client.rollback()
    rows(client, "SAVEPOINT outside")
    client.begin()
    rows(client, "INSERT INTO undo VALUES (1)")
    client.commit()
    client.rollback()
    client.begin()
    rows(client, "INSERT INTO undo VALUES (2)")
    rows(client, "SAVEPOINT here")
    assert code_of(client, "INSERT INTO undo VALUES (2)") == 1062
    rows(client, "ROLLBACK TO SAVEPOINT here")
    rows(client, "RELEASE SAVEPOINT here")
    with pytest.raises(pymysql.err.MySQLError, match="not undone"):
        client.rollback()
    client.rollback()
    rows(client, "SET viewkeep_rollback = 'warn'")
    client.autocommit(False)
    rows(client, "INSERT INTO undo VALUES (3)")
    client.rollback()
    assert rows(client, "SHOW WARNINGS")[0][1] == 1196
    client.autocommit(True)
    assert rows(client, "SELECT COUNT(*) FROM undo") == ((3,),)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELEC 1", 1064),
        ("SELECT FROM WHERE", 1064),
        ("SELECT 'open", 1064),
        ("SELECT * FROM nowhere", 1146),
        ("INSERT INTO nowhere VALUES (1)", 1146),
        ("SELECT nope FROM errors_t", 1054),
        ("SELECT nope(a) FROM errors_t", 1305),
        ("DROP TABLE nowhere", 1051),
        ("CREATE TABLE errors_t (id INT PRIMARY KEY)", 1050),
        ("CREATE TABLE keyless (id INT)", 3750),
        ("CREATE TABLE u (id INT PRIMARY KEY, a INT UNIQUE)", 1235),
        ("CREATE UNIQUE INDEX i ON errors_t (a)", 1235),
        ("CREATE TABLE u (id INT PRIMARY KEY, a TIME)", 1235),
        ("CREATE TABLE u (a INT PRIMARY KEY, id INT AUTO_INCREMENT)", 1075),
        ("ALTER TABLE errors_t DROP PRIMARY KEY", 1235),
        ("DELETE FROM errors_t ORDER BY id LIMIT 1", 1235),
        ("UPDATE errors_t SET a = 1 LIMIT 1", 1235),
        ("LOCK TABLES errors_t WRITE", 1235),
        ("USE elsewhere", 1049),
        ("SELECT * FROM elsewhere.t", 1049),
        ("SELECT @@nothing", 1193),
        ("SET nothing = 1", 1193),
        ("SET version = 'x'", 1238),
        ("SET sql_mode = 'ANSI_QUOTES'", 1231),
        ("SET time_zone = 'Europe/Berlin'", 1298),
        ("SET GLOBAL autocommit = 0", 1227),
        ("EXECUTE nothing", 1243),
        ("SELECT ?", 1064),
        ("SELECT * FROM errors_t PARTITION (p0)", 1235),
        ("SELECT * FROM read_text('/etc/passwd')", 1235),
        ("SELECT read_text('/etc/passwd')", 1064),
        ("SET @a = (SELECT COUNT(*) FROM errors_t)", 1235),
        ("SELECT 1; SELECT 2", 1235),
        ("", 1065),
        ("SELECT a FROM errors_t WHERE s COLLATE utf8mb4_general_ci = 'x'", 1235),
        ("CREATE VIEW now_view AS SELECT NOW() AS n FROM errors_t", 1235),
    ],
)
def test_errors_have_the_numbers_of_mysql(client: Connection, sql: str, code: int) -> None:
    rows(client, "CREATE TABLE IF NOT EXISTS errors_t (id INT PRIMARY KEY, a INT, s VARCHAR(9))")
    assert code_of(client, sql) == code
    assert rows(client, "SELECT 1") == ((1,),)
    assert rows(client, "SELECT (1 + 1), (1 + 1)") == ((2, 2),), "columns may have one name"


def test_many_statements_at_once(site: Running) -> None:
    with site.connect(client_flag=CLIENT.MULTI_STATEMENTS) as client, client.cursor() as cursor:
        cursor.execute("SELECT 1; SELECT 2, 'a;b'; SET @x = 3; SELECT @x + 1")
        found = [tuple(cursor.fetchall())]
        while cursor.nextset():
            found.append(tuple(cursor.fetchall()))
        assert found == [((1,),), ((2, "a;b"),), (), ((4,),)]


def test_statements_of_mysql_alone(client: Connection) -> None:
    rows(client, "CREATE TABLE words (id INT PRIMARY KEY, a INT, s VARCHAR(20), f BOOLEAN)")
    rows(
        client, "INSERT INTO words VALUES (1, 2, 'ab', TRUE), (2, NULL, 'é', FALSE), (3, 5, 'c', 1)"
    )
    ask = [
        ("SELECT IFNULL(a, 0), IF(a > 2, 'y', 'n') FROM words ORDER BY id LIMIT 1, 1", ((0, "n"),)),
        ("SELECT LENGTH(s), CHAR_LENGTH(s) FROM words WHERE id = 2", ((2, 1),)),
        ("SELECT id FROM words WHERE f = 1 AND f <> 0 AND NOT (f = FALSE) AND a = '2'", ((1,),)),
        ("SELECT id FROM words WHERE (f XOR (a > 2)) ORDER BY id", ((1,),)),
        ("SELECT GROUP_CONCAT(s ORDER BY s SEPARATOR '-') FROM words", (("ab-c-é",),)),
        ("SELECT w.id, w.s, COUNT(x.id) FROM words w LEFT JOIN words x ON x.a = w.id "
         "GROUP BY w.id ORDER BY NULL", ((1, "ab", 0), (2, "é", 1), (3, "c", 0))),
        ("SELECT a, a FROM viewkeep.words WHERE `viewkeep`.`words`.`id` = 1", ((2, 2),)),
        ("SELECT /*! STRAIGHT_JOIN */ SQL_NO_CACHE id FROM words WHERE id = 1 FOR UPDATE", ((1,),)),
        ("SELECT id FROM words WHERE s LIKE BINARY 'a%'", ((1,),)),
        ("(SELECT id FROM words WHERE id = 1) UNION ALL (SELECT 9)", ((1,), (9,))),
        ("SELECT id FROM words WHERE id = LAST_INSERT_ID() + 1 -- so", ((1,),)),
        ("SELECT COUNT(*) AS `n` FROM words HAVING n > 0", ((3,),)),
        ("SELECT 'a' 'b' \n \"c\"", (("abc",),)),
        ("SELECT id AS 'x' FROM words WHERE s = 'a' 'b'", ((1,),)),
        ("SELECT id 'x' FROM words WHERE id = 1", ((1,),)),
    ]  # fmt: skip
    for sql, expected in ask:
        assert sorted(rows(client, sql), key=str) == sorted(expected, key=str), sql
    with client.cursor() as cursor:
        cursor.execute("SELECT A, COUNT(*), a AS `X y` FROM words WHERE id = 1 GROUP BY a")
        assert [column[0] for column in cursor.description] == ["A", "COUNT(*)", "X y"]
    rows(client, "UPDATE words SET a = a + 1, f = 0 WHERE id = 1")
    rows(client, "INSERT INTO words SELECT id + 10, a, s, f FROM words WHERE id = 1")
    assert rows(client, "SELECT a, f FROM words WHERE id = 11") == ((3, 0),)
    rows(client, "INSERT INTO words VALUES (20, 1 + 1, UPPER('x'), NOW() IS NULL)")
    assert rows(client, "SELECT a, s, f FROM words WHERE id = 20") == ((2, "X", 0),)
    rows(client, "TRUNCATE TABLE words")
    assert rows(client, "SELECT COUNT(*) FROM words") == ((0,),)
    rows(client, "DROP TABLE IF EXISTS words, nowhere")


def test_arrays_are_json(site: Running, client: Connection) -> None:
    rows(client, "CREATE TABLE parts (id INT PRIMARY KEY, whole INT, s VARCHAR(9))")
    site.db.sql(
        "CREATE VIEW wholes AS SELECT whole, array_agg(id) AS ids, array_agg(s) AS names "
        "FROM parts GROUP BY whole"
    )
    rows(client, "INSERT INTO parts VALUES (1, 1, 'ü'), (2, 1, NULL), (3, 1, 'q\"')")
    rows(client, "CREATE VIEW made_here AS SELECT COUNT(*) AS n FROM parts")  # it waits for views
    found = rows(client, "SELECT ids, names FROM wholes WHERE whole = 1")
    assert [[json.loads(cell) for cell in row] for row in found] == [[[1, 2, 3], ['q"', "ü"]]]


def test_without_autocommit_reads_by_key_are_the_same(site: Running) -> None:
    with site.connect(autocommit=False) as client:
        rows(client, "CREATE TABLE plain (id INT PRIMARY KEY, a INT)")
        for n in range(3):
            rows(client, "INSERT INTO plain VALUES (%s, %s)", n, n)
            assert rows(client, "SELECT a FROM plain WHERE id = %s", n) == ((n,),)
            client.commit()
        # A constant that is no key is not looked up by it, and does not hold the server up.
        for odd in ("1", 1.0, Decimal("1.0")):
            assert rows(client, "SELECT a FROM plain WHERE id = %s", odd) == ((1,),)
        assert rows(client, "SELECT a FROM plain WHERE id = %s", Decimal("1.5")) == ()
        assert rows(client, "SELECT a FROM plain WHERE id = %s", 2**70) == ()
        assert rows(client, "SELECT a FROM plain WHERE id = NULL") == ()


def test_a_plan_that_changes_under_statements_that_repeat(client: Connection) -> None:
    for kind, given, expected in (("INT", 1, 1), ("BOOLEAN", 1, 1), ("VARCHAR(5)", "1", "1")):
        rows(client, f"CREATE TABLE again (id INT PRIMARY KEY, a {kind})")
        rows(client, "INSERT INTO again VALUES (1, %s)", given)
        for _ in range(3):
            assert rows(client, "SELECT * FROM again WHERE id = 1") == ((1, expected),)
            assert rows(client, "SELECT id FROM again WHERE a = %s", given) == ((1,),)
        rows(client, "DROP TABLE again")
    rows(client, "CREATE TABLE again (id INT PRIMARY KEY, b VARCHAR(5))")
    with client.cursor() as cursor:
        cursor.execute("SELECT * FROM again WHERE id = 1")
        assert [column[0] for column in cursor.description] == ["id", "b"]


def test_what_a_session_remembers_has_a_limit(serve: Serve) -> None:
    server = serve(max_body=100_000)
    with server.connect() as client:
        for n in range(3):
            rows(client, f"SET @v{n} = %s", "x" * 30_000)
            rows(client, f"PREPARE s{n} FROM %s", f"SELECT '{'y' * 30_000}'")
        assert code_of(client, "SET @v3 = %s", "x" * 30_000) == 1041
        assert code_of(client, "PREPARE s3 FROM %s", f"SELECT '{'y' * 30_000}'") == 1461
        rows(client, "SET @v0 = NULL")
        rows(client, "SET @v3 = %s", "x" * 30_000)
        assert rows(client, "EXECUTE s2") == (("y" * 30_000,),)
        assert rows(client, "SELECT @v0, @v1 = @v3") == ((None, 1),)


def test_an_answer_has_a_limit(serve: Serve) -> None:
    server = serve(max_rows=10)
    with server.connect() as client:
        rows(client, "CREATE TABLE many (id INT PRIMARY KEY)")
        with client.cursor() as cursor:
            cursor.executemany("INSERT INTO many VALUES (%s)", [(n,) for n in range(11)])
        assert code_of(client, "SELECT * FROM many") == 1104
        assert len(rows(client, "SELECT * FROM many LIMIT 10")) == 10


def test_large_packets(serve: Serve) -> None:
    server = serve(max_body=40_000_000)
    with server.connect(max_allowed_packet=80_000_000) as client:
        rows(client, "CREATE TABLE big (id INT PRIMARY KEY, s LONGTEXT)")
        texts = {n: chr(97 + n) * 400_000 for n in range(3)}
        for n, text in texts.items():
            rows(client, "INSERT INTO big VALUES (%s, %s)", n, text)
        assert dict(rows(client, "SELECT * FROM big")) == texts
        long = "x" * (0xFFFFFF + 10)  # more than one packet, there and back
        assert rows(client, "SELECT %s", long) == ((long,),)
        exact = "x" * (0xFFFFFF - len("SELECT ''") - 1)
        assert rows(client, f"SELECT '{exact}'") == ((exact,),)
        with pytest.raises(pymysql.err.MySQLError):
            rows(client, "SELECT %s", "x" * 40_000_001)
    with server.connect() as client:
        assert rows(client, "SELECT COUNT(*) FROM big") == ((3,),)


def test_partial_views(db: Database, running: Running) -> None:
    """A key that nobody has read is computed; a read of all keys is refused with the reason."""
    db.sql("CREATE TABLE ballots (id BIGINT PRIMARY KEY, story BIGINT)")
    db.sql("INSERT INTO ballots VALUES (1, 7), (2, 7), (3, 8)")
    with db.session() as session:
        session.sql(
            "CREATE VIEW ballot_page AS SELECT story, COUNT(*) AS n FROM ballots "
            "WHERE story = ? GROUP BY story"
        )
        session.scan("ballot_page", prefix=8)
    with running.connect() as client:
        for _ in range(2):
            assert rows(client, "SELECT n FROM ballot_page WHERE story = 7") == ((2,),)
            assert rows(client, "SELECT n FROM ballot_page WHERE story = 9") == ()
        assert code_of(client, "SELECT * FROM ballot_page") == 1235
