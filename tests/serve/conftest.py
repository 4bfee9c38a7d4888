"""A served database for tests: real sockets on loopback, free ports, epochs without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance
from viewkeep.serve.server import Server
from viewkeep.serve.settings import Settings

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]
    Serve = Callable[..., Server]

SITE = """
    CREATE TABLE votes (id INT PRIMARY KEY, story INT);
    CREATE TABLE sales (region STRING, year INT, item INT, amount BIGINT,
        PRIMARY KEY (region, year, item));
    CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
    CREATE VIEW total AS SELECT COUNT(*) AS votes FROM votes;
    CREATE VIEW yearly AS SELECT region, year, COUNT(*) AS sales, SUM(amount) AS amount
        FROM sales GROUP BY region, year;
"""


@pytest.fixture
def site(db: Database, catch_up: CatchUp) -> Database:
    """Votes and sales with their views, loaded and published."""
    db.sql(SITE)
    db.put("votes", [{"id": number, "story": number % 3} for number in range(9)])
    sales = [
        {"region": region, "year": year, "item": item, "amount": 10 * item}
        for region in ("eu", "us")
        for year in (2023, 2024)
        for item in (1, 2)
    ]
    db.put("sales", sales)
    catch_up()
    return db


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a database over HTTP on a free port of loopback; stopped at the end of the test."""
    with ExitStack() as stack:

        def start(db: Database, **settings: Any) -> Server:
            chosen = {"http_port": 0, "mysql_port": None, **settings}
            return stack.enter_context(Server(db, Settings(**chosen)))

        yield start


@pytest.fixture
def server(site: Database, serve: Serve) -> Server:
    """The site, served."""
    return serve(site)


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """A client of the server."""
    with httpx.Client(base_url=server.http_url, timeout=30) as made:
        yield made


class Pipeline:
    """Epochs that pass in the background, a few operations each."""

    def __init__(self, db: Database, operations: int = 3):
        self._db, self._limits = db, Limits(operations=operations)
        self._lease = Epochs(db.store).acquire()
        self._done, self._held = threading.Event(), threading.Event()
        self._running = threading.Lock()
        self._thread = threading.Thread(target=self._run)

    def hold(self) -> None:
        """From now on no epoch is run, until `go_on`."""
        self._held.set()
        with self._running:
            pass

    def go_on(self) -> None:
        """Let epochs pass again."""
        self._held.clear()

    def _run(self) -> None:
        while not self._done.is_set():
            with self._running:
                held = self._held.is_set()
                ran = None if held else advance(self._db.store, self._lease.term, self._limits)
            if ran is None:
                self._done.wait(0.002)

    def __enter__(self) -> Pipeline:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


@pytest.fixture
def epochs(site: Database) -> Iterator[Pipeline]:
    """A pipeline of the site, without Spark."""
    with Pipeline(site) as running:
        yield running
