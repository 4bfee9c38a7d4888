"""A server of one database: HTTP and the MySQL protocol in one event loop.

Law: when a server has started, its ports are open; when it stops it takes no new connections, tells
its feeds so, lets running requests end within a bound, and leaves no thread, task or socket.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType

import uvicorn
import uvloop

from viewkeep.database import Database
from viewkeep.errors import InvalidSetting
from viewkeep.serve.app import create_app
from viewkeep.serve.http.connections import SAFE_HEADERS, bounded_protocol
from viewkeep.serve.mysql.server import MysqlServer, start_mysql
from viewkeep.serve.service import Service
from viewkeep.serve.settings import Settings

FEEDS_SECONDS = 2.0  # for feeds to say goodbye
REQUESTS_SECONDS = 10  # for running requests to end
IDLE_SECONDS = 75  # that a connection is kept between two requests
_BACKLOG = 2_048
_SPARE_FILES = 256  # beside the connections: the store, the logs, the standard streams


@dataclass(frozen=True)
class Addresses:
    """Where a server listens."""

    host: str
    http_port: int | None
    mysql_port: int | None
    secure: bool

    @property
    def http_url(self) -> str:
        """The address for browsers and HTTP clients."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{name}:{self.http_port}"


async def serve(
    db: Database,
    settings: Settings,
    stop: asyncio.Event,
    started: Callable[[Addresses], None] = lambda addresses: None,
) -> None:
    """Serve a database until `stop` is set; `started` is told the addresses."""
    _allow_files(settings)
    listener = None if settings.http_port is None else _listen(settings, settings.http_port)
    service = Service(db, settings)
    await service.start()
    endings: list[Callable[[], Awaitable[None]]] = []
    try:
        port = mysql_port = None
        if listener is not None:
            http = _Http(service)
            await http.begin(listener)
            endings.append(http.end)
            port = listener.getsockname()[1]
        if settings.mysql_port is not None:
            mysql = await _start_mysql(service, settings.mysql_port)
            count = service.metrics.connections.labels("mysql")
            count.set_function(lambda: mysql.connections)
            endings.append(mysql.stop)
            mysql_port = mysql.port
        secure = settings.tls_certificate is not None
        started(Addresses(settings.host, port, mysql_port, secure))
        await stop.wait()
    finally:
        service.hub.end()
        await asyncio.gather(*(end() for end in endings))
        if listener is not None:
            listener.close()
        await service.stop()


class Server:
    """A server in a thread of its own: a context manager with the addresses.

    `with Server(db, Settings(http_port=0)) as server: print(server.http_url)`
    """

    def __init__(self, db: Database, settings: Settings | None = None):
        self._db, self.settings = db, settings or Settings()
        self._thread = threading.Thread(target=self._run, name="viewkeep-server", daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._addresses: Addresses | None = None
        self._failed: BaseException | None = None

    @property
    def addresses(self) -> Addresses:
        """Where it listens, once started."""
        if self._addresses is None:
            raise RuntimeError("the server is not started")
        return self._addresses

    @property
    def http_url(self) -> str:
        """The address for browsers and HTTP clients."""
        return self.addresses.http_url

    @property
    def http_port(self) -> int | None:
        """The port of HTTP; None if it is not served."""
        return self.addresses.http_port

    @property
    def mysql_port(self) -> int | None:
        """The port of the MySQL protocol; None if it is not served."""
        return self.addresses.mysql_port

    def start(self) -> Server:
        """Open the ports; raises what stands against it."""
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed
        return self

    def stop(self) -> None:
        """Stop as the module says; twice is harmless."""
        if self._thread.ident is None:
            return  # it was never started
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self._db, self.settings, self._stop, self._started)

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    def _started(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._ready.set()


class _Http(uvicorn.Server):
    """Uvicorn within a loop and a life that are not its own."""

    def __init__(self, service: Service):
        settings = service.settings
        self._service = service
        self._ticking: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            create_app(service),
            http=bounded_protocol(settings.max_connections, settings.stalled_seconds),
            headers=list(SAFE_HEADERS),
            ws="websockets-sansio",
            ws_max_size=64 * 1024,
            ws_per_message_deflate=False,  # a window of memory for each follower
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=REQUESTS_SECONDS,
            backlog=_BACKLOG,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
        )
        super().__init__(config)
        service.metrics.connections.labels("http").set_function(
            lambda: len(self.server_state.connections)
        )

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Signals are the business of the command."""
        return nullcontext()

    async def begin(self, listener: socket.socket) -> None:
        """Take connections."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listener])
        self._ticking = asyncio.create_task(self.main_loop())

    async def end(self) -> None:
        """Take no more, let feeds and requests end."""
        self.should_exit = True
        for server in self.servers:
            server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FEEDS_SECONDS):
                while self._service.feeds:
                    await asyncio.sleep(0.01)
        await self.shutdown()
        if self._ticking is not None:
            await self._ticking


def _listen(settings: Settings, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise refused(error, settings.host, port, "--port") from error
    # Accepted connections inherit it.
    stalled = int(settings.stalled_seconds * 1000)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)
    return listener


def refused(error: OSError, host: str, port: int, option: str) -> InvalidSetting:
    """Why a port cannot be opened, and what to do."""
    if error.errno == errno.EADDRINUSE:
        said = f"port {port} of {host} is in use; give another ({option} PORT, or 0 for a free one)"
    elif error.errno == errno.EACCES:
        said = f"port {port} needs more rights; give one above 1023 ({option} PORT)"
    elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        said = f"{host} is no address of this machine (--host)"
    else:
        said = f"cannot listen at {host}, port {port}: {error.strerror or error}"
    return InvalidSetting(said)


async def _start_mysql(service: Service, port: int) -> MysqlServer:
    try:
        return await start_mysql(service)
    except OSError as error:
        raise refused(error, service.settings.host, port, "--mysql-port") from error


def _allow_files(settings: Settings) -> None:
    """Let the process open as many files as connections are allowed, where the system lets us."""
    wanted = 2 * settings.max_connections + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
