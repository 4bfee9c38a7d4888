"""What a query may use: seconds and bytes, checked while it works.

Law: work under a budget asks before it takes memory, and looks at the clock between batches. So it
ends with an error one batch after its deadline at the latest, and never holds much more than its
bytes. A query that outgrows `SMALL` waits its turn among the large ones of its server.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from viewkeep.errors import Overloaded, QueryTimeout, QueryTooLarge

MIB = 1 << 20
SMALL = 16 * MIB  # bytes that a query may hold without waiting for its turn
_NARROW = "Narrow what is read by its key, add a LIMIT, or create a view that has less"


class Turns:
    """The bytes that all large queries of a server may hold, given out in order of arrival."""

    def __init__(self, total: int):
        self.total = total
        self._free = total
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def take(self, size: int, deadline: float | None) -> None:
        """Wait until this many bytes are free; Overloaded at the deadline."""
        size, ticket = min(size, self.total), object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while self._waiting[0] is not ticket or self._free < size:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise Overloaded(
                            f"other large queries held the {_mib(self.total)} that queries may "
                            "hold together (max_memory) until the time of this one was over; "
                            "try again"
                        )
                    self._changed.wait(left)
                self._free -= size
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._free += min(size, self.total)
            self._changed.notify_all()


class Budget:
    """The seconds and bytes of one query, and how many rows and bytes its answer may have.

    Without a limit for them, there is no deadline, and a query may hold half of the machine's
    memory. `turns` is what all queries of a server share. A budget belongs to one thread.
    """

    def __init__(
        self,
        seconds: float | None = None,
        memory: int | None = None,
        *,
        rows: int | None = None,
        answer: int | None = None,
        turns: Turns | None = None,
    ):
        self.seconds, self.rows = seconds, rows
        self.memory = _half_of_machine() if memory is None else memory
        self.answer = self.memory if answer is None else min(answer, self.memory)
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self._turns, self._has_turn, self._held = turns, False, 0

    @property
    def left(self) -> float | None:
        """Seconds until the deadline, None if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """QueryTimeout if the time is over."""
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
            self._turns.take(self.memory, self.deadline)
            self._has_turn = True

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
            yield self
        finally:
            _CURRENT.reset(token)
            self._held = 0
            if self._turns is not None and self._has_turn:
                self._turns.give(self.memory)
                self._has_turn = False


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


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


def hold(size: int, what: str) -> None:
    """Take bytes from the budget that applies here, if one does."""
    around = _CURRENT.get()
    if around is not None:
        around.hold(size, what)


def _half_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB" if size >= 10 * MIB else f"{size:,} bytes"
