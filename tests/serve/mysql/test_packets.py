"""Whatever bytes come, the answer is an error or the end of the connection; the server lives."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pymysql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .raw import CAPABILITIES, RawClient

if TYPE_CHECKING:
    from tests.serve.mysql.conftest import Running, Serve

EXAMPLES = 60


def alive(site: Running) -> None:
    with site.connect() as client, client.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)


def ended(client: socket.socket) -> bytes:
    """What the server says until it closes the connection."""
    said = b""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(1 << 16):
            said += part
    return said


@settings(max_examples=EXAMPLES)
@given(data=st.binary(max_size=300))
def test_any_bytes_in_place_of_a_handshake(site: Running, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as client:
        assert client.recv(1 << 16)[4] == 10, "the greeting comes first"
        client.sendall(data)
        ended(client)


@settings(max_examples=EXAMPLES)
@given(payload=st.binary(max_size=200), keep=st.integers(0, 60))
def test_handshakes_that_end_early_or_go_wrong(site: Running, payload: bytes, keep: int) -> None:
    head = struct.pack("<IIB23x", 0xFFFFFFFF, 1 << 24, 45)
    packet = (head + b"root\0" + payload)[: 32 + keep]
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as client:
        client.sendall(len(packet).to_bytes(3, "little") + b"\1" + packet)
        ended(client)


@settings(max_examples=2 * EXAMPLES)
@given(
    commands=st.lists(
        st.builds(
            lambda kind, rest: bytes((kind,)) + rest, st.integers(0, 40), st.binary(max_size=80)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_commands(site: Running, commands: list[bytes]) -> None:
    with RawClient(site.port) as client:
        with contextlib.suppress(ConnectionError, AssertionError):
            for command in commands:
                client.send(command, 0)
        ended(client.socket)


@settings(max_examples=2 * EXAMPLES)
@given(
    text=st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            ["SELECT", "*", "FROM", "t", "WHERE", "(", ")", ",", "'", '"', "`", "1", "=", "?", "@x",
             "@@", "INSERT", "INTO", "VALUES", "SET", "SHOW", "/*", "*/", "--", ";", "LIMIT",
             "\\", "UNION", "CREATE", "TABLE", "VIEW", "AS", "PRIMARY", "KEY", "INT", "-", "0x",
             "1e", "."]
        ),
        max_size=14,
    ).map(" ".join)
)  # fmt: skip
def test_any_text(site: Running, text: str) -> None:
    with RawClient(site.port) as client:
        first = client.query(text)
        if first[0] == 0xFF:
            code = int.from_bytes(first[1:3], "little")
            assert code != 1105, (text, first)


@pytest.mark.parametrize("text", ["SHOW CREATE", "SHOW TABLE"])
def test_statements_that_end_too_early(site: Running, text: str) -> None:
    with RawClient(site.port) as client:
        first = client.query(text)
        assert first[0] == 0xFF
        assert int.from_bytes(first[1:3], "little") == 1064


@settings(max_examples=EXAMPLES)
@given(body=st.binary(max_size=60))
def test_any_values_for_a_prepared_statement(site: Running, body: bytes) -> None:
    with RawClient(site.port) as client:
        number, _, _ = client.prepare("SELECT ?, ?, ?")
        client.command(0x17, struct.pack("<IBI", number, 0, 1) + body)
        ended(client.socket)


def test_the_server_lives(site: Running) -> None:
    alive(site)
    assert site.server.connections <= 1


def test_a_packet_out_of_order(site: Running) -> None:
    with RawClient(site.port) as client:
        client.send(b"\x03SELECT 1", 7)
        client.sequence = 0
        said = ended(client.socket)
        assert b"packet 7 came where 0 was due" in said


@pytest.mark.parametrize("length", [1, 5, 0xFFFFFE])
def test_a_packet_that_ends_early(site: Running, length: int) -> None:
    with RawClient(site.port) as client:
        client.socket.sendall(length.to_bytes(3, "little") + b"\0")
        assert ended(client.socket) == b""


def test_giant_lengths_are_refused_before_they_come(serve: Serve) -> None:
    server = serve(max_body=100_000)
    with RawClient(server.port) as client:
        client.socket.sendall((100_001).to_bytes(3, "little") + b"\0")
        assert b"100,000 bytes" in ended(client.socket)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.recv(1 << 16)
        raw.sendall((70_000).to_bytes(3, "little") + b"\1")
        assert b"65,536 bytes" in ended(raw), "who has shown no password gets less"
    with RawClient(server.port) as client:
        number, _, _ = client.prepare("SELECT ?")
        with contextlib.suppress(ConnectionError):
            for _ in range(3):
                client.command(0x18, struct.pack("<IH", number, 0) + b"x" * 50_000)
        assert b"larger than a packet" in ended(client.socket)


def test_a_text_that_is_not_utf8(site: Running) -> None:
    with RawClient(site.port) as client:
        client.command(3, b"SELECT '\xff\xfe'")
        assert client.receive()[:3] == b"\xff" + struct.pack("<H", 1300)
        client.command(3, b"SELECT _binary'\xff\xfe'")
        assert client.receive()[0] == 1


def test_a_client_that_is_killed_in_the_middle_of_rows(site: Running) -> None:
    with site.connect() as client, client.cursor() as cursor:
        cursor.execute("CREATE TABLE wide (id INT PRIMARY KEY, s LONGTEXT)")
        cursor.executemany(
            "INSERT INTO wide VALUES (%s, %s)", [(n, "x" * 20_000) for n in range(600)]
        )
    program = (
        "import pymysql, sys\n"
        f"c = pymysql.connect(host='127.0.0.1', port={site.port}, user='x', database='viewkeep')\n"
        "cursor = c.cursor(pymysql.cursors.SSCursor)\n"
        "cursor.execute('SELECT * FROM wide')\n"
        "cursor.fetchone()\n"
        "print('reading', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"reading\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    alive(site)


def test_many_connections_and_one_too_many(serve: Serve) -> None:
    server = serve(max_connections=200)
    clients = [server.connect() for _ in range(200)]
    with pytest.raises(pymysql.err.OperationalError, match="Too many connections"):
        server.connect()
    found: list[object] = []

    def ask(n: int) -> None:
        with clients[n].cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID(), %s", (n,))
            found.append(cursor.fetchall())

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(0, 200, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(threads)
    clients.pop().close()
    for _ in range(200):
        with contextlib.suppress(pymysql.err.OperationalError):
            clients.append(server.connect())
            break
    assert len(clients) == 200, "a place is free again"
    for client in clients:
        client.close()


def test_old_protocols_are_refused(site: Running) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as client:
        packet = struct.pack("<IIB23x", CAPABILITIES & ~0x200, 1 << 24, 45) + b"x\0\0"
        client.sendall(len(packet).to_bytes(3, "little") + b"\1" + packet)
        assert b"older than MySQL 4.1" in ended(client)
