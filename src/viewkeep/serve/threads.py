"""Threads for blocking work: a bounded number of them, and a bounded queue before them.

Law: whoever stops waiting for an outcome knows what it is. Before a write has begun it is given up
for ever: it did not happen. After that the answer waits a little longer, then says that the outcome
is unknown.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from viewkeep.claims import Claim, LongWaits
from viewkeep.errors import Locked, OutcomeUnknown, Overloaded, Timeout

GRACE_SECONDS = 5.0  # that an answer waits for a commit which began before the time was over
_LAST_WORD = 0.2  # seconds for a thread whose time is over to say why

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Some threads, what waits for them, and how long one piece of work may take."""

    def __init__(self, name: str, number: int, waiting: int, long_waits: LongWaits | None = None):
        self._number, self._waiting, self._long_waits = number, waiting, long_waits
        self._pool = ThreadPoolExecutor(number, thread_name_prefix=f"viewkeep-{name}")
        self._claims: set[Claim] = set()

    async def run(
        self, seconds: float, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run work in a thread. Overloaded if too much waits; Timeout if it took too long.

        Work that runs into the limit is not stopped, but nothing that it writes is committed.
        """
        if len(self._claims) >= self._number + self._waiting:
            raise Overloaded(f"{self._waiting:,} requests wait for a thread; try again")
        claim = Claim(seconds, self._long_waits)
        task = functools.partial(claim.run, work, *args, **kwargs)
        call = asyncio.get_running_loop().run_in_executor(self._pool, task)
        self._claims.add(claim)
        call.add_done_callback(lambda done: self._ended(claim, done))
        try:
            async with asyncio.timeout(seconds + _LAST_WORD):
                return await asyncio.shield(call)
        except TimeoutError as error:
            if claim.give_up():
                call.cancel()  # if it waits for a thread, it need not run at all
                raise Timeout(
                    f"the request took longer than {seconds:g} s, which is the limit; "
                    "nothing was written"
                ) from error
            return await self._late(call, seconds)
        except (Locked, Timeout) as error:
            if claim.begun:
                raise OutcomeUnknown(f"a part of the statement was done, then: {error}") from error
            raise
        except asyncio.CancelledError:
            claim.give_up()
            call.cancel()
            raise

    async def _late(self, call: asyncio.Future[T], seconds: float) -> T:
        """The outcome of a write that began in time and has not ended."""
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                return await asyncio.shield(call)
        except (TimeoutError, Locked, Timeout) as error:
            raise OutcomeUnknown(
                f"after {seconds:g} s the write had begun and not ended; it may have been done or "
                "not. Read the rows before you write them again"
            ) from error

    def _ended(self, claim: Claim, call: asyncio.Future[T]) -> None:
        self._claims.discard(claim)
        if not call.cancelled():
            call.exception()  # nobody may be left to look at it

    def close(self) -> None:
        """Let running work end; nothing that waits for a lock waits on."""
        for claim in self._claims:
            claim.give_up()
        self._pool.shutdown(wait=True, cancel_futures=True)
