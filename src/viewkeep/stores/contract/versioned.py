"""Rows with versions by epoch, spread over shards: what state and views have in common.

Law: a read at epoch e sees exactly the writes stamped at or before e, and applying the same writes
of an epoch again changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from viewkeep.codec.packed import Packed
from viewkeep.codec.patterns import KeyPattern
from viewkeep.stores.contract.rows import Changed, Chunk


@dataclass(frozen=True)
class StateWrite:
    """New rows of one state table; a row of None deletes its key. Keys are distinct.

    `are_new` says that no key had a row at the epoch before, so that none need be looked for first.
    This is a hint: the store must stay correct if it is wrong, since the epoch may have written
    before.
    """

    table: int
    keys: Sequence[bytes] | Packed
    rows: Sequence[bytes | None] | Packed
    are_new: bool = False

    @property
    def key_list(self) -> Sequence[bytes]:
        return self.keys.all_bytes() if isinstance(self.keys, Packed) else self.keys


class Versioned(ABC):
    """Tables of versioned rows, by number. Methods may be called from several threads."""

    @abstractmethod
    def get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        """The rows of these keys as of epoch `at` (None: the newest version).

        One snapshot of the shard. Raises EpochGone if versions that old have been dropped.
        """

    @abstractmethod
    def scan(
        self,
        shard: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: int | None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        """Up to `limit` rows of one shard with start <= key < stop, as of epoch `at`, in key order
        (or backwards from the end of the range); with `only`, those whose keys match."""

    def changes(
        self,
        shard: int,
        table: int,
        after: int,
        upto: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
    ) -> Changed:
        """Up to `limit` rows with start <= key < stop that epochs in (after, upto] have changed.

        `upto` is at most the published epoch. Raises EpochGone if versions as old as `after` have
        been dropped. This default reads the whole range once per epoch and ignores `limit`; stores
        may have a faster way.
        """
        found: dict[bytes, list[tuple[int, bytes | None]]] = {}
        before = self._range(shard, table, start, stop, after)
        for epoch in range(after + 1, upto + 1):
            now = self._range(shard, table, start, stop, epoch)
            for key in before.keys() | now.keys():
                old, new = before.get(key), now.get(key)
                if old != new:
                    found.setdefault(key, [(after, old)]).append((epoch, new))
            before = now
        keys = sorted(found)
        return Changed(keys, [found[key] for key in keys], False)

    def _range(
        self, shard: int, table: int, start: bytes, stop: bytes | None, at: int
    ) -> dict[bytes, bytes]:
        rows: dict[bytes, bytes] = {}
        more = True
        while more:
            chunk = self.scan(shard, table, start=start, stop=stop, limit=10_000, at=at)
            rows.update(zip(chunk.keys, chunk.rows, strict=True))
            more = chunk.more
            if more:
                start = chunk.keys[-1] + b"\0"
        return rows

    @abstractmethod
    def apply(self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
        """Stamp these rows with `epoch`, in one transaction.

        Of each written row, versions after `horizon` and the newest at or before it are kept.
        Applying the same writes again changes nothing. Raises Fenced if the shard has already seen
        a later epoch, so a stale driver cannot disturb its successor. `horizon` < `epoch`.
        """

    @abstractmethod
    def revert(self, shard: int, after: int, upto: int) -> None:
        """Remove what epochs in (after, upto] have written, and refuse what they write from now on.

        In one transaction. Each row is then as it was at epoch `after`; `apply` of an epoch
        up to `upto` raises Fenced. None of those epochs may have been published. Reverting again,
        also after a later epoch has written, changes nothing.
        """

    @abstractmethod
    def sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        """Remove rows deleted at or before `horizon`, a budget at a time; True if more remain."""

    @abstractmethod
    def drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        """Remove a state table's rows in all versions; True if more remain."""
