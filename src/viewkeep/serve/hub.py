"""Publications for coroutines: one thread watches the store, any number of coroutines are woken.

Law: `wait(after)` returns soon after an epoch later than `after` is published, by whatever process,
and costs no thread of its own. When the hub ends, all who wait hear Stopping.
"""

from __future__ import annotations

import asyncio
import threading

from viewkeep.access.watch import PublicationWatch
from viewkeep.engine.epochs import Epochs, Published
from viewkeep.serve.limits import Stopping

_TURN_SECONDS = 0.5  # how long the thread may take to notice that it should end


class Hub:
    """The published epoch of one database, for one event loop. Start it inside the loop."""

    def __init__(self, epochs: Epochs):
        self._epochs, self._watch = epochs, PublicationWatch(epochs)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._published = epochs.read().published
        self._next = asyncio.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="viewkeep-hub", daemon=True)

    @property
    def published(self) -> Published:
        """The newest epoch that the thread has seen."""
        return self._published

    def start(self) -> None:
        """Begin to watch, for the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def wait(self, after: int, timeout: float | None = None) -> Published:
        """The newest epoch as soon as it is later than `after`; TimeoutError after `timeout`."""
        async with asyncio.timeout(timeout):
            while self._published.epoch <= after:
                self.check()
                await self._next.wait()
        return self._published

    def check(self) -> None:
        """Stopping if the hub has ended."""
        if self._ended.is_set():
            raise Stopping("the server is stopping; try again in a while, or elsewhere")

    def end(self) -> None:
        """Send away all who wait, now and from now on. Twice is harmless."""
        self._ended.set()
        self._next.set()

    async def stop(self) -> None:
        """End, and the thread too."""
        self.end()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _follow(self) -> None:
        seen = self._published.epoch
        while not self._ended.is_set():
            self._watch.wait(seen, _TURN_SECONDS)
            published = self._epochs.read().published
            if published.epoch > seen and self._loop is not None:
                seen = published.epoch
                self._loop.call_soon_threadsafe(self._tell, published)

    def _tell(self, published: Published) -> None:
        self._published = published
        if not self._ended.is_set():
            told, self._next = self._next, asyncio.Event()
            told.set()
