"""The `mariadb` command line client as it is."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.serve.mysql.conftest import Running, Serve


def run(server: Running, text: str, *options: str, password: str = "") -> tuple[str, str]:
    """What the client prints for a script, and its errors."""
    client = shutil.which("mariadb")
    assert client is not None, "the mariadb client is missing: scripts/setup installs it"
    given = ["--no-defaults", "--protocol=TCP", "--host=127.0.0.1", f"--port={server.port}"]
    given += ["--user=any", "--batch", *options]
    if password:
        given.append(f"--password={password}")
    done = subprocess.run(
        [client, *given], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout, done.stderr


def lines(server: Running, text: str, *options: str) -> list[list[str]]:
    out, errors = run(server, text, "viewkeep", *options)
    assert not errors, errors
    return [line.split("\t") for line in out.splitlines()]


def test_tables_rows_and_views(site: Running) -> None:
    found = lines(
        site,
        """
        CREATE TABLE votes (id BIGINT AUTO_INCREMENT PRIMARY KEY, story INT, who VARCHAR(20));
        CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
        INSERT INTO votes (story, who) VALUES (1, 'Ann'), (1, 'Böb'), (2, NULL);
        SELECT * FROM scores ORDER BY story; -- a comment
        SELECT who FROM votes ORDER BY id;
        """,
        "--default-character-set=utf8mb4",
    )
    assert found == [
        ["story", "votes"], ["1", "2"], ["2", "1"], ["who"], ["Ann"], ["Böb"], ["NULL"],
    ]  # fmt: skip


def test_other_character_sets(site: Running) -> None:
    found = lines(site, "SELECT 'ü' AS a;", "--default-character-set=utf8mb4", "-N")
    assert found == [["ü"]]
    client = shutil.which("mariadb")
    assert client is not None
    options = ["--no-defaults", "--protocol=TCP", "-h127.0.0.1", f"-P{site.port}", "-N"]
    done = subprocess.run(
        [client, *options, "--default-character-set=latin1"],
        input="SELECT 'ü', CHAR_LENGTH('ü');".encode("latin-1"),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "ü\t1\n".encode("latin-1")


def test_what_is_there(site: Running) -> None:
    lines(site, "CREATE TABLE shown (id INT PRIMARY KEY, a VARCHAR(9) NOT NULL DEFAULT 'x');")
    lines(site, "CREATE VIEW shown_view AS SELECT a, COUNT(*) AS n FROM shown GROUP BY a;")
    assert ["shown"] in lines(site, "SHOW TABLES;")
    assert lines(site, "SHOW FULL TABLES LIKE 'shown%';")[1:] == [
        ["shown", "BASE TABLE"],
        ["shown_view", "VIEW"],
    ]
    described = [
        ["id", "int", "NO", "PRI", "NULL", ""],
        ["a", "varchar(9)", "NO", "", "x", ""],
    ]
    assert lines(site, "DESCRIBE shown;")[1:] == described
    assert lines(site, "SHOW COLUMNS FROM shown FROM viewkeep;")[1:] == described
    assert lines(site, "SHOW FIELDS FROM shown LIKE 'i%';")[1:] == described[:1]
    assert lines(site, "DESC shown a;")[1:] == described[1:]
    assert lines(site, "SHOW KEYS FROM shown;")[1][:5] == ["shown", "0", "PRIMARY", "1", "id"]
    assert lines(site, "SHOW DATABASES;")[1:] == [["information_schema"], ["viewkeep"]]
    assert lines(site, "SHOW VARIABLES LIKE 'autocommit';")[1:] == [["autocommit", "ON"]]
    assert lines(site, "SHOW STATUS LIKE 'Uptime';")[1][0] == "Uptime"
    assert lines(site, "SHOW VARIABLES WHERE Variable_name = 'sql_notes';")[1:] == [
        ["sql_notes", "1"]
    ]
    assert lines(site, "SHOW TABLE STATUS LIKE 'shown';")[1][:2] == ["shown", "MyISAM"]
    assert lines(site, "SHOW CREATE VIEW shown_view;")[1][1].startswith("CREATE VIEW `shown_view`")
    assert lines(site, "SELECT DATABASE(), CURRENT_USER();", "-N") == [
        ["viewkeep", "any@localhost"]
    ]
    assert lines(site, "EXPLAIN SELECT * FROM shown_view;")[0] == ["plan"]
    assert lines(
        site,
        "SELECT table_name, column_name, data_type, c.character_maximum_length AS len "
        "FROM information_schema.columns c JOIN information_schema.tables t "
        "USING (table_schema, table_name) WHERE table_schema = 'viewkeep' "
        "AND table_name LIKE 'shown%' ORDER BY 1, ordinal_position;",
        "-N",
    ) == [
        ["shown", "id", "int", "NULL"],
        ["shown", "a", "varchar", "9"],
        ["shown_view", "a", "longtext", "4294967295"],
        ["shown_view", "n", "bigint", "NULL"],
    ]
    out, errors = run(site, "USE information_schema; SELECT COUNT(*) > 3 FROM tables;", "-N")
    assert (out, errors) == ("1\n", "")


def test_prepare_and_execute(site: Running) -> None:
    lines(site, "CREATE TABLE prepared (id INT PRIMARY KEY, a VARCHAR(9));")
    found = lines(
        site,
        """
        PREPARE put FROM 'INSERT INTO prepared VALUES (?, ?)';
        SET @id = 1, @a = 'it''s';
        EXECUTE put USING @id, @a;
        SET @id = 2;
        EXECUTE put USING @id, @a;
        DEALLOCATE PREPARE put;
        SET @text = 'SELECT id, a FROM prepared WHERE id = ?';
        PREPARE get FROM @text;
        EXECUTE get USING @id;
        DROP PREPARE get;
        """,
    )
    assert found == [["id", "a"], ["2", "it's"]]
    _, errors = run(site, "PREPARE p FROM 'SELECT ?'; EXECUTE p;", "viewkeep")
    assert "ERROR 1210" in errors


def test_completion_asks_for_the_fields_of_tables(site: Running) -> None:
    """The client reads all names when it starts with --auto-rehash."""
    lines(site, "CREATE TABLE completed (id INT PRIMARY KEY, a INT);")
    assert lines(site, "SELECT 1;", "--auto-rehash", "-N") == [["1"]]


def test_errors_and_warnings(site: Running) -> None:
    out, errors = run(site, "SELECT 1; SELECT nope; SELECT 3;", "viewkeep", "-N", "--force")
    assert out == "1\n3\n"
    assert "ERROR" in errors
    shown, _ = run(
        site,
        "CREATE TABLE warned (id INT PRIMARY KEY, a INT, KEY a_index (a), "
        "FOREIGN KEY (a) REFERENCES other (id)); SHOW WARNINGS; SHOW COUNT(*) WARNINGS;",
        "viewkeep",
        "-N",
    )
    assert "no secondary indexes" in shown
    assert "foreign keys are not enforced" in shown


def test_the_password(serve: Serve) -> None:
    server = serve(password="se'cret ☃")
    assert run(server, "SELECT 1;", "-N", password="se'cret ☃") == ("1\n", "")
    for wrong in ("", "wrong"):
        out, errors = run(server, "SELECT 1;", password=wrong)
        assert not out
        assert "ERROR 1045" in errors


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT COUNT(*) FROM information_schema.tables"])
def test_a_database_need_not_be_named(site: Running, text: str) -> None:
    out, errors = run(site, f"{text};", "-N")
    assert out.strip().isdecimal(), errors
