"""Sessions over HTTP: own writes are seen, time never goes back, on whichever server."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

import viewkeep
from viewkeep.serve.http.sessions import HEADER
from viewkeep.serve.service import THREADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.conftest import Pipeline

    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]


def test_own_writes_are_seen(client: httpx.Client, epochs: Pipeline) -> None:
    token = ""
    for number in range(100, 112):
        headers = {HEADER: token} if token else {}
        row = {"id": number, "story": 1}
        answer = client.put("/v1/votes/rows", json={"rows": [row]}, headers=headers)
        token = answer.headers[HEADER]
        expected = number - 100 + 4
        match number % 4:
            case 0:
                answer = client.get("/v1/scores/row?key=1", headers={HEADER: token})
                found = answer.json()["row"]
            case 1:
                answer = client.get("/v1/scores/rows?prefix=1", headers={HEADER: token})
                (found,) = answer.json()["rows"]
            case 2:
                reads = {"reads": [{"name": "scores", "key": 1}]}
                answer = client.post("/v1/read", json=reads, headers={HEADER: token})
                found = answer.json()["results"][0]["row"]
            case _:
                sql = {"sql": "SELECT * FROM scores WHERE story = 1"}
                answer = client.post("/v1/sql", json=sql, headers={HEADER: token})
                (found,) = answer.json()["rows"]
        assert found == {"story": 1, "votes": expected}
        token = answer.headers[HEADER]


def test_statements_of_one_request_see_those_before(client: httpx.Client, epochs: Pipeline) -> None:
    """And none is run twice while one waits."""
    text = """
        INSERT INTO votes VALUES (200, 7);
        CREATE VIEW sevens AS SELECT id FROM votes WHERE story = 7;
        INSERT INTO votes VALUES (201, 7);
        SELECT COUNT(*) AS n FROM sevens
    """
    found = client.post("/v1/sql", json={"sql": text}).json()
    assert found["rows"] == [{"n": 2}]


def test_a_view_made_by_a_session_is_waited_for(client: httpx.Client, epochs: Pipeline) -> None:
    sql = "CREATE VIEW ones AS SELECT id FROM votes WHERE story = 1"
    token = client.post("/v1/sql", json={"sql": sql}).headers[HEADER]
    found = client.get("/v1/ones/rows", headers={HEADER: token})
    assert len(found.json()["rows"]) == 3


def test_base_tables_need_no_session(client: httpx.Client) -> None:
    assert HEADER not in client.get("/v1/votes/row?key=1").headers
    assert HEADER not in client.get("/v1/votes/rows").headers
    assert HEADER in client.get("/v1/scores/row?key=1").headers
    token = client.put("/v1/votes/rows", json={"rows": [{"id": 77}]}).headers[HEADER]
    answer = client.get("/v1/votes/row?key=77", headers={HEADER: token})
    assert answer.json() == {"row": {"id": 77, "story": None}}
    assert answer.headers[HEADER] == token


def test_timeout_says_how_far_behind(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, max_seconds=0.3).http_url) as client:
        token = client.put("/v1/votes/rows", json={"rows": [{"id": 77}]}).headers[HEADER]
        for path in ("/v1/scores/row?key=1", "/v1/scores/rows", "/v1/scores/changes"):
            answer = client.get(path, headers={HEADER: token})
            assert answer.status_code == 504
            error = answer.json()["error"]
            assert error["kind"] == "Timeout"
            assert re.match(
                r"after 0\.3\d* s view scores lacks 1 operation of this session "
                r"\(\d+\.\d s behind\)",
                error["message"],
            )
        answer = client.get("/v1/scores/row?key=1&at=latest", headers={HEADER: token})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "token", ["", "x", "s2.1.1", "s2.9.9.9.9.00000000", "ü".encode(), "a" * 9999]
)
def test_tokens_that_are_none(client: httpx.Client, token: str | bytes) -> None:
    answer = client.get("/v1/scores/row?key=1", headers=[(HEADER, token)])
    assert answer.status_code == 400
    assert answer.json()["error"]["kind"] == "InvalidToken"


def test_another_server_and_another_process(site: Database, serve: Serve, epochs: Pipeline) -> None:
    """A write through one server is seen through another one, and through none."""
    one, other = serve(site), serve(site)
    code = f"""
