"""How much room a database may take: its `max_size`, and what the disk has left.

Law: once the pages in use reach `max_size`, or the disk has less free than `RESERVE`, a write that
puts rows is refused with StoreFull and changes nothing. Reads, deletes and the pipeline go on, and
so does `drop`: they are what makes room again. Files keep the pages that become free for reuse, so
they may be larger than what is in use, and a write that was let in may go past the limit once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from viewkeep.errors import StoreError, StoreFull
from viewkeep.stores.contract import Kind, TableWrite
from viewkeep.stores.lmdb.database import SETTINGS, DatabaseFolder, read_settings
from viewkeep.stores.lmdb.environment import Environment

RESERVE = 16 << 20  # with which the pipeline catches up and the log is truncated
_FRESH_SECONDS = 0.1  # that one look at the sizes is good for


@dataclass(frozen=True)
class Room:
    """Bytes in use, the most that may be, and what the disk has free."""

    used: int
    most: int | None
    free: int

    @property
    def refusal(self) -> str | None:
        """Why no more rows are taken."""
        if self.most is not None and self.used >= self.most:
            return (
                f"the database holds {_size(self.used)}, and its max_size is {_size(self.most)}; "
                "delete rows or drop views (the pipeline then truncates the log), or raise "
                f"max_size in {SETTINGS}"
            )
        if self.free < RESERVE:
            return (
                f"the disk has {_size(self.free)} left, which the pipeline needs to catch up; free "
                "space on it and write again"
            )
        return None


def room(database: DatabaseFolder) -> Room:
    """Look at the files and at the disk."""
    environments = (database.meta, *database.nodes, *database.shards)
    disk = os.statvfs(database.path)
    return Room(
        sum(_in_use(environment) for environment in environments),
        read_settings(database.path).max_size,
        disk.f_bavail * disk.f_frsize,
    )


class Door:
    """Lets writes in while there is room; looks at most every tenth of a second."""

    def __init__(self) -> None:
        self._until, self._refusal = 0.0, None  # type: tuple[float, str | None]

    def check(self, database: DatabaseFolder, writes: Sequence[TableWrite]) -> None:
        """StoreFull if these writes put rows and there is no room for more."""
        now = time.monotonic()
        if now >= self._until:
            try:
                self._refusal = room(database).refusal
            except (OSError, StoreError):  # the write itself will say what is wrong
                self._refusal = None
            self._until = now + _FRESH_SECONDS
        if self._refusal and any(write.kind is Kind.PUT and write.keys for write in writes):
            raise StoreFull(self._refusal)


def _in_use(environment: Environment) -> int:
    """Bytes of pages that hold something; free ones are not counted, as they are used again."""
    with environment.reading() as txn:
        total = 0
        for db in environment.dbs.values():
            stat = txn.stat(db)
            pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            total += pages * stat["psize"]
        return total


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
