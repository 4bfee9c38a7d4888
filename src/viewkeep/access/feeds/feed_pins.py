"""One pin for all feeds of a process: it stands at or before the epoch that each has got to.

Law: while a feed is asked at least every `seconds`, all versions after the epoch that it has got to
are kept; and so for `seconds` after it was last asked, so that it can be resumed. A feed that is
slower loses its place and hears EpochGone; it never holds back the horizon for good.
"""

from __future__ import annotations

import threading
import time
from itertools import count

from viewkeep.engine.epochs import Epochs, Pin
from viewkeep.errors import EpochGone

STEP_SECONDS = 1.0  # a pin is a durable write, so it follows the feeds in steps


class FeedPins:
    """The pins that the feeds of one database share: two or three, whatever the number of feeds."""

    def __init__(self, epochs: Epochs, seconds: float, step: float = STEP_SECONDS):
        self._epochs, self._seconds, self._step = epochs, seconds, step
        # A feed may have been asked for the last time just before its pin was to be renewed.
        self._renewal = seconds / 3
        self._ttl = seconds + self._renewal
        self._pins: list[Pin] = []  # ascending
        self._places: dict[int, tuple[int, float]] = {}  # feed -> epoch, when it was asked last
        self._looked = self._renewed = 0.0
        self._ids = count(1)
        self._lock = threading.Lock()

    def new_id(self) -> int:
        """A number for a feed."""
        return next(self._ids)

    def keep(self, feed: int, epoch: int) -> None:
        """A feed has got to this epoch: keep what comes after it, and let go of what nobody needs.

        If there was no pin yet, the epochs kept start at the one published now.
        """
        now = time.monotonic()
        with self._lock:
            self._places[feed] = (epoch, now)
            is_due = now - self._renewed > self._renewal
            if self._pins and now - self._looked < self._step and not is_due:
                return
            self._looked = now
            self._let_go(now)
            if is_due:
                self._pins = [pin for old in self._pins if (pin := self._renew(old)) is not None]
                self._renewed = now
            slowest = min(at for at, _ in self._places.values())
            if not self._pins or (len(self._pins) == 1 and self._pins[0].epoch < slowest):
                self._pins.append(self._epochs.pin(self._ttl))
            while len(self._pins) > 1 and self._pins[1].epoch <= slowest:
                self._epochs.unpin(self._pins.pop(0))

    def resume(self, feed: int, epoch: int) -> None:
        """A feed goes on from an epoch that another process may have kept so far: keep it too.

        If nobody keeps it, the feed can read what is still there, and hears EpochGone otherwise.
        """
        with self._lock:
            self._places[feed] = (epoch, time.monotonic())
            if self._pins and self._pins[0].epoch <= epoch:
                return
            held = [pin for pin in self._epochs.pins() if pin.epoch <= epoch]
            if held:
                latest = max(held, key=lambda pin: pin.epoch)
                shared = self._epochs.share_pin(latest, self._ttl)
                if shared is not None:
                    self._pins.insert(0, shared)

    def _let_go(self, now: float) -> None:
        """Forget feeds that were not asked for so long that they have lost their place."""
        for idle in [f for f, (_, at) in self._places.items() if now - at > self._seconds]:
            del self._places[idle]

    def _renew(self, pin: Pin) -> Pin | None:
        try:
            return self._epochs.renew_pin(pin, self._ttl)
        except EpochGone:
            return None
