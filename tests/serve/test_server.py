"""A server from start to end: its ports, its last words, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from viewkeep.cli.commands import app
from viewkeep.errors import InvalidSetting
from viewkeep.serve.server import Server
from viewkeep.serve.settings import Settings

if TYPE_CHECKING:
    from viewkeep import Database

    Serve = Callable[..., Server]

HTTP_ONLY = {"http_port": 0, "mysql_port": None}


def test_free_ports_and_addresses(site: Database) -> None:
    server = Server(site, Settings(**HTTP_ONLY))
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.http_url
    server.stop()  # it was not started: nothing to do
    with server:
        assert server.http_port
        assert server.mysql_port is None
        assert httpx.get(f"{server.http_url}/health").json() == {"alive": True}
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.http_url}/health")


def test_ipv6(site: Database) -> None:
    with Server(site, Settings(host="::1", **HTTP_ONLY)) as server:
        assert server.http_url == f"http://[::1]:{server.http_port}"
        assert httpx.get(f"{server.http_url}/v1/tables").status_code == 200


def test_ports_in_use(site: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSetting, match=f"port {port} of 127.0.0.1 is in use.*--port"):
            Server(site, Settings(http_port=port, mysql_port=None)).start()
        with pytest.raises(InvalidSetting, match=f"port {port} .* in use.*--mysql-port"):
            Server(site, Settings(http_port=0, mysql_port=port)).start()
    with pytest.raises(InvalidSetting, match="no address of this machine"):
        Server(site, Settings(host="192.0.2.1", password="x", **HTTP_ONLY)).start()


def test_no_threads_stay(site: Database) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with Server(site, Settings(**HTTP_ONLY)) as server:
            httpx.get(f"{server.http_url}/v1/votes/rows")
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("viewkeep")]


def test_feeds_are_told(site: Database) -> None:
    """Streams and sockets get a last event that says why, and end; the server ends soon."""
    server = Server(site, Settings(**HTTP_ONLY)).start()
    ready, last = threading.Barrier(3, timeout=30), {}

    def stream() -> None:
        with httpx.stream("GET", f"{server.http_url}/v1/scores/changes", timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            ready.wait()
            last["stream"] = [line for line in lines if line.startswith("data: ")][-1]

    async def follow() -> None:
        url = server.http_url.replace("http", "ws") + "/v1/scores/changes/ws"
        async with connect(url) as made:
            await made.recv()
            await asyncio.to_thread(ready.wait)
            last["socket"] = await made.recv()
            with pytest.raises(ConnectionClosed):
                await made.recv()
            last["code"] = made.close_code

    threads = [
        threading.Thread(target=stream),
        threading.Thread(target=lambda: asyncio.run(follow())),
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    server.stop()
    for thread in threads:
        thread.join()
    for said in (last["stream"].removeprefix("data: "), last["socket"]):
        event = json.loads(said)
        assert (event["kind"], event["error"]["kind"]) == ("end", "Stopping")
    assert last["code"] == 4503


def test_running_requests_end(site: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, going = threading.Event(), threading.Event()

    def slow(what: str | None = None) -> str:
        begun.set()
        going.wait()
        return "as it should"

    monkeypatch.setattr(site, "explain", slow)
    server = Server(site, Settings(**HTTP_ONLY)).start()
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(httpx.get(f"{server.http_url}/v1/explain", timeout=30))
    )
    asking.start()
    begun.wait()
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    while _listens(server.http_port or 0):
        pass
    going.set()
    asking.join()
    stopping.join()
    assert answers[0].json() == {"explain": "as it should"}


def test_waiting_sessions_are_sent_away(site: Database) -> None:
    server = Server(site, Settings(**HTTP_ONLY)).start()
    url = server.http_url
    token = httpx.put(f"{url}/v1/votes/rows", json={"rows": [{"id": 1}]}).headers[
        "viewkeep-session"
    ]
    answers: list[httpx.Response] = []

    def ask() -> None:
        headers = {"Viewkeep-Session": token}
        answers.append(httpx.get(f"{url}/v1/scores/rows", headers=headers, timeout=30))

    asking = threading.Thread(target=ask)
    asking.start()
    while "viewkeep_connections" not in (text := httpx.get(f"{url}/metrics").text) or (
        'viewkeep_connections{protocol="http"} 2.0' not in text
    ):
        pass  # until the one that waits is connected
    server.stop()
    asking.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["kind"] == "Stopping"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in the documentation, with the value that it says."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    asked = re.search(r"    (httpx.*)  # \[\]\n", program)
    assert asked is not None
    exec(program.replace(asked[0], f"    assert {asked[1]} == []\n") + "db.close()\n", {})


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


# -- the command ------------------------------------------------------------------------------


@contextmanager
def command(url: str, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    code = "from viewkeep.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", url, "--port", "0", "--no-mysql", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_ends_when_told(site: Database, number: signal.Signals) -> None:
    with command(site.url, "--json", "--log-format", "json") as process:
        url = first_line(process)["http"]
        with httpx.stream("GET", f"{url}/v1/scores/changes", timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            httpx.get(f"{url}/v1/scores/row?key=1", headers={"Authorization": "Bearer topsecret"})
            process.send_signal(number)
            assert any('"Stopping"' in line for line in lines)
        _, logged = process.communicate(timeout=30)
        assert process.returncode == 0
    lines_logged = [json.loads(line) for line in logged.splitlines()]
    asked = next(line for line in lines_logged if line.get("path") == "/v1/scores/row")
    assert asked["method"] == "GET"
    assert asked["status"] == 200
    assert asked["milliseconds"] > 0
    assert asked["client"] == "127.0.0.1"
    assert asked["level"] == "info"
    assert "topsecret" not in logged
    assert "key=1" not in logged


def test_command_prints_for_people(site: Database) -> None:
    with command(site.url) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("HTTP   http://127.0.0.1:")
        httpx.get(line.split()[1] + "/health")
        process.terminate()
        _, logged = process.communicate(timeout=30)
        assert "127.0.0.1 GET /health 200 " in logged


def test_command_says_what_is_wrong(site: Database, tmp_path: Path) -> None:
    def said(*options: str, **environment: str) -> str:
        given = ["serve", site.url, "--port", "0", "--no-mysql", "--log-format", "none", *options]
        done = CliRunner().invoke(app, given, env=environment)
        assert done.exit_code in (1, 2), done.output
        assert not done.stdout
        return " ".join(done.stderr.split())

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"error: port {port} of 127.0.0.1 is in use" in said("--port", str(port))
    assert "so a password is needed" in said("--host", "0.0.0.0")
    assert "TLS needs both files" in said("--tls-key", str(tmp_path))
    assert "the password is empty" in said(VIEWKEEP_PASSWORD="")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert "is empty" in said("--password-file", str(empty))
    assert "No such file" in said("--password-file", str(tmp_path / "none"))
    assert "text, json or none" in said("--log-format", "xml")


def test_command_takes_the_password(site: Database, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    with command(site.url, "--json", "--password-file", str(file)) as process:
        url = first_line(process)["http"]
        assert httpx.get(f"{url}/v1/tables").status_code == 401
        assert httpx.get(f"{url}/v1/tables", auth=("me", "from a file")).status_code == 200
