"""What a driver does after an epoch has failed: try again, or go on without the views that fail.

Law: an epoch whose plan is not the newest is abandoned at once, so dropping or replacing a view
helps at once. After some failures the driver looks for the operators to blame and sets their views
aside. Where nobody is to blame it tries again for ever, with pauses that grow.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from viewkeep.engine.culprits import find_culprits
from viewkeep.engine.epochs import Epochs, OpenEpoch
from viewkeep.engine.failures import is_outdated, leave_out, note_trouble
from viewkeep.errors import StoreError
from viewkeep.stores.contract import Store

FIRST_PAUSE = 0.5  # seconds; twice as long after each failure
LONGEST_PAUSE = 60.0
NOBODY = "no view fails when the epoch's operators are run one by one"


@dataclass(frozen=True)
class Patience:
    """When a driver looks for the views that fail.

    After so many `failures` since an epoch was published, or if an epoch takes longer than so many
    `seconds`. An operator that runs longer by itself, or needs more `memory` (bytes; by default
    most of what is free), fails.
    """

    failures: int = 3
    seconds: float = 1800.0
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"failures must be a number from 1 on, not {self.failures}")
        if not self.seconds > 0:
            raise ValueError(f"the seconds of an epoch must be more than 0, not {self.seconds}")


class Recovery:
    """The failures that one driver has met. It gives up a search once the driver has `ended`."""

    def __init__(self, patience: Patience, ended: threading.Event):
        self._patience, self._ended = patience, ended
        self._count = 0

    def begin(self, store: Store) -> bool:
        """A driver begins. Whether it should look for culprits before it runs the open epoch."""
        epoch = Epochs(store).read().open
        self._count = 0
        if epoch is None:
            return False
        self._note(store, f"the driver of epoch {epoch.epoch} ended before the epoch did")
        return self._is_time()

    def after(
        self, store: Store, term: int, epoch: OpenEpoch, reason: str, hopeless: bool = False
    ) -> float:
        """An epoch has failed: seconds to wait before the next attempt; 0 if it will be another.

        `hopeless` failures are not worth another attempt before the search.
        """
        self._note(store, reason)
        if is_outdated(store, epoch):
            Epochs(store).abandon(term, epoch)
            return 0.0
        if hopeless or self._is_time():
            if self.search(store, term, epoch):
                return 0.0
            reason = f"{reason} ({NOBODY})"
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * float(2 ** min(self._count - 1, 30)))
        self._note(store, reason, pause, count=0)
        return pause

    def search(self, store: Store, term: int, epoch: OpenEpoch) -> bool:
        """Look for the operators to blame and leave their views out; whether there are any."""
        patience = self._patience
        culprits = find_culprits(
            store, epoch, patience.seconds, patience.memory, self._ended.is_set
        )
        return bool(culprits) and bool(leave_out(store, term, epoch, culprits))

    @property
    def is_exhausted(self) -> bool:
        """Whether as many attempts have failed as are made before a search."""
        return self._count >= self._patience.failures

    def _is_time(self) -> bool:
        return self._count % self._patience.failures == 0

    def _note(self, store: Store, reason: str, pause: float = 0.0, count: int = 1) -> None:
        try:
            self._count = note_trouble(store, reason, pause, count).count
        except StoreError:  # the disk may be full: then count here
            self._count += count
