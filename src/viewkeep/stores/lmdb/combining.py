"""Calls of several threads that one of them runs together: the queue, and whose turn it is to run.

Law: every call is run at most once, and `run` returns or raises only when the call has its outcome
or was withdrawn before anybody began it. Nobody waits longer for its turn than its claim allows.

The first thread leads: it takes the lock and runs the calls that wait, in their order, until its
own is done. Threads that come meanwhile wait; then one of them leads.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from viewkeep.claims import Waiting
from viewkeep.stores.lmdb.forks import Inherited
from viewkeep.stores.lmdb.locks import WriteLock

T = TypeVar("T")
A = TypeVar("A")

_PIECE = 0.1  # seconds of one wait, since a claim can be given up
_MOST_ROWS = 1_000  # of calls that are run together, unless one call has more


@dataclass(eq=False)
class QueuedCall(Generic[A, T]):
    """What one thread wants done, and its outcome."""

    work: Callable[[A], T]
    rows: int
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    is_done: bool = False
    result: T | None = None
    error: Exception | None = None

    def run(self, argument: A) -> None:
        """Do the work as if its own thread did."""
        self.result = self.context.run(self.work, argument)

    def outcome(self) -> T:
        """What the work returned or raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class Combining(Generic[A, T]):
    """The calls of this process that wait for one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: list[QueuedCall[A, T]] = []
        self._is_led = False

    def run(
        self,
        lock: WriteLock | Inherited,
        rows: int,
        work: Callable[[A], T],
        together: Callable[[list[QueuedCall[A, T]]], None],
    ) -> T:
        """The outcome of this work, which `together` runs with that of others under the lock.

        `together` gives each call a result or an error, and raises only what must end the thread.
        """
        seconds = lock.seconds  # raises in a child of the process that opened it
        call = QueuedCall(work, rows)
        with self._lock:
            self._waiting.append(call)
            try:
                if self._is_led:
                    self._follow(call, lock, seconds)
            except BaseException:
                self._withdraw(call)
                raise
            if call.is_done:
                return call.outcome()
            self._is_led = True
        try:
            with lock:
                while not self._run_some(together, call):
                    continue
        finally:
            with self._lock:
                self._is_led = False
                self._withdraw(call)
                if self._waiting:
                    self._changed.notify_all()
        return call.outcome()

    def _follow(self, call: QueuedCall[A, T], lock: WriteLock | Inherited, seconds: float) -> None:
        """Wait until the call is done or nobody leads; Locked if that takes too long."""
        with Waiting(seconds) as waiting:
            while self._is_led and not call.is_done:
                left = waiting.left
                if left <= 0 and call in self._waiting:
                    raise lock.refusal(waiting.waited)
                # A call that the leader has taken is being committed: only its outcome is awaited.
                self._changed.wait(min(left, _PIECE) if left > 0 else _PIECE)

    def _withdraw(self, call: QueuedCall[A, T]) -> None:
        if call in self._waiting:
            self._waiting.remove(call)

    def _run_some(
        self, together: Callable[[list[QueuedCall[A, T]]], None], own: QueuedCall[A, T]
    ) -> bool:
        """Run the calls that have waited longest; whether the leader's own was among them."""
        with self._lock:
            calls = self._take()
        try:
            together(calls)
        finally:
            with self._lock:
                for call in calls:
                    call.is_done = True
                if calls != [own]:  # then others wait for them
                    self._changed.notify_all()
        return own in calls

    def _take(self) -> list[QueuedCall[A, T]]:
        """The calls to run next: the first, and those after it that are small enough."""
        count, rows = 1, self._waiting[0].rows
        for call in self._waiting[1:]:
            rows += call.rows
            if rows > _MOST_ROWS:
                break
            count += 1
        calls, self._waiting = self._waiting[:count], self._waiting[count:]
        return calls
