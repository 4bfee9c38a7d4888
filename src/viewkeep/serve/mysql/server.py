"""The MySQL server: listens, gives each connection a task, and stops gracefully.

Law: at most `max_connections` are served at a time; one more is told so and closed. Connections
that have not shown the password yet are counted apart, at most `max_handshakes`: they cannot fill
the places of others, and if there are too many, those that one address has most of go first. Once a
second, or more often where the limits are short, connections that let too much time pass are cut
off. When the server stops, commands that run are finished and answered, idle connections are
closed, and nothing is left.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections import Counter
from typing import Any

from viewkeep.serve.mysql.connection import Connection
from viewkeep.serve.mysql.faults import Fault
from viewkeep.serve.mysql.protocol.packets import error
from viewkeep.serve.mysql.protocol.wire import Wire
from viewkeep.serve.mysql.session.session import Shared
from viewkeep.serve.service import Service
from viewkeep.serve.settings import Settings

_BACKLOG = 1_024
_TOO_MANY = Fault(1040, "08004", "Too many connections")


class MysqlServer:
    """A server that runs; `port` is where it listens."""

    def __init__(self, service: Service):
        self._service, self._shared = service, Shared(service)
        self._tls = _context(service.settings)
        self._numbers = itertools.count(1)
        self._open: dict[asyncio.Task[None], tuple[Connection, Wire]] = {}
        self._served: set[asyncio.Task[Any]] = set()  # those that were let in
        self._shaking: dict[asyncio.Task[None], str] = {}  # those in the handshake: the address
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._stopping = False
        self.port = 0

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    async def start(self) -> None:
        """Begin to listen."""
        settings = self._service.settings
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Arriving(self, settings.max_body),
            settings.host,
            settings.mysql_port or 0,
            backlog=_BACKLOG,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeping = loop.create_task(self._sweep())

    async def stop(self) -> None:
        """Finish the commands that run, then close all connections."""
        self._stopping = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            self._server.close()
        for task, (connection, _) in list(self._open.items()):
            if connection.idle:
                task.cancel()
            else:
                connection.leaving = True
        if self._open:
            _, late = await asyncio.wait(
                list(self._open), timeout=self._service.settings.max_seconds
            )
            for task in late:
                self._open[task][1].abort()
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._server is not None:
            await self._server.wait_closed()
        self._shared.system.close()

    def arrived(self, wire: Wire) -> None:
        """A client has connected."""
        if self._stopping:
            wire.abort()
            return
        if len(self._served) >= self._service.settings.max_connections:
            wire.send(error(_TOO_MANY.code, _TOO_MANY.state, _TOO_MANY.message))
            wire.close()
            return
        if len(self._shaking) >= self._service.settings.max_handshakes:
            self._make_room()
        connection = Connection(
            self._shared, wire, next(self._numbers), self.port, self._tls, self._let_in
        )
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._open[task] = (connection, wire)
        self._shaking[task] = wire.address
        self._count()
        task.add_done_callback(self._left)

    def _let_in(self) -> None:
        """The connection of the current task has shown the password, or needs none."""
        if len(self._served) >= self._service.settings.max_connections:
            raise _TOO_MANY
        task = asyncio.current_task()
        assert task is not None
        self._shaking.pop(task, None)
        self._served.add(task)

    def _make_room(self) -> None:
        """End the oldest handshake of the address that has most of them."""
        address, _ = Counter(self._shaking.values()).most_common(1)[0]
        task = next(task for task, held in self._shaking.items() if held == address)
        del self._shaking[task]
        self._open[task][1].abort()
        task.cancel()

    async def _sweep(self) -> None:
        """Cut off who lets too much time pass. Commands pay nothing for it."""
        limits = self._service.settings
        shortest = min(limits.idle_seconds, limits.stalled_seconds, limits.max_seconds)
        while True:
            await asyncio.sleep(min(1.0, shortest / 4))
            now = time.monotonic()
            for task, (connection, wire) in list(self._open.items()):
                fault = connection.overdue(now)
                if fault is None:
                    continue
                if wire.blocked is None:
                    wire.sequence = 0
                    wire.send(error(fault.code, fault.state, fault.message))
                    wire.close()
                else:
                    wire.abort()
                if connection.idle:
                    task.cancel()

    def _left(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._shaking.pop(task, None)
        self._served.discard(task)
        self._count()
        if not task.cancelled() and (failed := task.exception()) is not None:
            context = {"message": "a MySQL connection failed", "exception": failed}
            asyncio.get_running_loop().call_exception_handler(context)

    def _count(self) -> None:
        self._service.metrics.connections.labels("mysql").set(len(self._open))


class _Arriving(Wire):
    """A wire that tells its server when it is connected."""

    def __init__(self, server: MysqlServer, max_packet: int):
        super().__init__(max_packet)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.arrived(self)


def _context(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return context


async def start_mysql(service: Service) -> MysqlServer:
    """Serve a database to MySQL's clients, in the running loop."""
    server = MysqlServer(service)
    await server.start()
    return server
