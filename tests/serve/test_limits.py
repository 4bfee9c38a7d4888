"""Limits: what is too large, too many or too long is refused with a clean error."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from viewkeep.errors import Timeout
from viewkeep.serve import service as service_module
from viewkeep.serve.http import connections as connections_module

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]


def kind(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["kind"])


def test_bodies(site: Database, serve: Serve) -> None:
    rows = [{"id": number, "story": 1} for number in range(100)]
    with httpx.Client(base_url=serve(site, max_body=1_000).http_url) as client:
        assert kind(client.put("/v1/votes/rows", json={"rows": rows}), 413) == "TooLarge"

        def unannounced() -> object:
            yield b'{"rows": ['
            for _ in range(100):
                yield b'{"id": 1, "story": 1},'
            yield b'{"id": 1}]}'

        headers = {"content-type": "application/json"}
        answer = client.put("/v1/votes/rows", content=unannounced(), headers=headers)
        assert kind(answer, 413) == "TooLarge"
        assert client.put("/v1/votes/rows", json={"rows": rows[:5]}).status_code == 200
        assert client.get("/v1/votes/aggregate").json() == {"measures": {"count(*)": 9}}


def test_rows(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, max_rows=5).http_url) as client:
        page = client.get("/v1/votes/rows?limit=100").json()
        assert len(page["rows"]) == 5
        assert page["next"] is not None
        answer = client.post("/v1/sql", json={"sql": "SELECT * FROM votes"})
        assert kind(answer, 413) == "TooLarge"
        assert "add a LIMIT" in answer.json()["error"]["message"]
        reads = [{"name": "votes", "limit": 3}, {"name": "votes", "keys": [1, 2, 3]}]
        assert kind(client.post("/v1/read", json={"reads": reads}), 413) == "TooLarge"
        assert client.post("/v1/read", json={"reads": reads[:1]}).status_code == 200


def test_seconds(site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    going = threading.Event()

    def slow() -> None:
        going.wait()

    monkeypatch.setattr(site, "status", slow)
    with httpx.Client(base_url=serve(site, max_seconds=0.2).http_url) as client:
        try:
            answer = client.get("/v1/status")
            assert kind(answer, 504) == Timeout.__name__
            assert "longer than 0.2 s" in answer.json()["error"]["message"]
            assert client.get("/v1/votes/rows").status_code == 200
        finally:
            going.set()  # the server waits for its threads when it stops


def test_work_that_waits(site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "THREADS", 1)
    monkeypatch.setattr(service_module, "WAITING", 1)
    going, begun = threading.Event(), threading.Event()

    def slow(what: str | None = None) -> str:
        begun.set()
        going.wait()
        return "done"

    monkeypatch.setattr(site, "explain", slow)
    url = serve(site).http_url
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.get(f"{url}/v1/explain", timeout=30))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        # Two of the three are taken on; who comes third is told to try again.
        while not answers:
            threads[0].join(0.01)
    finally:
        going.set()
    for thread in threads:
        thread.join()
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 200, 429]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["kind"] == "Overloaded"
    assert refused.headers["retry-after"] == "1"


def test_connections(site: Database, serve: Serve) -> None:
    port = serve(site, max_connections=3).http_port
    assert port is not None
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    try:
        # All three are counted once the last of them is answered.
        held[2].sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert held[2].recv(100).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", port)) as refused:
            said = b""
            while part := refused.recv(10_000):
                said += part
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b'"kind":"Overloaded"' in said
    finally:
        for one in held:
            one.close()
    transport = httpx.HTTPTransport(retries=10)
    with httpx.Client(transport=transport) as client:
        while client.get(f"http://127.0.0.1:{port}/health").status_code != 200:
            pass  # until the server has seen that the three are gone


def test_silent_connections_are_closed(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "SILENT_SECONDS", 0.05)
    port = serve(site).http_port
    for said in (b"", b"GET /health HTTP/1.1\r\nhost: loc"):
        with socket.create_connection(("127.0.0.1", port or 0), timeout=20) as silent:
            silent.sendall(said)
            assert silent.recv(100) == b""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert client.get("/health").status_code == 200


def test_requests_that_do_not_end(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers that stay open after an earlier request, and a body that does not come."""
    monkeypatch.setattr(connections_module, "SILENT_SECONDS", 0.05)
    port = serve(site, max_seconds=0.1).http_port or 0
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        made.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert made.recv(1_000).startswith(b"HTTP/1.1 200")
        made.sendall(b"GET /health HTTP/1.1\r\nho")
        assert made.recv(100) == b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        head = b"POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        made.sendall(head + b"content-length: 100\r\n\r\n{")
        assert made.recv(1_000).startswith(b"HTTP/1.1 504")


def test_clients_that_leave_without_a_word(
    client: httpx.Client, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests one after another without waiting, then a reset: no fault of ours is logged."""
    request = b"GET /v1/scores/rows HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for number in range(30):
        with socket.create_connection(("127.0.0.1", server.http_port or 0)) as made:
            made.sendall(request * 20)
            if number % 2:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            made.recv(number * 100 + 1)
    while 'viewkeep_connections{protocol="http"} 1.0' not in client.get("/metrics").text:
        pass  # until the server has seen that all but this client are gone
    assert "a request failed" not in caplog.text


def test_a_client_that_takes_nothing_is_cut_off(
    db: Database, serve: Serve, catch_up: Callable[[], object]
) -> None:
    """Its feed holds one turn of events in memory, and ends."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, s STRING); CREATE VIEW v AS SELECT id, s FROM t")
    db.put("t", [{"id": number, "s": "x" * 2_000} for number in range(12_000)])
    catch_up()
    port = serve(db, stalled_seconds=0.3).http_port
    with socket.create_connection(("127.0.0.1", port or 0)) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.sendall(b"GET /v1/v/changes HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert stalled.recv(10).startswith(b"HTTP/1.1")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            while "viewkeep_open_feeds 0.0" not in client.get("/metrics").text:
                pass


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET /%ff%fe/\x00 HTTP/1.1\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/votes/rows HTTP/1.1\r\nhost: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request(client: httpx.Client, server: Server, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port or 0), timeout=20) as made:
        made.sendall(said)
        made.shutdown(socket.SHUT_WR)
        answer = made.recv(100)
        assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert client.get("/health").status_code == 200
