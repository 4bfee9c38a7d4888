"""A MySQL server over a database, and epochs that pass beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
import uvloop

import viewkeep
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.local import advance
from viewkeep.serve.mysql import MysqlServer, start_mysql
from viewkeep.serve.service import Service
from viewkeep.serve.settings import Settings

if TYPE_CHECKING:
    from viewkeep import Database


class Running:
    """A server in a thread of its own; `held` holds the epochs back."""

    def __init__(self, db: Database, settings: Settings):
        self.db, self.settings = db, settings
        self.held = threading.Event()
        self.server: MysqlServer
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()))
        self._stop = asyncio.Event()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        service = Service(self.db, self.settings)
        await service.start()
        self.server = await start_mysql(service)
        self._started.set()
        await self._stop.wait()
        await self.server.stop()
        await service.stop()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(20)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    @property
    def port(self) -> int:
        return self.server.port

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        given = {"host": "127.0.0.1", "port": self.port, "user": "root", "database": "viewkeep"}
        # Without TLS PyMySQL need not read the certificates of the machine for each connection.
        plain = {"ssl_disabled": True} if "ssl" not in options else {}
        return pymysql.connect(**{**given, "autocommit": True, **plain, **options})


@contextmanager
def passing_epochs(db: Database, held: threading.Event) -> Iterator[None]:
    """Epochs pass in the background, until the end."""
    epochs = Epochs(db.store)
    lease = epochs.acquire()
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            if held.is_set() or advance(db.store, lease.term) is None:
                done.wait(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        epochs.release(lease)


Serve = Callable[..., Running]


@pytest.fixture
def serve(db: Database) -> Iterator[Serve]:
    """Start servers over the database with some settings; all end with the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> Running:
            running = Running(db, Settings(http_port=None, **{"mysql_port": 0, **options}))
            running.start()
            stack.callback(running.stop)
            return running

        yield start


@pytest.fixture
def running(db: Database, serve: Serve) -> Iterator[Running]:
    """A server with epochs that pass."""
    server = serve()
    with passing_epochs(db, server.held):
        yield server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests of a file, with epochs that pass."""
    folder: Path = tmp_path_factory.mktemp("site")
    with viewkeep.open(folder / "site.vk", durability="relaxed") as db:
        server = Running(db, Settings(http_port=None, mysql_port=0))
        server.start()
        try:
            with passing_epochs(db, server.held):
                yield server
        finally:
            server.stop()


@pytest.fixture
def client(site: Running) -> Iterator[pymysql.Connection[Any]]:
    """A connection of PyMySQL to the server of the file."""
    with site.connect() as connection:
        yield connection
