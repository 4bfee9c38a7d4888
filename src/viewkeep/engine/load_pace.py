"""How many rows of new views the next epoch loads, so that those who write do not wait for it long.

Law, with the longest pause p that loading may make while operations come:

1. An epoch that brings operations and loads takes at most p, or twice its usual time if that is
   longer; and loading takes at most half of the time, the epochs in between load nothing.
2. An epoch that brings none loads no longer than nobody has written by then, and at most a second.
   So a write waits for it no longer than the one before it is old; if nobody writes, loading goes
   at full speed.
3. At least a few rows are loaded, so loading always ends.

The usual time is the median of the last epochs that brought operations and loaded nothing. At least
one in eight stays like that while views are loaded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from viewkeep.engine.epochs import Limits, Published
from viewkeep.engine.rows.delta import FEW

LOADING_SECONDS: Final = 1.0  # of an epoch that loads while nobody writes, at most
LOAD_PAUSE: Final = 0.1
_SHARE: Final = 0.5  # of the time
_LEAST: Final = 256  # rows that an epoch loads beside operations
_LEAST_CHUNK: Final = 64  # rows of a feed and part without operations
_KNOWN: Final = 8  # epochs whose median is the usual time, and of which one loads nothing
_GROWTH: Final = 4.0  # at most, from one epoch that loads to the next
# Beyond FEW rows the columns lane loads, which takes 20 ms for one row and 4 us for each further.
_COLUMNS_PAY: Final = 0.05


@dataclass
class LoadPace:
    """What the next epoch loads, learnt from the epochs before it.

    With a `pause` of LOADING_SECONDS or more, loading is not bounded by who writes.
    """

    pause: float = LOAD_PAUSE
    rows: float = _LEAST  # that the next epoch loads if it brings operations
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=_KNOWN))
    _loads: int = 0  # epochs that loaded beside operations since the last that loaded nothing
    _next: float = -math.inf  # when the next one may do so
    _wrote: float | None = None  # when an epoch with operations ended last

    @property
    def is_bounded(self) -> bool:
        return self.pause < LOADING_SECONDS

    def bounded(self, limits: Limits, now: float) -> Limits:
        """The limits of an epoch that begins now."""
        if not self.is_bounded:
            return limits
        if self._wrote is None:
            self._wrote = now  # nobody knows, so somebody may write
        quiet = max(0.0, now - self._wrote)
        part = int(limits.chunk * min(1.0, quiet / LOADING_SECONDS))
        waits = not self._usual or self._loads >= _KNOWN - 1 or now < self._next
        beside = 0 if waits else int(self.rows)
        return replace(limits, beside=beside, alone=max(_LEAST_CHUNK, part))

    def learn(self, published: Published, ended: float) -> None:
        """Take notice of an epoch that ended at a moment of the clock of `bounded`."""
        if published.wrote_at:
            wrote = ended - (published.at - published.wrote_at) / 1e9
            self._wrote = max(wrote, self._wrote or -math.inf)
        if not published.operations:
            return
        if not published.rows_loaded:
            self._usual.append(published.seconds)
            self._loads = 0
            return
        self._loads += 1
        if not self._usual:
            return
        usual = median(self._usual)
        taken = max(0.0, published.seconds - usual)
        self._next = ended - published.seconds + taken / _SHARE
        allowed = max(usual, self.pause - usual)
        most = math.inf if allowed >= _COLUMNS_PAY else FEW
        growth = min(_GROWTH, allowed / taken) if taken else _GROWTH
        self.rows = max(_LEAST, min(most, published.rows_loaded * growth))
