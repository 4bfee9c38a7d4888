"""Who may ask: the password, the name a request is addressed to, the site that sends it."""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

SECRET = "pässwort: with colon"


def kind(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["kind"])


def test_password(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, password=SECRET).http_url) as client:
        paths = (
            "/v1/scores/row?key=1",
            "/metrics",
            "/v1/openapi.json",
            "/",
            "/nowhere",
            "/v1/tables",
        )
        for path in paths:
            answer = client.get(path)
            assert kind(answer, 401) == "Unauthorized"
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
            assert kind(client.get(path, auth=("any", "wrong")), 401) == "Unauthorized"
        for path in ("/health", "/ready"):
            assert client.get(path).status_code == 200
        assert client.get("/v1/tables", auth=("anyone", SECRET)).status_code == 200
        bearer = b"Bearer " + SECRET.encode()
        assert client.get("/v1/tables", headers={"Authorization": bearer}).status_code == 200
        encoded = base64.b64encode(SECRET.encode()).decode()
        for wrong in (
            "",
            "Bearer",
            "Bearer x",
            "Basic",
            "Basic ***",
            f"Basic {encoded}x",
            f"Digest {SECRET}".encode(),
            b"\xff\xfe",
        ):
            answer = client.get("/v1/tables", headers=[("Authorization", wrong)])
            assert kind(answer, 401) == "Unauthorized"


def test_password_of_sockets(site: Database, serve: Serve) -> None:
    server = serve(site, password="secret")
    url = server.http_url.replace("http", "ws") + "/v1/scores/changes/ws"

    async def run() -> None:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 401
        assert b"Unauthorized" in refused.value.response.body
        async with connect(url, additional_headers={"Authorization": "Bearer secret"}) as made:
            assert b'"rows"' in (await made.recv(decode=False))

    asyncio.run(run())


def test_names_that_lead_here(client: httpx.Client, server: Server) -> None:
    """A page of another site whose name was made to lead to loopback gets nothing."""
    port = server.http_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[", "10.0.0.1"):
        assert kind(client.get("/v1/tables", headers={"Host": host}), 403) == "Forbidden"
    for host in ("localhost", f"localhost:{port}", "127.0.0.1", "[::1]", f"[::1]:{port}"):
        assert client.get("/v1/tables", headers={"Host": host}).status_code == 200


def test_any_name_with_a_password(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, password="secret").http_url) as client:
        headers = {"Host": "views.example", "Authorization": "Bearer secret"}
        assert client.get("/v1/tables", headers=headers).status_code == 200


def test_other_sites(site: Database, serve: Serve, server: Server) -> None:
    guarded = serve(site, password="secret")
    for one, credentials in ((server, {}), (guarded, {"Authorization": "Bearer secret"})):
        own = one.http_url
        with httpx.Client(base_url=own, headers=credentials) as client:
            for origin in (
                "http://evil.example",
                "null",
                "http://127.0.0.1:1",
                "file://",
                "x",
                "http://[",
            ):
                headers = {"Origin": origin}
                rows = {"rows": [{"id": 1, "story": 9}]}
                for answer in (
                    client.put("/v1/votes/rows", json=rows, headers=headers),
                    client.post("/v1/sql", json={"sql": "SELECT 1"}, headers=headers),
                    client.delete("/v1/votes/row?key=1", headers=headers),
                ):
                    assert kind(answer, 403) == "Forbidden"
            answer = client.post("/v1/sql", json={"sql": "SELECT 1 AS n"}, headers={"Origin": own})
            assert answer.json()["rows"] == [{"n": 1}]
            assert "access-control-allow-origin" not in answer.headers


def test_sockets_of_other_sites(server: Server) -> None:
    url = server.http_url.replace("http", "ws") + "/v1/scores/changes/ws"

    async def run() -> None:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, origin="http://evil.example")  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        async with connect(url, origin=server.http_url) as made:  # type: ignore[arg-type]
            await made.recv()

    asyncio.run(run())


def test_tls(site: Database, serve: Serve, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    server = serve(site, tls_certificate=certificate, tls_key=key, password="secret")
    assert server.http_url.startswith("https://")
    trust = ssl.create_default_context(cafile=str(certificate))
    headers = {"Authorization": "Bearer secret"}
    with httpx.Client(base_url=server.http_url, verify=trust, headers=headers) as client:
        assert client.get("/v1/scores/row?key=1").json()["row"]["votes"] == 3
        with client.stream("GET", "/v1/scores/changes") as answer:
            assert next(answer.iter_lines()).startswith("id: ")

    async def run() -> None:
        url = server.http_url.replace("https", "wss") + "/v1/scores/changes/ws"
        async with connect(url, ssl=trust, additional_headers=headers) as made:
            await made.recv()

    asyncio.run(run())
