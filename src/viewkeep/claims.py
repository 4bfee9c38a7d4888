"""Claims: whether a write may still begin, and how long it may wait for its turn.

Law: a commit begins only while somebody waits for its outcome. Whoever stops waiting gives the
claim up, and from then on no commit begins under it. A commit that has begun holds the locks of all
that it writes, so a newer write of the same rows always comes after it.

A server runs each request under a claim. Code without one waits as long as the store does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from viewkeep.errors import Timeout

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class LongWaits:
    """Among the claims of some threads, a bound on those that wait long for a lock."""

    after: float  # seconds; whoever waits longer needs one of the places
    places: threading.Semaphore


class Claim:
    """One request's right to write, and to wait for locks, for some seconds."""

    def __init__(self, seconds: float, long_waits: LongWaits | None = None):
        self._ends, self._long_waits = time.monotonic() + seconds, long_waits
        self._lock = threading.Lock()
        self._given_up = False
        self._begun = False

    @property
    def begun(self) -> bool:
        """Whether a commit has begun under this claim."""
        return self._begun

    @property
    def left(self) -> float:
        """Seconds until nobody waits any more."""
        return 0.0 if self._given_up else max(0.0, self._ends - time.monotonic())

    def begin(self) -> None:
        """A commit begins; Timeout if nobody waits for it any more."""
        with self._lock:
            if self._given_up:
                raise Timeout("the request was given up before the write began; it did not happen")
            self._begun = True

    def give_up(self) -> bool:
        """Nobody waits any more. True: nothing was written, and nothing will be."""
        with self._lock:
            self._given_up = True
            return not self._begun

    def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work under this claim, in the thread that calls."""
        before = _current.set(self)
        try:
            return work(*args, **kwargs)
        finally:
            _current.reset(before)


_current: ContextVar[Claim | None] = ContextVar("viewkeep_claim", default=None)


def never_wait() -> None:
    """From now on nothing in this context waits for a lock: for event loops."""
    _current.set(Claim(0.0))


@contextmanager
def aside() -> Iterator[None]:
    """Commits in here are not the request's own, and do not count as its beginning."""
    claim = _current.get()
    before = _current.set(None if claim is None else Claim(claim.left))
    try:
        yield
    finally:
        _current.reset(before)


def begin() -> None:
    """A commit begins, with all its locks held; Timeout if its claim was given up."""
    claim = _current.get()
    if claim is not None:
        claim.begin()


class Waiting:
    """One wait for a lock, of at most some seconds and within the claim; a context manager."""

    def __init__(self, seconds: float):
        self._seconds, self._claim = seconds, _current.get()
        self._began = time.monotonic()
        self._place: threading.Semaphore | None = None

    @property
    def waited(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds that may still be waited."""
        waited, claim = self.waited, self._claim
        if claim is None:
            return self._seconds - waited
        left = min(self._seconds - waited, claim.left)
        long_waits = claim._long_waits
        if long_waits is None or self._place is not None:
            return left
        if waited < long_waits.after:
            return min(left, long_waits.after - waited)
        if left > 0 and long_waits.places.acquire(blocking=False):
            self._place = long_waits.places
            return left
        return 0.0

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *error: object) -> None:
        if self._place is not None:
            self._place.release()
