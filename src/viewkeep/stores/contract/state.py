"""State: the rows that operators keep, with the reads that they need.

Law: what `find`, `scan_ranges` and `floor` return is what scans at the same epoch would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from viewkeep.codec.keys import prefix_end
from viewkeep.stores.contract.rows import NONE, Floor, Found, KeyRange
from viewkeep.stores.contract.versioned import Versioned


@dataclass(frozen=True)
class TableSize:
    """Rows of a state table, deleted ones that are not swept yet among them, and their bytes."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: TableSize) -> TableSize:
        return TableSize(self.rows + other.rows, self.bytes + other.bytes)


class State(Versioned):
    """State tables, in shards."""

    shards: int  # fixed when the database is made

    def find(
        self,
        shard: int,
        table: int,
        prefixes: Sequence[bytes],
        at: int | None,
        *,
        limits: Sequence[int] | None = None,
        size: int = 20_000,
    ) -> Iterator[Found]:
        """The rows whose keys start with each of the prefixes, as of epoch `at`.

        In batches, with at most so many of each prefix, as in `scan_ranges`.
        """
        ranges = [(prefix, prefix_end(prefix)) for prefix in prefixes]
        return self.scan_ranges(shard, table, ranges, at, limits=limits, size=size)

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
        """The rows whose keys lie in each of the ranges, as of epoch `at`.

        In batches of at most `size` rows, in the order of the ranges, and of keys within one, or
        backwards from its end. A store that can tell begins no further row beyond
        `size * ROW_BYTES` bytes. With `limits`, at most so many of each range. Ranges may overlap.
        Stores may have a faster way.
        """
        places, keys, rows = list[int](), list[bytes](), list[bytes]()
        for place, (start, stop) in enumerate(ranges):
            left = None if limits is None else limits[place]
            more = left != 0
            while more:
                limit = size - len(rows) if left is None else min(size - len(rows), left)
                chunk = self.scan(
                    shard, table, start=start, stop=stop, limit=limit, at=at, reverse=reverse
                )
                places += [place] * len(chunk.rows)
                keys += chunk.keys
                rows += chunk.rows
                if left is not None:
                    left -= len(chunk.rows)
                more = chunk.more and left != 0
                if more and reverse:
                    stop = chunk.keys[-1]
                elif more:
                    start = chunk.keys[-1] + b"\0"
                if len(rows) >= size:
                    yield Found(places, keys, rows)
                    places, keys, rows = [], [], []
        if rows:
            yield Found(places, keys, rows)

    def floor(
        self,
        shard: int,
        table: int,
        keys: Sequence[bytes],
        lows: Sequence[tuple[bytes, int]],
        at: int | None,
    ) -> Floor:
        """For each key the last row at or before it that is not before its low, as of epoch `at`.

        `lows` are those of so many keys each. Keys and lows rise, or stay, from one to the next.
        Stores may have a faster way.
        """
        floor, left = Floor([], [], []), iter(keys)
        for low, count in lows:
            place, start = NONE, low
            for nth, key in enumerate(islice(left, count)):
                # What is at or before a key is so for the next, unless another row lies between.
                chunk = self.scan(
                    shard, table, start=start, stop=key + b"\0", limit=1, at=at, reverse=True
                )
                if chunk.keys:
                    if chunk.keys != floor.keys[-1:]:
                        floor.keys.append(chunk.keys[0])
                        floor.rows.append(chunk.rows[0])
                    place = len(floor.keys) - 1
                floor.add(place, 1, is_new=nth == 0)
                start = key + b"\0"
        return floor
