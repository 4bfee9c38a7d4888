"""Users with roles over the MySQL protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from viewkeep.serve.credentials import CACHING, NATIVE, proves
from viewkeep.serve.users import new_user, read_users, write_users

Serve = Callable[..., Any]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    given = [new_user(name, name, f"{name}x") for name in ("read", "write", "admin")]
    write_users(file, [*given, new_user("web", "admin", "webx", mysql=False)])
    return file


def refused(cursor: Any, statement: str, role: str) -> None:
    with pytest.raises(pymysql.err.MySQLError, match=f"needs the role {role}") as raised:
        cursor.execute(statement)
    assert raised.value.args[0] == 1227


def test_roles(serve: Serve, users: Path) -> None:
    server = serve(users=users)
    with server.connect(user="admin", password="adminx") as client:
        client.cursor().execute("CREATE TABLE t (k INT PRIMARY KEY, n INT)")
    with server.connect(user="write", password="writex") as client, client.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 2), (2, 3)")
        cursor.execute("UPDATE t SET n = 5 WHERE k = 1")
        for statement in ("DROP TABLE t", "CREATE TABLE u (k INT PRIMARY KEY)"):
            refused(cursor, statement, "admin")
    with server.connect(user="read", password="readx") as client, client.cursor() as cursor:
        for _ in range(3):  # the second time there is a translation
            cursor.execute("SELECT n FROM t WHERE k = 1")
            assert cursor.fetchall() == ((5,),)
        cursor.execute(
            "WITH a AS (SELECT k, 'delete' AS d FROM t) SELECT REPLACE(d, 'd', 'x') "
            "FROM a WHERE k = 1"
        )
        assert cursor.fetchall() == (("xelete",),)
        cursor.execute("SHOW TABLES")
        for statement in (
            "INSERT INTO t VALUES (3, 3)",
            "REPLACE INTO t VALUES (3, 3)",
            "UPDATE t SET n = 1",
            "DELETE FROM t",
            "TRUNCATE t",
            "/* SELECT */ DELETE FROM t",
            "WITH a AS (SELECT 1) DELETE FROM t",
            "INSERT INTO t SELECT k + 10, n FROM t",
        ):
            refused(cursor, statement, "write")
        cursor.execute("PREPARE s FROM 'DELETE FROM t'")
        refused(cursor, "EXECUTE s", "write")
        cursor.execute("DROP PREPARE s")
        refused(cursor, "DROP TABLE t", "admin")
        cursor.execute("SELECT COUNT(*) FROM t")
        assert cursor.fetchall() == ((2,),)


def test_who_is_not_let_in(serve: Serve, users: Path) -> None:
    server = serve(users=users, guess_seconds=0)
    for name, password in (("read", "adminx"), ("other", "readx"), ("read", ""), ("web", "webx")):
        with pytest.raises(pymysql.err.OperationalError) as raised:
            server.connect(user=name, password=password)
        assert raised.value.args[0] == 1045


def test_the_password_without_a_name_goes_on(serve: Serve, users: Path) -> None:
    server = serve(users=users, password="secret")
    with server.connect(user="anybody", password="secret") as client:
        client.cursor().execute("CREATE TABLE t (k INT PRIMARY KEY)")
    with pytest.raises(pymysql.err.OperationalError, match="1045"):
        server.connect(user="read", password="secret")


@pytest.mark.parametrize("plugin", [NATIVE, CACHING])
def test_proofs_are_checked_without_the_password(plugin: str) -> None:
    """As clients make them, by the formula of MySQL's manual."""
    import hashlib

    user, nonce = new_user("a", "read", "secret"), bytes(range(1, 21))
    hashed = hashlib.sha1 if plugin == NATIVE else hashlib.sha256
    once = hashed(b"secret").digest()
    twice = hashed(once).digest()
    mask = hashed(nonce + twice if plugin == NATIVE else twice + nonce).digest()
    answer = bytes(a ^ b for a, b in zip(once, mask, strict=True))
    stored = user.native if plugin == NATIVE else user.caching
    assert stored is not None
    assert proves(plugin, stored, nonce, answer)
    assert not proves(plugin, stored, nonce[::-1], answer)
    assert not proves(plugin, stored, nonce, answer[1:])
    assert not proves(plugin, stored, nonce, b"")


def asked_until(end: float, cursor: Any) -> None:
    while time.monotonic() < end:
        cursor.execute("SELECT 1")


def test_a_removed_user_is_out_within_a_second(serve: Serve, users: Path) -> None:
    server = serve(users=users)
    with (
        server.connect(user="read", password="readx") as read,
        server.connect(user="admin", password="adminx") as admin,
    ):
        write_users(users, [new_user("write", "write", "x"), read_users(users)["admin"]])
        began = time.monotonic()
        cursor = read.cursor()
        with pytest.raises(pymysql.err.MySQLError) as raised:
            asked_until(began + 30, cursor)
        assert raised.value.args[0] == 1045
        assert time.monotonic() - began < 1.5  # and some slack
        with pytest.raises(pymysql.err.OperationalError):
            server.connect(user="read", password="readx")
        with admin.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == ((1,),)
