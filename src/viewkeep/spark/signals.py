"""Ending between two epochs when the process is told to: SIGTERM and Ctrl-C set an event."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def until_signal(event: threading.Event) -> Iterator[None]:
    """Sets the event on SIGTERM and SIGINT while the block runs."""

    def ended(number: int, frame: FrameType | None) -> None:
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ended) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
