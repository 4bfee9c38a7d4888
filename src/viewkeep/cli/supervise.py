"""Keeps a pipeline running beside a server: one that fails is started again, after a pause.

Law: whatever ends the pipeline, the server goes on, since reads need no pipeline. Why it failed is
in the log at once and in the status of the database, until an epoch is published. The pause grows
with each failure, and begins anew after a pipeline that ran for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from viewkeep.engine.failures import note_trouble
from viewkeep.engine.lease import holder
from viewkeep.errors import StoreError
from viewkeep.serve.logs import LOGGER

if TYPE_CHECKING:
    from viewkeep import Pipeline
    from viewkeep.stores.contract import Store

LOOK_SECONDS = 0.5
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 60.0  # after which a failure is the first one again

log = logging.getLogger(LOGGER)


def keep_running(make: Callable[[], Pipeline], store: Store, told: threading.Event) -> None:
    """Run pipelines, one after the other, until `told` to end."""
    failures = 0
    while not told.is_set():
        began = time.monotonic()
        try:
            with make() as pipeline:
                while not told.wait(LOOK_SECONDS):
                    pipeline.check()
        except Exception as error:
            if time.monotonic() - began > STEADY_SECONDS:
                failures = 0
            failures += 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * float(2 ** min(failures - 1, 30)))
            log.error("the pipeline failed and starts again in %.0f s: %s", pause, error)
            _note(store, str(error), pause)
            told.wait(pause)


def _note(store: Store, reason: str, pause: float) -> None:
    """Leave the reason in the database, unless another pipeline keeps its views."""
    with suppress(StoreError):  # the disk may be full; the log has it
        if holder(store) is None:
            note_trouble(store, reason, pause)
