"""What all protocols share: the database, the limits, the threads for slow work, the hub.

Law: the event loop never waits for the store, except for reads by key, which take microseconds;
all else runs in threads, of which there is a bounded number.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from viewkeep.database import Database
from viewkeep.engine.epochs import Epochs
from viewkeep.errors import Timeout
from viewkeep.plan.nodes import Source, View
from viewkeep.serve.hub import Hub
from viewkeep.serve.limits import Overloaded
from viewkeep.serve.metrics import Metrics
from viewkeep.serve.settings import Settings

THREADS = 16
WAITING = 2_000  # pieces of work that may wait for a thread

P = ParamSpec("P")
T = TypeVar("T")


class Service:
    """One database as it is served. Start and stop it inside the event loop."""

    def __init__(self, db: Database, settings: Settings):
        self.db, self.settings = db, settings
        self.hub = Hub(Epochs(db.store))
        self.metrics = Metrics(db)
        self._following: asyncio.Task[None] | None = None
        self._given = 0  # pieces of work that run or wait for a thread
        self.feeds = 0  # that clients follow
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="viewkeep-serve")

    def relation(self, name: str) -> Source | View:
        """The table or view of this name; UnknownName suggests near ones."""
        current = self.db.catalog.current()
        found = current.tables.get(name) or current.views.get(name)
        if found is None:
            self.db.schema(name)  # raises, unless it was created just now
            return self.relation(name)
        return found

    async def start(self) -> None:
        """Begin to watch the store."""
        self.hub.start()
        self._following = asyncio.create_task(self.metrics.follow(self.hub))

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in a thread; Timeout after the seconds that a request may take.

        Work that runs into the limit is not stopped, only not waited for: reads that can be long
        are bounded by rows themselves. Overloaded if too much waits already.
        """
        if self._given >= THREADS + WAITING:
            raise Overloaded(f"{WAITING:,} requests wait for a thread; try again")
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, functools.partial(work, *args, **kwargs))
        self._given += 1
        call.add_done_callback(self._taken)
        try:
            async with asyncio.timeout(self.settings.max_seconds):
                return await call
        except TimeoutError as error:
            raise Timeout(
                f"the request took longer than {self.settings.max_seconds:g} s, which is the limit"
            ) from error

    @contextmanager
    def following(self) -> Iterator[None]:
        """A client follows a feed."""
        self.feeds += 1
        self.metrics.feeds.inc()
        try:
            yield
        finally:
            self.feeds -= 1
            self.metrics.feeds.dec()

    def _taken(self, call: asyncio.Future[T]) -> None:
        self._given -= 1

    async def stop(self) -> None:
        """Let running work end; the database is the caller's to close."""
        await self.hub.stop()
        if self._following is not None:
            await self._following
        self._threads.shutdown(wait=True, cancel_futures=True)
