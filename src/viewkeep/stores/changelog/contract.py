"""The changelog: what each commit wrote to a shard of state, kept where every worker reaches it.

Law: a shard's state at epoch e is any complete snapshot of it at or before e, plus the records
after the snapshot up to e. A record that was appended is durable, is never replaced, and stays
until `truncate` passes it; a snapshot is listed only when it is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from viewkeep.errors import StoreError
from viewkeep.stores.contract import Missing

__all__ = ["DROP", "REVERT", "Changelog", "Different", "Entry", "Listing", "Missing"]

REVERT = 0xFFFFFFFF  # the part of a record that takes epochs back; after all other parts
DROP = 0x80000000  # parts from here on drop tables: DROP + table


class Different(StoreError):
    """Another record has this name: two runs of an epoch did not write the same bytes."""


class Entry(NamedTuple):
    """The name of a record: which commit of which epoch it is. Entries sort in order of replay."""

    epoch: int
    part: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}, part {self.part:#x}"


class Listing(NamedTuple):
    """The records after an epoch, and where the changelog begins.

    It is complete if it was asked from `floor` or later: records up to `floor` may be gone.
    """

    entries: list[Entry]
    floor: int


class Changelog(ABC):
    """The changelog of one database. Methods may be called from several threads and processes."""

    uri: str

    @abstractmethod
    def append(self, shard: int, entry: Entry, record: bytes) -> None:
        """Make a record durable. Appending the same one again changes nothing.

        Raises Different if a record with other content has the name (`records.same`); nothing is
        replaced.
        """

    @abstractmethod
    def entries(self, shard: int, after: int, upto: int | None = None) -> Listing:
        """The records of epochs after `after`, up to `upto` if given, in order.

        All that were appended before this call began are there, if `floor` is not after `after`.
        """

    @abstractmethod
    def read(self, shard: int, entry: Entry) -> bytes:
        """A record. Raises Missing if it is not there."""

    @abstractmethod
    def size(self, shard: int, after: int) -> int:
        """The bytes of the records after an epoch; may be approximate."""

    @abstractmethod
    def write_snapshot(self, shard: int, epoch: int, chunks: Iterable[bytes]) -> bool:
        """Write a snapshot of a shard at an epoch; it is listed once all of it is durable.

        False if one of that epoch is there already. One that is interrupted is never listed.
        """

    @abstractmethod
    def snapshots(self, shard: int) -> dict[int, int]:
        """The epochs of the complete snapshots, oldest first, and their bytes."""

    @abstractmethod
    def read_snapshot(self, shard: int, epoch: int) -> Iterator[bytes]:
        """The chunks of a snapshot, in order. Raises Missing, or Corrupt if any part is damaged."""

    @abstractmethod
    def truncate(self, shard: int, upto: int) -> None:
        """Drop the records up to an epoch, and the snapshots before it.

        There must be a complete snapshot of exactly that epoch, else StoreError and no change.
        """

    def close(self) -> None:  # noqa: B027
        """Release the connection, if this has one of its own."""
