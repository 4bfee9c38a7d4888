"""How often to look for something that another process will do.

Law: a wait of t seconds ends at most `MOST` seconds, or a sixteenth of t, after what it waits for,
whichever is less (and never less than `LEAST`): short waits are exact and long ones are cheap.
"""

from __future__ import annotations

import time

LEAST = 0.0005  # seconds between two looks at first
MOST = 0.005  # and after a while: some 0.5 % of a core for `Store.ticks`
_SHARE = 1 / 16  # of the time waited so far


class Looks:
    """The pauses between the looks of one wait."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def pause(self, longest: float = MOST) -> None:
        """Sleep until the next look, at most `longest` seconds."""
        waited = time.monotonic() - self._began
        time.sleep(max(0.0, min(max(LEAST, waited * _SHARE), MOST, longest)))
