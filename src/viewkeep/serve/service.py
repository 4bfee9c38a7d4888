"""What all protocols share: the database, the limits, the threads for slow work, the hub.

Law: the event loop never waits for the store, except for reads by key, which take microseconds;
all else runs in threads, of which there is a bounded number.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from viewkeep.database import Database
from viewkeep.engine.epochs import Epochs
from viewkeep.errors import Timeout
from viewkeep.serve.hub import Hub
from viewkeep.serve.settings import Settings

THREADS = 16

P = ParamSpec("P")
T = TypeVar("T")


class Service:
    """One database as it is served. Start and stop it inside the event loop."""

    def __init__(self, db: Database, settings: Settings):
        self.db, self.settings = db, settings
        self.hub = Hub(Epochs(db.store))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="viewkeep-serve")

    async def start(self) -> None:
        """Begin to watch the store."""
        self.hub.start()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in a thread; Timeout after the seconds that a request may take.

        Work that runs into the limit is not stopped, only not waited for: reads that can be long
        are bounded by rows themselves.
        """
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, functools.partial(work, *args, **kwargs))
        try:
            async with asyncio.timeout(self.settings.max_seconds):
                return await call
        except TimeoutError as error:
            raise Timeout(
                f"the request took longer than {self.settings.max_seconds:g} s, which is the limit"
            ) from error

    async def stop(self) -> None:
        """Let running work end; the database is the caller's to close."""
        await self.hub.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)
