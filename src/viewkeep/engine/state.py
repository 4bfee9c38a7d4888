"""State of one shard as an epoch sees it: reads pinned at the epoch before, writes stamped with it.

Law: `lookup` never sees a write of the running epoch, however often its tasks run. So what is
staged may be written in as many transactions as memory asks for: no read sees the half of it, and
an epoch that is published has written it all. Each key is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeep.codec.packed import Packed
from viewkeep.deferred import pl
from viewkeep.engine.amounts import amount_of
from viewkeep.plan.program import StateTable
from viewkeep.stores.contract import Chunk, Floor, Found, KeyRange, StateWrite, Store

ROWS_AT_ONCE = 20_000  # of those found by prefixes, as amounts
_MUCH_ROWS = 200_000  # staged, as amounts, from which they are written


class ShardState:
    """One shard during one level of one epoch."""

    def __init__(
        self,
        store: Store,
        shard: int,
        epoch: int,
        horizon: int,
        purge_below: int | None = None,
        views: frozenset[int] = frozenset(),
    ):
        self.store, self.shard, self.epoch, self.horizon = store, shard, epoch, horizon
        # No operation with a timestamp below it will come; None: any may.
        self.purge_below = purge_below
        self._views = views  # tables whose rows are written to the store's views too
        self._staged: list[StateWrite] = []
        self._rows = self._bytes = self._written = 0

    def lookup(self, table: StateTable, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of these keys at the epoch before."""
        return self.store.state.get(self.shard, table.number, keys, self.epoch - 1)

    def lookups(
        self, table: StateTable, keys: Sequence[bytes], most: int
    ) -> Iterator[tuple[int, Sequence[bytes], list[bytes | None]]]:
        """The same in batches of about `most` rows, as amounts: where each begins, keys and rows.

        How wide rows are is known by those before.
        """
        start, step = 0, min(ROWS_AT_ONCE, most)
        while start < len(keys):
            some = keys[start : start + step]
            rows = self.lookup(table, some)
            yield start, some, rows
            start += step
            step = max(1, most * len(some) // amount_of(len(some), _size(rows)))

    def frame(
        self, table: StateTable, rows: list[bytes | None], names: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Row bytes as a frame, of some columns or all, NULL in each where a row is absent."""
        present = [row for row in rows if row is not None]
        decoded = table.row_codec.decode(present, names)
        if len(present) == len(rows):
            return decoded
        there = pl.Series([row is not None for row in rows], dtype=pl.Boolean)
        place = there.cum_sum().cast(pl.Int64) - 1
        return decoded.select(pl.all().gather(place.set(~there, None)))

    def scan(
        self,
        table: StateTable,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        reverse: bool = False,
    ) -> Chunk:
        """Rows of a key range at the epoch before."""
        return self.store.state.scan(
            self.shard,
            table.number,
            start=start,
            stop=stop,
            limit=limit,
            at=self.epoch - 1,
            reverse=reverse,
        )

    def find(
        self, table: StateTable, prefixes: Sequence[bytes], limits: Sequence[int] | None = None
    ) -> Iterator[Found]:
        """Rows under the prefixes of keys at the epoch before, in batches of bounded size."""
        return self.store.state.find(
            self.shard, table.number, prefixes, self.epoch - 1, limits=limits, size=ROWS_AT_ONCE
        )

    def scan_ranges(
        self,
        table: StateTable,
        ranges: Sequence[KeyRange],
        *,
        limits: Sequence[int] | None = None,
        reverse: bool = False,
    ) -> Iterator[Found]:
        """Rows of several ranges of keys at the epoch before, in batches of bounded size."""
        return self.store.state.scan_ranges(
            self.shard,
            table.number,
            ranges,
            self.epoch - 1,
            limits=limits,
            reverse=reverse,
            size=ROWS_AT_ONCE,
        )

    def floor(
        self, table: StateTable, keys: Sequence[bytes], lows: Sequence[tuple[bytes, int]]
    ) -> Floor:
        """For each key the last row at or before it, not before its low, at the epoch before."""
        return self.store.state.floor(self.shard, table.number, keys, lows, self.epoch - 1)

    def stage(
        self,
        table: StateTable,
        keys: Sequence[bytes] | Packed,
        rows: Sequence[bytes | None] | Packed,
        are_new: bool = False,
    ) -> None:
        """Note rows to write; they reach the store with `commit`."""
        if keys:
            self._staged.append(StateWrite(table.number, keys, rows, are_new))
            self._rows += len(keys)
            self._bytes += _size(keys) + _size(rows)

    def commit_if_much(self) -> None:
        """Write what was staged if it is so much that it should not wait for the rest."""
        if amount_of(self._rows, self._bytes) >= _MUCH_ROWS:
            self._write()

    def commit(self) -> int:
        """Write what was staged, in one transaction; return the number of rows since the start."""
        self._write()
        return self._written

    def _write(self) -> None:
        if self._staged:
            self.store.state.apply(self.shard, self.epoch, self.horizon, self._staged)
            if shown := [write for write in self._staged if write.table in self._views]:
                self.store.views.apply(self.shard, self.epoch, self.horizon, shown)
        self._written += self._rows
        self._staged, self._rows, self._bytes = [], 0, 0


def _size(strings: Sequence[bytes | None] | Packed) -> int:
    """The bytes of keys or rows."""
    if isinstance(strings, Packed):
        return int(strings.spans.sum())
    return sum(map(len, filter(None, strings)))
