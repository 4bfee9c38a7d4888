"""Publications for coroutines: one thread watches the store, any number of coroutines are woken.

Law: `wait(after)` returns soon after an epoch later than `after` is published, by whatever process,
and costs no thread of its own. A store that fails ends no wait: the thread tries again, at growing
intervals, and `trouble` tells. When the hub ends, all who wait hear Stopping.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from viewkeep.access.watch import PublicationWatch
from viewkeep.engine.epochs import Epochs, Published
from viewkeep.errors import ViewkeepError
from viewkeep.serve.limits import Stopping

_TURN_SECONDS = 0.5  # how long the thread may take to notice that it should end
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 5.0  # seconds between two tries of a store that fails

log = logging.getLogger("viewkeep.serve")


class Hub:
    """The published epoch of one database, for one event loop. Start it inside the loop."""

    def __init__(self, epochs: Epochs):
        self._epochs, self._watch = epochs, PublicationWatch(epochs)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._published = epochs.read().published
        self._seen = self._published.epoch  # by the thread
        self.trouble = ""  # why the store cannot be watched at the moment
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
        pause = _LEAST_PAUSE
        while not self._ended.is_set():
            try:
                self._look()
            except Exception as error:  # whatever it is, those who wait need the next epoch
                self._note(error)
                self._ended.wait(pause)
                pause = min(pause * 2, _MOST_PAUSE)
            else:
                pause = _LEAST_PAUSE

    def _look(self) -> None:
        """Wait a while for an epoch that is later than the last one told, and tell of it."""
        self._watch.wait(self._seen, _TURN_SECONDS)
        published, self.trouble = self._epochs.read().published, ""
        if published.epoch > self._seen and self._loop is not None:
            self._seen = published.epoch
            self._loop.call_soon_threadsafe(self._tell, published)

    def _note(self, error: Exception) -> None:
        foreseen = isinstance(error, ViewkeepError)
        if not self.trouble:
            text = "cannot follow the epochs of the database, and will try again: %s"
            log.warning(text, error, exc_info=not foreseen)
        self.trouble = str(error) if foreseen else type(error).__name__

    def _tell(self, published: Published) -> None:
        self._published = published
        if not self._ended.is_set():
            told, self._next = self._next, asyncio.Event()
            told.set()
