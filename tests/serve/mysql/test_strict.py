"""Clients that read nothing, drip, stay idle, never finish the handshake, or guess passwords."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from viewkeep.serve.guesses import FREE

from .raw import RawClient
from .test_security import PASSWORD, works

if TYPE_CHECKING:
    from tests.serve.mysql.conftest import Running, Serve


def rest(made: socket.socket) -> bytes:
    """What still comes until the server closes the connection."""
    said = b""
    try:
        while part := made.recv(1 << 16):
            said += part
    except ConnectionResetError:
        pass
    return said


def code(packet: bytes) -> int:
    assert packet[0] == 0xFF, packet
    return int(struct.unpack_from("<H", packet, 1)[0])


def until(holds: Callable[[], bool]) -> None:
    """Wait for what the server will do by itself."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline


def test_idle_connections_are_cut_off(serve: Serve) -> None:
    server = serve(idle_seconds=0.3)
    with RawClient(server.port) as idle, server.connect() as busy, busy.cursor() as cursor:
        told = time.monotonic() + 0.8
        while time.monotonic() < told:
            cursor.execute("SELECT 1")  # commands keep a connection
        idle.sequence = 0
        assert code(idle.receive()) == 4031
        assert rest(idle.socket) == b""


def test_a_client_may_lower_its_wait_timeout(serve: Serve) -> None:
    server = serve(idle_seconds=60)
    with server.connect() as client, client.cursor() as cursor:
        cursor.execute("SELECT @@wait_timeout")
        assert float(cursor.fetchall()[0][0]) == 60
        cursor.execute("SET SESSION wait_timeout = 28800")  # taken, and bounded by the server's
        cursor.execute("SET wait_timeout = 1")
        with pytest.raises(pymysql.err.OperationalError, match="1231"):
            cursor.execute("SET wait_timeout = 0")
        until(lambda: server.server.connections == 0)


def test_a_command_that_drips_is_cut_off(serve: Serve) -> None:
    server = serve(max_seconds=0.3)
    for drip in (b"\x20", b"\x20\0\0\0\x03SEL"):
        with RawClient(server.port) as dripping:
            dripping.socket.sendall(drip)
            dripping.sequence = 0
            assert code(dripping.receive()) == 1159
            assert rest(dripping.socket) == b""


def test_a_handshake_that_does_not_end_is_cut_off(serve: Serve) -> None:
    server = serve(handshake_seconds=0.2, password=PASSWORD)
    for said in (b"", b"\x20\0", b"\xff\xff\0\1" + b"x" * 100):
        with RawClient(server.port, greet=False) as silent:
            silent.receive()
            silent.socket.sendall(said)
            assert code(rest(silent.socket)[4:]) == 1159


def test_a_client_that_takes_nothing_is_cut_off(running: Running, serve: Serve) -> None:
    """The server holds a part of its answer, and not for long."""
    server = serve(stalled_seconds=0.3)
    with running.connect() as client, client.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, s LONGTEXT)")
        rows = [(number, "x" * 20_000) for number in range(1_500)]
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", rows)
    with RawClient(server.port) as stalled:
        stalled.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.command(3, b"SELECT id, s FROM t")
        until(lambda: server.server.connections == 1)
        until(lambda: server.server.connections == 0)
        assert len(rest(stalled.socket)) < 25_000_000
    with server.connect() as client, client.cursor() as cursor:
        cursor.execute("SELECT id, s FROM t")
        assert len(cursor.fetchall()) == 1_500, "one that reads has it all"


def test_handshakes_do_not_take_the_places_of_others(serve: Serve) -> None:
    server = serve(password=PASSWORD, max_connections=3, max_handshakes=5)
    kept = [server.connect(password=PASSWORD) for _ in range(2)]
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(40)]
    try:
        works(server.connect(password=PASSWORD))
        for connection in kept:
            connection.ping(reconnect=False)
        assert server.server.connections <= 2 + 5 + 1
        cut_off = silent[0]
        assert len(rest(cut_off)) < 200, "greeted, and sent away for the others"
        with (
            server.connect(password=PASSWORD),
            pytest.raises(pymysql.err.OperationalError, match="1040"),
        ):
            server.connect(password=PASSWORD)
    finally:
        for one in (*silent, *kept):
            one.close()


def wrong(server: Running) -> int:
    with pytest.raises(pymysql.err.OperationalError) as refused:
        server.connect(password="guess")
    return int(refused.value.args[0])


def test_guesses_slow_down(serve: Serve) -> None:
    server = serve(password=PASSWORD, guess_seconds=0.4)
    assert [wrong(server) for _ in range(FREE + 1)] == [1045] * (FREE + 1)
    began = time.monotonic()
    assert [wrong(server) for _ in range(3)] == [1045] * 3
    assert time.monotonic() - began > 0.1 + 0.2 + 0.3
    works(server.connect(password=PASSWORD))
    began = time.monotonic()
    assert wrong(server) == 1045
    works(server.connect(password=PASSWORD))


def test_guesses_side_by_side_are_not_looked_at(serve: Serve) -> None:
    server = serve(password=PASSWORD, guess_seconds=0.5)
    for _ in range(FREE + 8):
        wrong(server)
    clients: list[RawClient] = []
    try:
        answers: list[Any] = []
        for _ in range(10):
            client = RawClient(server.port, greet=False)
            clients.append(client)
            client.receive()
            head = struct.pack("<IIB23x", 0x1 | 0x200 | 0x8000 | 0x80000, 1 << 24, 45)
            client.send(head + b"x\0" + b"\x14" + b"g" * 20 + b"mysql_native_password\0")
        answers = [code(client.receive()) for client in clients]
    finally:
        for client in clients:
            client.close()
    assert set(answers) == {1045, 1129}
    assert answers.count(1045) <= 3


def test_many_placeholders_are_refused(serve: Serve) -> None:
    server = serve(max_parameters=2)
    with RawClient(server.port) as client:
        assert client.prepare("SELECT ?, ?")[1] == 2
        with pytest.raises(RuntimeError, match="too many placeholders") as refused:
            client.prepare("SELECT ?, ?, ?")
        assert refused.value.args[1] == 1390
