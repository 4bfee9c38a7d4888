"""How long records have stood still, by the clock of the process that looks.

Law: nobody's clock is compared with anybody else's. An owner shows that it lives by changing its
record; whoever wants to know times how long it has not changed, by a clock that nobody sets. So a
process that has just started gives every owner its whole time once more.
"""

from __future__ import annotations

import time
from collections.abc import Container

from viewkeep.stores.contract import Store


class Standstills:
    """When this process first saw the records of a store as they are."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bytes, float]] = {}

    def seconds(self, key: str, record: bytes) -> float:
        """How long this process has seen a record unchanged; 0 at its first look."""
        now = time.monotonic()
        known = self._seen.get(key)
        if known is None or known[0] != record:
            self._seen[key] = (record, now)
            return 0.0
        return now - known[1]

    def forget_others(self, prefix: str, present: Container[str]) -> None:
        """Forget records that are there no more."""
        for key in list(self._seen):
            if key.startswith(prefix) and key not in present:
                self._seen.pop(key, None)


_of_databases: dict[str, Standstills] = {}


def standstills(store: Store) -> Standstills:
    """Those of a database, kept while this process lives, however often it opens the store."""
    return _of_databases.setdefault(store.url, Standstills())
