"""What all protocols share: the database, the limits, the threads for slow work, the hub.

Law: the event loop never waits for the store, except for reads by key, which take microseconds (and
go to threads while they do not), and never for a lock. All else runs in threads: reads, writes and
the looks of monitors each in their own, so that none holds up the others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from viewkeep import claims
from viewkeep.access.sessions import Session
from viewkeep.claims import LongWaits
from viewkeep.database import Database
from viewkeep.engine.budget import Budget, Cancel, Turns
from viewkeep.engine.epochs import Epochs
from viewkeep.errors import Locked
from viewkeep.plan.nodes import Source, View
from viewkeep.serve.credentials import Credentials
from viewkeep.serve.guesses import Guesses
from viewkeep.serve.hub import Hub
from viewkeep.serve.lookout import Lookout
from viewkeep.serve.metrics import Figures, Metrics
from viewkeep.serve.settings import Settings
from viewkeep.serve.threads import Threads
from viewkeep.status import Status

THREADS, WRITERS = 16, 4  # for reads, and for writes, of which a node takes one at a time
PARSERS = 2  # for reading long texts, which takes the interpreter
WAITING = 2_000  # pieces of work that may wait for a thread, of reads and of writes
# Reads of base tables as they are now, and reads that pin an epoch, wait for writers.
LONG_WAIT_SECONDS = 1.0  # after which at most half of the threads for reads go on waiting
SLOW_SECONDS = 0.05  # a read by key that takes longer in the event loop sends others to threads
_CAREFUL_SECONDS = 5.0  # for so long

P = ParamSpec("P")
T = TypeVar("T")


_client: ContextVar[Cancel | None] = ContextVar("viewkeep_client", default=None)


@contextmanager
def serving(client: Cancel | None) -> Iterator[None]:
    """Serve a client inside, who sets this when it goes: then its reads end, not its writes."""
    before = _client.set(client)
    try:
        yield
    finally:
        _client.reset(before)


class Service:
    """One database as it is served. Start and stop it inside the event loop."""

    def __init__(self, db: Database, settings: Settings):
        self.db, self.settings = db, settings
        self.hub = Hub(Epochs(db.store))
        self.metrics = Metrics()
        self._following: asyncio.Task[None] | None = None
        self._users: asyncio.Task[None] | None = None
        self.credentials = Credentials(settings, Guesses(settings.guess_seconds), self.parse)
        self.feeds = 0  # that clients follow
        long_waits = LongWaits(LONG_WAIT_SECONDS, threading.Semaphore(THREADS // 2))
        self._readers = Threads("read", THREADS, WAITING, long_waits)
        self._writers = Threads("write", WRITERS, WAITING)
        self._parsers = Threads("parse", PARSERS, WAITING)
        self._turns = Turns(settings.max_memory, THREADS // 2)
        self.status: Lookout[Status] = Lookout(lambda: db.status())
        self.figures: Lookout[Figures] = Lookout(lambda: Figures.of(db))
        self._careful_until = 0.0

    def relation(self, name: str) -> Source | View:
        """The table or view of this name; UnknownName suggests near ones."""
        found = self.db.catalog.resolve(name.lower())
        if found is None:
            self.db.schema(name)  # raises, unless it was created just now
            return self.relation(name)
        return found

    async def start(self) -> None:
        """Begin to watch the store, from the task that all others of the server come from."""
        claims.never_wait()
        self.hub.start()
        self._following = asyncio.create_task(self.metrics.follow(self.hub))
        self._users = asyncio.create_task(self.credentials.follow())

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work that reads in a thread; Timeout after the seconds that a request may take.

        Work that runs into the limit, or whose client has gone, ends at its next look at its
        budget. Overloaded if too much waits already.
        """
        bounded = self._bounded(work, _client.get())
        return await self._readers.run(self.settings.max_seconds, bounded, *args, **kwargs)

    async def write(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work that may write, in a thread for writes.

        Timeout, Locked and Overloaded: nothing was written, and nothing will be. OutcomeUnknown:
        the write had begun, and nobody can say how it ended.
        """
        bounded = self._bounded(work, None)
        return await self._writers.run(self.settings.max_seconds, bounded, *args, **kwargs)

    async def parse(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work that reads a long text, and nothing of the store, in a thread of its own."""
        return await self._parsers.run(self.settings.max_seconds, work, *args, **kwargs)

    def _bounded(self, work: Callable[P, T], client: Cancel | None) -> Callable[P, T]:
        """Work within the budget of a request, whose time begins now."""
        settings = self.settings
        budget = Budget(
            settings.max_seconds,
            settings.max_query_memory,
            rows=settings.max_rows,
            answer=settings.max_answer,
            turns=self._turns,
            cancel=client,
        )

        def bounded(*args: P.args, **kwargs: P.kwargs) -> T:
            with budget.applied():
                budget.cancel.check()
                return work(*args, **kwargs)

        return bounded

    async def point(self, read: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read by key: in the event loop, or in a thread while the store is slow."""
        if self.is_slow:
            return await self.run(read, *args, **kwargs)
        with self.timed():
            return read(*args, **kwargs)

    @property
    def is_slow(self) -> bool:
        """Whether a read in the event loop took long, a short while ago."""
        return time.monotonic() < self._careful_until

    @contextmanager
    def timed(self) -> Iterator[None]:
        """A read in the event loop, which later ones are judged by."""
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            if ended - began > SLOW_SECONDS:
                self._careful_until = ended + _CAREFUL_SECONDS

    async def session(self, token: str | None) -> Session:
        """A session that goes on from a token, and never waits itself."""
        try:
            return self.db.session(token, timeout=0.0)
        except Locked:  # a token of writes that no epoch covers is compared with the logs' ends
            return await self.run(self.db.session, token, timeout=0.0)

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

    async def stop(self) -> None:
        """Let running work end; the database is the caller's to close."""
        await self.hub.stop()
        if self._following is not None:
            await self._following
        if self._users is not None:
            self._users.cancel()
            await asyncio.gather(self._users, return_exceptions=True)
        for part in (self._readers, self._writers, self._parsers, self.status, self.figures):
            part.close()
