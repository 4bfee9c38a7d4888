"""Looks at the database for monitors: one at a time, shared by all who ask meanwhile.

Law: whoever asks has an answer or `NoAnswer` within a bound, whatever the store does and however
many ask; no look takes a thread that reads or writes need.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from viewkeep.claims import Claim
from viewkeep.errors import ViewkeepError

LOOK_SECONDS = 2.0  # that an asker waits
_LOCK_SECONDS = 1.0  # that a look waits for a lock: less, so that its error names the holder

T = TypeVar("T")


class NoAnswer(ViewkeepError):
    """The store has not answered in time."""


class Lookout(Generic[T]):
    """One kind of look, with a thread of its own. Use it inside one event loop."""

    def __init__(self, look: Callable[[], T]):
        self._look = look
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="viewkeep-lookout")
        self._running: asyncio.Future[T] | None = None

    async def look(self) -> T:
        """What there is to see now; NoAnswer if the store takes too long."""
        if self._running is None or self._running.done():
            task = functools.partial(Claim(_LOCK_SECONDS).run, self._look)
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, task)
            self._running.add_done_callback(_seen)
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await asyncio.shield(self._running)
        except TimeoutError as error:
            raise NoAnswer(f"the store has not answered within {LOOK_SECONDS:g} s") from error

    def close(self) -> None:
        """End the thread; a look that runs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _seen(look: asyncio.Future[T]) -> None:
    """Nobody may be left to look at its error."""
    if not look.cancelled():
        look.exception()