import json, sys, viewkeep
with viewkeep.open({site.url!r}) as db, db.session(sys.argv[1]) as session:
    print(json.dumps([session.get("scores", 8), session.token]))
"""
    with (
        httpx.Client(base_url=one.http_url) as first,
        httpx.Client(base_url=other.http_url) as second,
    ):
        rows = {"rows": [{"id": 300, "story": 8}]}
        token = first.put("/v1/votes/rows", json=rows).headers[HEADER]
        answer = second.get("/v1/scores/row?key=8", headers={HEADER: token})
        assert answer.json() == {"row": {"story": 8, "votes": 1}}
        rows = {"rows": [{"id": 301, "story": 8}]}
        token = second.put("/v1/votes/rows", json=rows, headers={HEADER: token}).headers[HEADER]
        done = subprocess.run(
            [sys.executable, "-c", code, token], capture_output=True, text=True, check=True
        )
        row, token = json.loads(done.stdout)
        assert row == {"story": 8, "votes": 2}
        answer = first.get("/v1/scores/row?key=8", headers={HEADER: token})
        assert answer.json() == {"row": {"story": 8, "votes": 2}}


def test_waiting_holds_no_thread(server: Server, epochs: Pipeline) -> None:
    """Many more wait than there are threads; others are answered meanwhile, and all in the end."""
    waiting = 6 * THREADS

    async def run() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.http_url, limits=limits, timeout=30) as client:
            epochs.hold()
            rows = {"rows": [{"id": 400, "story": 9}]}
            token = (await client.put("/v1/votes/rows", json=rows)).headers[HEADER]
            waiters = [
                asyncio.create_task(client.get("/v1/scores/rows?prefix=9", headers={HEADER: token}))
                for _ in range(waiting)
            ]
            for _ in range(20):
                assert (await client.get("/v1/votes/rows")).status_code == 200
            assert not any(waiter.done() for waiter in waiters)
            epochs.go_on()
            for answer in await asyncio.gather(*waiters):
                assert answer.json()["rows"] == [{"story": 9, "votes": 1}]

    asyncio.run(run())


def test_many_sessions_at_once(server: Server, epochs: Pipeline) -> None:
    """Each has a story of its own; every read finds all of its votes, and its epochs only grow."""

    async def use(client: httpx.AsyncClient, story: int) -> None:
        token, epoch = None, 0
        for number in range(1, 9):
            rows = {"rows": [{"id": story * 100 + number, "story": story}]}
            headers = {HEADER: token} if token else {}
            answer = await client.put("/v1/votes/rows", json=rows, headers=headers)
            path = f"/v1/scores/rows?prefix={story}"
            answer = await client.get(path, headers={HEADER: answer.headers[HEADER]})
            found = answer.json()
            assert found["rows"] == [{"story": story, "votes": number}]
            assert found["epoch"] >= epoch
            token, epoch = answer.headers[HEADER], found["epoch"]

    async def run() -> None:
        async with httpx.AsyncClient(base_url=server.http_url, timeout=30) as client:
            await asyncio.gather(*(use(client, story) for story in range(10, 22)))

    asyncio.run(run())


def test_tokens_of_another_database(client: httpx.Client, tmp_path: object) -> None:
    with viewkeep.open(f"{tmp_path}/other.vk", durability="relaxed", nodes=1) as other:
        other.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        with other.session() as session:
            session.put("t", {"id": 1})
            token = session.token
    answer = client.get("/v1/scores/row?key=1", headers={HEADER: token})
    assert answer.json()["error"]["kind"] == "InvalidToken"
