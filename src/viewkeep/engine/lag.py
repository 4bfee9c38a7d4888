"""Lag: how old the oldest write is that no published epoch covers.

Law: lag is zero exactly when the published epoch covers every write; otherwise it grows with the
clock until an epoch covers that write, whether or not a pipeline runs. How long the database was
idle before the write does not count.
"""

from __future__ import annotations

import time

from viewkeep.engine.epochs import Epochs, Published
from viewkeep.errors import EpochGone


def lag_seconds(epochs: Epochs, published: Published | None = None) -> float:
    """The age of the oldest write that no published epoch covers; 0 if there is none.

    `published` is what was read of the record before, if it was.
    """
    published = published or epochs.read().published
    while True:
        try:
            oldest = epochs.store.log.first_after(published.cut)
        except EpochGone:  # a later epoch was published, and the log before it is dropped
            published = epochs.read().published
            continue
        return 0.0 if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)
