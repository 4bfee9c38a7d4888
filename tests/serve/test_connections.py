"""A thousand connections: feeds and idle ones, held with bounded memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.serve.conftest import Pipeline

    from viewkeep import Database

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

STREAMS, SOCKETS, IDLE = 400, 300, 300
MOST_GROWTH = 200 << 20  # bytes of the server's memory, for all of them: 200 KiB each

SERVER = """
import sys, viewkeep
from viewkeep.serve import Server, Settings
with viewkeep.open(sys.argv[1]) as db, Server(db, Settings(http_port=0, mysql_port=None)) as server:
    print(server.http_port, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def own_process(url: str) -> Iterator[int]:
    """A server in a process of its own, so that its memory is its own; its port."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0


class Holder:
    """Many connections of one loop, each as cheap as it can be."""

    def __init__(self, port: int):
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.heard = 0  # events
        self.reading: list[asyncio.Task[None]] = []
        self.idle: list[Connection] = []

    async def _open(self, path: str, *headers: str) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())
        return reader, writer

    async def stream(self) -> None:
        reader, _ = await self._open("/v1/scores/changes?prefix=1")
        await reader.readuntil(b'"kind":"rows"')

        async def read() -> None:
            while True:
                await reader.readuntil(b'"kind":"changes"')
                self.heard += 1

        self.reading.append(asyncio.create_task(read()))

    async def socket(self) -> None:
        reader, writer = await self._open(
            "/v1/scores/changes/ws?prefix=1",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        await reader.readuntil(b"\r\n\r\n")
        assert b'"kind":"rows"' in await _message(reader, writer)

        async def read() -> None:
            while True:
                found = await _message(reader, writer)
                self.heard += b'"kind":"changes"' in found

        self.reading.append(asyncio.create_task(read()))

    async def keep(self) -> None:
        reader, writer = await self._open("/health")
        await reader.readuntil(b'{"alive":true}')
        self.idle.append((reader, writer))

    async def ask_all_idle(self) -> None:
        """Every kept connection is still good for a request."""
        for reader, writer in self.idle:
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b'{"alive":true}')

    async def close(self) -> None:
        for task in self.reading:
            task.cancel()
        await asyncio.gather(*self.reading, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(w.wait_closed() for w in self._writers), return_exceptions=True)


async def _message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The next text message of a socket; pings on the way are answered."""
    while True:
        head = await reader.readexactly(2)
        size = head[1] & 127
        if size >= 126:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
        payload = await reader.readexactly(size)
        if head[0] & 15 == 1:
            return payload
        if head[0] & 15 == 9:
            writer.write(bytes([0x8A, 0x80 | size, 0, 0, 0, 0]) + payload)  # a mask of zeros


def figures(port: int) -> dict[str, float]:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def hold(db: Database, port: int, seconds: float) -> dict[str, Any]:
    """Open all, then write and count until the time is over and every feed has heard it all."""
    before = figures(port)["process_resident_memory_bytes"]
    held = Holder(port)
    most, rounds, slowest = before, 0, 0.0
    feeds = STREAMS + SOCKETS
    wanted = [held.stream] * STREAMS + [held.socket] * SOCKETS + [held.keep] * IDLE
    try:
        for start in range(0, len(wanted), 50):
            await asyncio.gather(*(make() for make in wanted[start : start + 50]))
        found = await asyncio.to_thread(figures, port)
        assert found["viewkeep_open_feeds"] == feeds
        assert found['viewkeep_connections{protocol="http"}'] >= feeds
        until = time.monotonic() + seconds
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while rounds < 2 or time.monotonic() < until:
                rounds += 1
                await asyncio.to_thread(db.put, "votes", {"id": 1_000 + rounds, "story": 1})
                while held.heard < rounds * feeds:  # until all have heard of this one
                    assert not [task for task in held.reading if task.done()], "a feed has ended"
                    began = time.monotonic()
                    answer = await client.get("/v1/scores/row?key=1")
                    slowest = max(slowest, time.monotonic() - began)
                    assert answer.status_code == 200
                found = await asyncio.to_thread(figures, port)
                most = max(most, found["process_resident_memory_bytes"])
                await held.ask_all_idle()
        assert held.heard == rounds * feeds
    finally:
        await held.close()
    while (await asyncio.to_thread(figures, port))["viewkeep_open_feeds"]:
        pass  # until all of them are gone
    return {"rounds": rounds, "growth": most - before, "slowest": slowest}


def test_a_thousand_connections(site: Database, epochs: Pipeline) -> None:
    with own_process(site.url) as port:
        found = asyncio.run(asyncio.wait_for(hold(site, port, seconds=0), 120))
    assert found["growth"] < MOST_GROWTH, found


@pytest.mark.long
def test_a_thousand_connections_for_a_minute(site: Database, epochs: Pipeline) -> None:
    with own_process(site.url) as port:
        found = asyncio.run(asyncio.wait_for(hold(site, port, seconds=60), 300))
    print(json.dumps(found))
    assert found["growth"] < MOST_GROWTH, found
