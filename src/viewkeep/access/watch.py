"""Waiting for publications: of any number of waiting threads one looks, the others are woken.

Law: `wait` returns soon after an epoch later than the given one is published, by whatever process;
a thousand waiters look at the store no more often than one.
"""

from __future__ import annotations

import threading
import time

from viewkeep.engine.epochs import Epochs

_TURN_SECONDS = 0.1  # after which a waiting thread looks for itself, come what may


class PublicationWatch:
    """The waiters of one database in this process."""

    def __init__(self, epochs: Epochs):
        self._epochs = epochs
        self._published = threading.Condition()
        self._looking = False

    def wait(self, after: int, timeout: float) -> None:
        """Until an epoch later than `after` is published, or `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        while self._epoch() <= after and (left := deadline - time.monotonic()) > 0:
            with self._published:
                if self._looking:
                    self._published.wait(min(left, _TURN_SECONDS))
                    continue
                self._looking = True
            try:
                self._look(after, deadline)
            finally:
                with self._published:
                    self._looking = False
                    self._published.notify_all()

    def _look(self, after: int, deadline: float) -> None:
        seen = self._epoch()
        while seen <= after and (left := deadline - time.monotonic()) > 0:
            now = self._epochs.wait(seen, left).epoch
            if now != seen:
                seen = now
                with self._published:
                    self._published.notify_all()

    def _epoch(self) -> int:
        return self._epochs.read().published.epoch
