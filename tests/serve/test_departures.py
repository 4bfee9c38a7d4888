"""A client that goes away: what it reads ends, and what it writes is done or not, but whole."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.serve.mysql.raw import RawClient

from viewkeep.access.duckdb import pool as duck_pool
from viewkeep.access.sessions import Session
from viewkeep.engine import budget
from viewkeep.engine.budget import Budget, Cancel
from viewkeep.errors import QueryCancelled

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

SECONDS = 60  # that nothing here takes
ENDLESS = (
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT n FROM r WHERE n < 0"
)
OURS = "SELECT count(*) AS n FROM votes a JOIN votes b ON a.story = b.story"


class Watched:
    """What happens to the query of a client: it works, its client has left, it has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.works, self.left, self.ended = (threading.Event() for _ in range(3))
        told, set_ = self, Cancel.set

        class Told(QueryCancelled):
            def __init__(self, *arguments: Any):
                super().__init__(*arguments)
                told.ended.set()

        def leaving(cancel: Cancel) -> None:
            set_(cancel)
            told.left.set()

        monkeypatch.setattr(budget, "QueryCancelled", Told)
        monkeypatch.setattr(Cancel, "set", leaving)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def http(server: Server, method: str, path: str, body: object) -> socket.socket:
    """A connection that has sent a request."""
    content = json.dumps(body).encode()
    url = server.http_url or ""
    made = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    made.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return made


def ask(server: Server, protocol: str, text: str) -> socket.socket:
    """A connection that has sent a query."""
    if protocol == "http":
        return http(server, "POST", "/v1/sql", {"sql": text})
    client = RawClient(server.mysql_port or 0)
    client.command(0x03, text.encode())
    return client.socket


@pytest.mark.parametrize("protocol", ["http", "mysql"])
def test_duckdb_is_ended(
    site: Database, serve: Serve, watched: Watched, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    readable, end, killed = duck_pool._Child._readable, duck_pool._Child.end, threading.Event()

    def waiting(child: Any, seconds: float | None) -> bool:
        if seconds:
            watched.works.set()
        return readable(child, seconds)

    def ending(child: Any) -> None:
        end(child)
        killed.set()

    server = serve(site, mysql_port=0, max_seconds=10.0 * SECONDS)
    monkeypatch.setattr(duck_pool._Child, "_readable", waiting)
    monkeypatch.setattr(duck_pool._Child, "end", ending)
    connection = ask(server, protocol, ENDLESS)
    assert watched.works.wait(SECONDS)
    connection.close()
    assert killed.wait(SECONDS)
    assert watched.ended.wait(SECONDS)


@pytest.mark.parametrize("protocol", ["http", "mysql"])
def test_our_own_work_ends(
    site: Database, serve: Serve, watched: Watched, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    hold = Budget.hold

    def holding(self: Budget, size: int, what: str) -> None:
        watched.works.set()
        assert watched.left.wait(SECONDS)
        hold(self, size, what)

    server = serve(site, mysql_port=0)
    monkeypatch.setattr(Budget, "hold", holding)
    connection = ask(server, protocol, OURS)
    assert watched.works.wait(SECONDS)
    connection.close()
    assert watched.ended.wait(SECONDS)


def test_a_write_is_done(
    site: Database, serve: Serve, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, done = Session.put, threading.Event()

    def putting(session: Session, table: str, rows: object) -> int:
        watched.works.set()
        assert watched.left.wait(SECONDS)
        try:
            return put(session, table, rows)
        finally:
            done.set()

    monkeypatch.setattr(Session, "put", putting)
    row = {"id": 77, "story": 7}
    connection = http(serve(site), "PUT", "/v1/votes/rows", {"rows": [row]})
    assert watched.works.wait(SECONDS)
    connection.close()
    assert done.wait(SECONDS)
    assert site.get("votes", 77) == row
    assert not watched.ended.is_set()
