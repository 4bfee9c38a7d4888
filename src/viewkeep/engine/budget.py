"""What a query may use: seconds and bytes, checked while it works.

Law: work under a budget asks before it takes memory, and looks at the clock between batches. So it
ends with an error one batch after its deadline, or after nobody wants its answer any more, at the
latest, and never holds much more than its bytes. A query that outgrows `SMALL` waits its turn among
the large ones of its server.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

from viewkeep import interrupts
from viewkeep.errors import Overloaded, QueryCancelled, QueryTimeout, QueryTooLarge

T = TypeVar("T")

MIB = 1 << 20
SMALL = 16 * MIB  # bytes that a query may hold without waiting for its turn
SOON = 1.0  # seconds that any number of queries may wait for their turn
_NARROW = "Narrow what is read by its key, add a LIMIT, or create a view that has less"


class Cancel:
    """Whether a query's answer is still wanted. Any thread may set it, and no more than once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._calls: list[Callable[[], None]] = []

    def set(self) -> None:
        """Nobody wants the answer any more: end what the query waits for."""
        with self._lock:
            self._is_set = True
            calls = list(self._calls)
        for call in calls:
            call()

    def check(self) -> None:
        """QueryCancelled if nobody wants the answer any more."""
        if self._is_set:
            raise QueryCancelled("whoever asked for this query has gone; it was ended")

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Wait for something inside; `call` ends that wait, and what ends it checks."""
        with self._lock:
            self._calls.append(call)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._calls.remove(call)


class Turns:
    """The bytes that all large queries of a server may hold, given out in order of arrival.

    Whoever waits holds a thread, so at most `places` wait for longer than `SOON` seconds.
    """

    def __init__(self, total: int, places: int = 1_000):
        self.total = total
        self._free, self._places = total, places
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def take(self, size: int, deadline: float | None, cancel: Cancel | None = None) -> None:
        """Wait until this many bytes are free; Overloaded at the deadline."""
        cancel = cancel or Cancel()
        with cancel.calling(self._wake):
            self._take(size, deadline, cancel)

    def _take(self, size: int, deadline: float | None, cancel: Cancel) -> None:
        size, ticket, soon = min(size, self.total), object(), time.monotonic() + SOON
        has_place = False
        with self._changed:
            self._waiting.append(ticket)
            try:
                while True:
                    cancel.check()
                    now = time.monotonic()
                    if not has_place and now >= soon and self._places > 0:
                        self._places, has_place = self._places - 1, True
                    until = deadline if has_place else min(soon, deadline or soon)
                    if until is not None and now >= until:
                        raise Overloaded(
                            f"other large queries hold the {_mib(self.total)} that queries may "
                            f"hold together (max_memory), and {len(self._waiting)} wait for them; "
                            "try again"
                        )
                    if self._waiting[0] is ticket and self._free >= size:
                        break
                    self._changed.wait(None if until is None else until - now)
                self._free -= size
            finally:
                self._places += has_place
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._free += min(size, self.total)
            self._changed.notify_all()


class Budget:
    """The seconds and bytes of one query, and how many rows and bytes its answer may have.

    Without a limit for them, there is no deadline, and a query may hold half of the machine's
    memory. `turns` is what all queries of a server share. A budget belongs to one thread; `cancel`
    is for others, to end its work.
    """

    def __init__(
        self,
        seconds: float | None = None,
        memory: int | None = None,
        *,
        rows: int | None = None,
        answer: int | None = None,
        turns: Turns | None = None,
        cancel: Cancel | None = None,
    ):
        self.seconds, self.rows = seconds, rows
        self.cancel = Cancel() if cancel is None else cancel
        self.memory = _half_of_machine() if memory is None else memory
        self.answer = self.memory if answer is None else min(answer, self.memory)
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self._turns, self._has_turn, self._held = turns, False, 0

    @property
    def left(self) -> float | None:
        """Seconds until the deadline, None if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """QueryTimeout if the time is over, QueryCancelled if nobody wants the answer any more."""
        self.cancel.check()
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise self.late()

    def late(self) -> QueryTimeout:
        """The error of a query that has used up its seconds."""
        return QueryTimeout(
            f"the query took longer than {self.seconds:g} s, which is its limit (max_seconds), and "
            f"was ended. {_NARROW}"
        )

    def too_large(self, what: str, needed: int | None = None) -> QueryTooLarge:
        """The error of a query that needs more bytes than it has."""
        more = "" if needed is None else f" {_mib(needed)},"
        return QueryTooLarge(
            f"{what} needs{more} more than the {_mib(self.memory)} that a query may hold "
            "(max_query_memory)",
            hint=_NARROW,
        )

    def hold(self, size: int, what: str) -> None:
        """Take bytes before they are used; QueryTooLarge if there are not as many."""
        self.check()
        self._held += size
        if self._held > self.memory:
            raise self.too_large(what, self._held)
        if self._held > SMALL:
            self.take_turn()

    def release(self, size: int) -> None:
        """Give back what `hold` took."""
        self._held -= size

    def need(self, size: int, what: str) -> None:
        """Ask for bytes that are used for a moment only."""
        self.hold(size, what)
        self.release(size)

    def check_answer(self, size: int) -> None:
        """QueryTooLarge if an answer has more bytes than it may."""
        if size > self.answer:
            raise QueryTooLarge(
                f"the answer has {_mib(size)}, the limit is {_mib(self.answer)} (max_answer)",
                hint="Add a LIMIT, or select fewer columns",
            )

    def take_turn(self) -> None:
        """Become one of the large queries of the server, when there is room."""
        if self._turns is not None and not self._has_turn:
            self._turns.take(self.memory, self.deadline, self.cancel)
            self._has_turn = True

    def part(self, memory: int, turns: Turns) -> Budget:
        """A budget with the same deadline for work that has its own memory."""
        part = Budget(
            self.seconds,
            memory,
            rows=self.rows,
            answer=self.answer,
            turns=turns,
            cancel=self.cancel,
        )
        part.deadline = self.deadline
        return part

    @contextmanager
    def working(self) -> Iterator[Budget]:
        """Work whose memory is free at its end, however it ends."""
        held = self._held
        try:
            yield self
        finally:
            self._held = held

    @contextmanager
    def applied(self) -> Iterator[Budget]:
        """Make this the budget of all that the thread does inside."""
        token = _CURRENT.set(self)
        try:
            with interrupts.looking(self.check):
                yield self
        finally:
            _CURRENT.reset(token)
            self._held = 0
            if self._turns is not None and self._has_turn:
                self._turns.give(self.memory)
                self._has_turn = False


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current() -> Budget | None:
    """The budget that applies here, if one does."""
    return _CURRENT.get()


@contextmanager
def of_query() -> Iterator[Budget]:
    """The budget of a query: what is left of the one that applies here, else a new one."""
    around = _CURRENT.get()
    if around is None:
        with Budget().applied() as budget:
            yield budget
    else:
        with around.working():
            yield around


def limited(seconds: float | None, memory: int | None) -> AbstractContextManager[object]:
    """A budget of these limits for what is done inside; without any, the one that applies here."""
    if seconds is None and memory is None:
        return nullcontext()
    return Budget(seconds, memory).applied()


def each_limited(results: Iterator[T], seconds: float | None, memory: int | None) -> Iterator[T]:
    """Work that is done as it is asked for, each piece within these limits."""
    while True:
        with limited(seconds, memory):
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def hold(size: int, what: str) -> None:
    """Take bytes from the budget that applies here, if one does."""
    around = _CURRENT.get()
    if around is not None:
        around.hold(size, what)


def check() -> None:
    """`Budget.check` of the budget that applies here, if one does."""
    around = _CURRENT.get()
    if around is not None:
        around.check()


def _half_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB" if size >= 10 * MIB else f"{size:,} bytes"
