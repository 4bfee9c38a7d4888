"""Meta records: small values under text keys, changed by compare-and-set.

Law: a change that was reported done is seen by every call that begins after it, and is durable.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from viewkeep.stores.contract.waiting import Looks


class Meta(ABC):
    """Meta records. Methods may be called from several threads."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value of a meta record, or None."""

    @abstractmethod
    def cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace the record if it still equals `old` (None: absent); atomic and durable."""

    def watch(self, key: str, seen: bytes | None, seconds: float) -> bytes | None:
        """Wait until a record differs from `seen`, at most so long; what it is then.

        This default asks again and again. A store that is far away has one call for all of it.
        """
        deadline, looks = time.monotonic() + seconds, Looks()
        while (record := self.get(key)) == seen and (left := deadline - time.monotonic()) > 0:
            looks.pause(left)
        return record

    def mark(self) -> str:
        """What this process leaves in a record so that others may ask whether it `lives`."""
        return ""

    def lives(self, mark: str) -> bool | None:
        """Whether the process that left a mark still lives; None if the store cannot tell.

        A hint that lets others take over at once: False only if it has ended for certain.
        """
        return None

    @abstractmethod
    def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """All records whose key starts with `prefix`, in key order, as one snapshot."""
