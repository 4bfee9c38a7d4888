"""Passwords, TLS, and how a server stops."""

from __future__ import annotations

import hashlib
import ssl
import struct
import subprocess
import threading
from typing import TYPE_CHECKING

import pymysql
import pytest

from viewkeep.serve.credentials import CACHING, NATIVE, proves, twice_hashed

from .raw import RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serve.mysql.conftest import Running, Serve

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", made], check=True, capture_output=True)
    return made, key


def works(connection: pymysql.Connection[pymysql.cursors.Cursor]) -> None:
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)


def test_any_user_with_the_password_is_let_in(serve: Serve) -> None:
    server = serve(password=PASSWORD)
    for user in ("root", "someone", ""):
        works(server.connect(user=user, password=PASSWORD))
    for wrong in ("", "wrong", PASSWORD + " "):
        with pytest.raises(pymysql.err.OperationalError, match="1045"):
            server.connect(password=wrong)


def sha2(password: str, nonce: bytes) -> bytes:
    once = hashlib.sha256(password.encode()).digest()
    mask = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def begin(server: Running, plugin: str, answer: bytes | None, password: str) -> RawClient:
    """A client that answers the greeting for a plugin, with its own answer or the right one."""
    client = RawClient(server.port, greet=False)
    greeting = client.receive()
    at = greeting.index(b"\0") + 5
    nonce = greeting[at : at + 8] + greeting[at + 27 : at + 39]
    given = sha2(password, nonce) if answer is None else answer
    head = struct.pack("<IIB23x", 0x1 | 0x200 | 0x8000 | 0x80000, 1 << 24, 45)
    client.send(head + b"x\0" + bytes((len(given),)) + given + plugin.encode() + b"\0")
    return client


def test_the_password_proof_of_newer_clients(serve: Serve) -> None:
    server = serve(password=PASSWORD)
    with begin(server, CACHING, None, PASSWORD) as client:
        assert client.receive() == b"\x01\x03", "the fast way"
        assert client.receive()[0] == 0
    with begin(server, CACHING, b"", PASSWORD) as client:
        asked = client.receive()
        assert asked.startswith(b"\xfe" + CACHING.encode())
        client.send(sha2(PASSWORD, asked.split(b"\0")[1]))
        assert client.receive() == b"\x01\x03"
        assert client.receive()[0] == 0
    with begin(server, "client_ed25519", b"nonsense", PASSWORD) as client:
        assert client.receive().startswith(b"\xfe" + NATIVE.encode()), "asked for one we know"
        client.send(b"wrong")
        assert client.receive()[:3] == b"\xff" + struct.pack("<H", 1045)
    for plugin in (NATIVE, CACHING):
        assert not proves(plugin, twice_hashed(plugin, PASSWORD.encode()), b"x" * 20, b"")


def test_another_user_on_the_same_connection_needs_the_password_too(serve: Serve) -> None:
    server = serve(password=PASSWORD)
    with begin(server, CACHING, None, PASSWORD) as client:
        client.receive(), client.receive()
        client.command(0x11, b"other\0\0\0")
        assert client.receive()[0] == 0xFE
        client.send(b"guess")
        assert client.receive()[:3] == b"\xff" + struct.pack("<H", 1045)


def test_tls(serve: Serve, certificate: tuple[Path, Path]) -> None:
    made, key = certificate
    server = serve(password=PASSWORD, tls_certificate=made, tls_key=key)
    context = ssl.create_default_context(cafile=str(made))
    for _ in range(5):
        works(server.connect(password=PASSWORD, ssl=context))
    with server.connect(password=PASSWORD, ssl=context) as client, client.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, s LONGTEXT)")
        cursor.execute("INSERT INTO t VALUES (1, %s)", ("ü" * 2_000_000,))
        cursor.execute("SELECT s FROM t")
        assert cursor.fetchall() == (("ü" * 2_000_000,),)
    with pytest.raises(pymysql.err.OperationalError, match="TLS only"):
        server.connect(password=PASSWORD, ssl_disabled=True)
    with pytest.raises(pymysql.err.OperationalError):
        server.connect(password="wrong", ssl=context)
    strangers = ssl.create_default_context()
    with pytest.raises(pymysql.err.OperationalError, match=r"certificate|CERTIFICATE"):
        server.connect(password=PASSWORD, ssl=strangers)
    works(server.connect(password=PASSWORD, ssl=context))


def test_a_server_that_stops_answers_what_runs(running: Running) -> None:
    idle = running.connect()
    with running.connect() as client, client.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.execute("CREATE VIEW n AS SELECT COUNT(*) AS n FROM t")
        cursor.execute("SELECT n FROM n")
        found: list[object] = []
        began = threading.Event()

        def write() -> None:
            began.set()
            cursor.executemany("INSERT INTO t VALUES (%s)", [(n,) for n in range(20_000)])
            found.append(cursor.rowcount)

        thread = threading.Thread(target=write)
        thread.start()
        began.wait()
        while not running.db.sql("SELECT COUNT(*) AS n FROM t").one()["n"] and thread.is_alive():
            pass
        running.stop()
        thread.join()
    assert found == [20_000]
    with pytest.raises(pymysql.err.OperationalError):
        idle.ping(reconnect=False)
    with pytest.raises(pymysql.err.OperationalError):
        running.connect()
    assert running.server.connections == 0
