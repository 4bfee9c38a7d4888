"""State over replicas: each call goes to the shard's replica, caught up to its epoch.

Law: that of the contract; a read at an epoch sees what any machine has written up to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from viewkeep.codec.patterns import KeyPattern
from viewkeep.stores.apart.replica import Replica
from viewkeep.stores.changelog import Changelog
from viewkeep.stores.contract import Changed, Chunk, Floor, Found, KeyRange, State, StateWrite
from viewkeep.stores.lmdb import state
from viewkeep.stores.lmdb.environment import Environment

_AHEAD = 1_000  # epochs: by then every replica meets the record that a table was dropped


class ApartState(State):
    """Versioned rows of the shards, as this machine has them."""

    def __init__(self, folder: Path, shards: int, changelog: Changelog, map_size: int):
        self.shards = shards
        self.replicas = [
            Replica(folder, shard, changelog, map_size) for shard in range(self.shards)
        ]
        self._changelog = changelog
        self._newest = 0  # epoch that this process has heard of
        self._dropped = dict[tuple[int, int], int]()  # shard and table: at which epoch

    def get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        return state.get(self._at(shard, at), table, keys, at)

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
        return state.scan(self._at(shard, at), table, start, stop, limit, at, reverse, only)

    def scan_ranges(
        self,
        shard: int,
        table: int,
        ranges: Sequence[KeyRange],
        at: int | None,
        *,
        limits: Sequence[int] | None = None,
        reverse: bool = False,
        size: int = 20_000,
    ) -> Iterator[Found]:
        environment = self._at(shard, at)
        return state.scan_ranges(environment, table, ranges, at, limits, reverse, size)

    def floor(
        self,
        shard: int,
        table: int,
        keys: Sequence[bytes],
        lows: Sequence[tuple[bytes, int]],
        at: int | None,
    ) -> Floor:
        return state.floor(self._at(shard, at), table, keys, lows, at)

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
        return state.changes(self._at(shard, upto), table, after, upto, start, stop, limit)

    def apply(self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
        self._newest = max(self._newest, epoch)
        self.replicas[shard].apply(epoch, horizon, writes)
        self.replicas[shard].snapshot_if_due()

    def revert(self, shard: int, after: int, upto: int) -> None:
        self._newest = max(self._newest, upto)
        self.replicas[shard].revert(after, upto)

    def sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        self._newest = max(self._newest, horizon)
        return self.replicas[shard].sweep(horizon, budget)

    def drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        epoch = self._dropped.setdefault((shard, table), self._newest + _AHEAD)
        return self.replicas[shard].drop(table, budget, epoch)

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
        self._changelog.close()

    def _at(self, shard: int, at: int | None) -> Environment:
        if at is not None:
            self._newest = max(self._newest, at)
        return self.replicas[shard].at(at)
