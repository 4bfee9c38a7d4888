"""The store contract: what a key-value store must do to carry base tables, node logs and views.

A store speaks bytes. It knows tables by number, keys as order-preserving bytes (`codec.keys`) and
rows as row bytes (`codec.rows`); it knows nothing of SQL, plans or Spark. Three sides:

- *base*: rows of base tables, each owned by one node, and one log per node;
- *state*: versioned rows of state tables (views among them), spread over shards;
- *meta*: small records with compare-and-set.

The law that all else rests on: a state read at epoch e sees exactly the writes stamped at or before
e, and applying the same writes of an epoch again changes nothing.
"""

from __future__ import annotations

import enum
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from viewkeep.codec.keys import prefix_end
from viewkeep.codec.packed import Packed
from viewkeep.codec.patterns import KeyPattern
from viewkeep.codec.rows import RowCodec


@dataclass(frozen=True)
class Capabilities:
    """What a store offers beyond the bare contract; the planner reads it, never the class."""

    before_image: bool = True  # log records carry the old row
    ordered_scan: bool = True  # scans return rows in key order
    atomic_batch: bool = True  # a cut never splits one `write` call


@dataclass(frozen=True, order=True)
class Cut:
    """A position in every node log: the operations committed at or before `moment`.

    `offsets[n]` counts the operations of node n's log that lie before the cut. Moments are
    nanoseconds since 1970 as stamped by the store at commit; they never go back within a node.
    """

    moment: int
    offsets: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        return {"moment": self.moment, "offsets": list(self.offsets)}

    @staticmethod
    def from_json(value: Mapping[str, object]) -> Cut:
        moment, offsets = value["moment"], value["offsets"]
        assert isinstance(moment, int)
        assert isinstance(offsets, list)
        return Cut(moment, tuple(offsets))

    def __str__(self) -> str:
        return json.dumps(self.to_json())


class Kind(enum.IntEnum):
    """What an operation does to its row. The numbers are part of the log format."""

    PUT = 1
    DELETE = 2


ABSENT: Literal["absent"] = "absent"


@dataclass(frozen=True)
class TableWrite:
    """Operations of one kind on rows of one table, in order.

    `rows` (PUT only) are whole rows encoded by `codec`. With `columns`, only those columns (by
    position) are taken from `rows`; the others keep their value, or are NULL in a new row.
    `existing_only` leaves rows that do not exist alone. `expect` makes the whole call conditional:
    ABSENT refuses if any key exists (or is written twice), a list gives the row bytes each key
    must hold (None: no row) when its operation's turn comes, after the call's earlier operations.
    """

    table: int
    codec: RowCodec
    kind: Kind
    keys: Sequence[bytes]
    rows: Sequence[bytes] | None = None
    columns: tuple[int, ...] | None = None
    existing_only: bool = False
    expect: Literal["absent"] | Sequence[bytes | None] | None = None


@dataclass(frozen=True)
class LogBatch:
    """Operations of one table out of one node log, in log order.

    `before` is None for a store without before-images. `timestamps` holds one application
    timestamp per operation for stores that merge by timestamp, else None.
    """

    table: int
    offsets: NDArray[np.int64]  # position of each operation in its node log
    kinds: NDArray[np.uint8]
    keys: Packed
    rows: Packed  # after-images; absent for DELETE
    before: Packed | None  # absent where there was no row
    timestamps: NDArray[np.int64] | None = None

    @property
    def size(self) -> int:
        """The bytes of all rows, before and after."""
        images = [self.rows] if self.before is None else [self.rows, self.before]
        return sum(int(image.spans.sum()) for image in images)


@dataclass(frozen=True)
class Chunk:
    """Some rows of one table in key order. `more` tells whether the range holds further rows."""

    keys: list[bytes]
    rows: list[bytes]
    more: bool


@dataclass(frozen=True)
class Found:
    """Rows found by the prefixes of their keys: which prefix, the key, the row."""

    places: list[int]
    keys: list[bytes]
    rows: list[bytes]


NONE = -1  # the place of no row

# What is read or held in parts is bounded by rows of at most so many bytes, about what a few
# numbers and their key take with Python's and polars' own costs; a wider row counts as several.
ROW_BYTES = 64


@dataclass(frozen=True)
class Floor:
    """The rows at or before some keys, with their own keys.

    `runs` tells of the keys asked for, in order: so many of them have the row at this place, or
    NONE. Neighbours with one low and one row are one run.
    """

    runs: list[tuple[int, int]]  # the place of a row, keys
    keys: list[bytes]
    rows: list[bytes]

    def add(self, place: int, count: int, is_new: bool) -> None:
        """The next keys have this row; `is_new`: their low is not that of the keys before."""
        if not is_new and self.runs and self.runs[-1][0] == place:
            count += self.runs.pop()[1]
        self.runs.append((place, count))


@dataclass(frozen=True)
class Changed:
    """Rows of one state table that some epochs have changed, in key order.

    `versions[i]` are those of `keys[i]` as (epoch, row or None), oldest first: the row as of the
    epoch asked from, then every version that differs from the one before it. `more` tells whether
    further rows of the range have changed.
    """

    keys: list[bytes]
    versions: list[list[tuple[int, bytes | None]]]
    more: bool


@dataclass(frozen=True)
class StateWrite:
    """New rows of one state table; a row of None deletes its key. Keys are distinct.

    `are_new` says that no key had a row at the epoch before, so that none need be looked for first.
    A store must do the right thing though it be wrong: the epoch may have written before.
    """

    table: int
    keys: Sequence[bytes] | Packed
    rows: Sequence[bytes | None] | Packed
    are_new: bool = False

    @property
    def key_list(self) -> Sequence[bytes]:
        return self.keys.all_bytes() if isinstance(self.keys, Packed) else self.keys


@dataclass(frozen=True)
class TableSize:
    """Rows of a state table, deleted ones that are not swept yet among them, and their bytes."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: TableSize) -> TableSize:
        return TableSize(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True)
class Sizes:
    """Bytes on disk and operations kept, as `status` shows them."""

    base_bytes: int
    state_bytes: int
    log_operations: tuple[int, ...]  # per node, still kept
    tables: Mapping[int, TableSize] = field(default_factory=dict)  # state tables by number


class Store(ABC):
    """A key-value store, opened by this process. Methods may be called from several threads.

    Opening after a fork is the caller's duty (`stores.open_store` keeps one per process and url).
    """

    url: str
    nodes: int  # number of node logs, fixed when the database is made
    shards: int  # number of state shards, a multiple of `nodes`, fixed likewise
    capabilities: Capabilities

    # -- base side ---------------------------------------------------------------------------

    @abstractmethod
    def write(self, writes: Sequence[TableWrite]) -> dict[int, int]:
        """Apply operations and log them; return for each node touched its log's end after them.

        The call is refused whole (Conflict, DuplicateKey, InvalidRow, StoreFull) or done whole;
        base row and log record of a row are one transaction. All operations of one call share one
        moment, so no cut splits them. When the call returns, the operations survive what the
        database's durability says. A writer that dies inside the call leaves it
        to be done whole or not at all: every cut, and every write that follows, sees it so.
        """

    @abstractmethod
    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        """The rows of these keys, in the order of `keys`: the current ones, or as in `scan` `at`.

        With `at`, the log after it is read once for all keys of a node.
        """

    @abstractmethod
    def scan(
        self,
        node: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: Cut | None = None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        """Up to `limit` rows of one node with start <= key < stop, in key order.

        With `only`, those whose keys match the pattern; what lies between is passed over by seeks.
        With `at`, the rows as they were at that cut: current rows overlaid with the earliest
        before-images logged after it. Raises EpochGone if the log no longer reaches back to it.
        """

    @abstractmethod
    def head(self) -> Cut:
        """A cut that covers every write that returned before this call; it splits no write."""

    def ticks(self) -> object:
        """A value that differs after any write of base rows, logs or meta records.

        While two answers are equal, nobody has written between them. A waiting process asks this
        every few milliseconds, so stores have a cheaper way than this default, without locks. A
        store must never miss a write that has returned; answers may differ without one.
        """
        return self.head(), self.meta_scan("")

    @abstractmethod
    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        """The latest cut in (start, stop] within this many operations and log bytes after start.

        If even the first write after `start` is larger than that, the cut just after it.
        """

    @abstractmethod
    def read_log(
        self, node: int, start: int, stop: int, tables: frozenset[int] | None = None
    ) -> Iterator[LogBatch]:
        """The operations with start <= offset < stop, in batches of bounded size.

        Only those of `tables` if given. Operations of one table come in log order. Reading the
        same range again gives the same operations. Raises EpochGone if `start` was truncated.
        """

    @abstractmethod
    def truncate_log(self, before: Cut, budget: int = 10_000) -> bool:
        """Drop log records wholly before the cut, at most `budget` a call; True if more remain.

        The caller never passes a cut after the published one, nor after a pinned one.
        """

    @abstractmethod
    def drop_table(self, table: int, budget: int = 10_000) -> bool:
        """Remove base rows of a dropped table, unlogged, within a budget; True if more remain."""

    # -- state side --------------------------------------------------------------------------

    @abstractmethod
    def state_get(
        self, shard: int, table: int, keys: Sequence[bytes], at: int | None
    ) -> list[bytes | None]:
        """The rows of these keys as of epoch `at` (None: the newest version).

        One snapshot of the shard. Raises EpochGone if versions that old have been dropped.
        """

    @abstractmethod
    def state_scan(
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

    def state_find(
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

        In batches of at most `size` rows, in the order of the prefixes, and of keys within one. A
        store that can tell begins no further row beyond `size * ROW_BYTES` bytes. With `limits`, at
        most so many of each prefix. Stores may have a faster way.
        """
        places, keys, rows = list[int](), list[bytes](), list[bytes]()
        for place, prefix in enumerate(prefixes):
            start, left = prefix, None if limits is None else limits[place]
            more = left != 0
            while more:
                limit = size - len(rows) if left is None else min(size - len(rows), left)
                chunk = self.state_scan(
                    shard, table, start=start, stop=prefix_end(prefix), limit=limit, at=at
                )
                places += [place] * len(chunk.rows)
                keys += chunk.keys
                rows += chunk.rows
                if left is not None:
                    left -= len(chunk.rows)
                more = chunk.more and left != 0
                if more:
                    start = chunk.keys[-1] + b"\0"
                if len(rows) >= size:
                    yield Found(places, keys, rows)
                    places, keys, rows = [], [], []
        if rows:
            yield Found(places, keys, rows)

    def state_floor(
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
                chunk = self.state_scan(
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

    def state_changes(
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
        before = self._state_range(shard, table, start, stop, after)
        for epoch in range(after + 1, upto + 1):
            now = self._state_range(shard, table, start, stop, epoch)
            for key in before.keys() | now.keys():
                old, new = before.get(key), now.get(key)
                if old != new:
                    found.setdefault(key, [(after, old)]).append((epoch, new))
            before = now
        keys = sorted(found)
        return Changed(keys, [found[key] for key in keys], False)

    def _state_range(
        self, shard: int, table: int, start: bytes, stop: bytes | None, at: int
    ) -> dict[bytes, bytes]:
        rows: dict[bytes, bytes] = {}
        more = True
        while more:
            chunk = self.state_scan(shard, table, start=start, stop=stop, limit=10_000, at=at)
            rows.update(zip(chunk.keys, chunk.rows, strict=True))
            more = chunk.more
            if more:
                start = chunk.keys[-1] + b"\0"
        return rows

    @abstractmethod
    def state_apply(
        self, shard: int, epoch: int, horizon: int, writes: Sequence[StateWrite]
    ) -> None:
        """Stamp these rows with `epoch`, in one transaction.

        Of each written row, versions after `horizon` and the newest at or before it are kept.
        Applying the same writes again changes nothing. Raises Fenced if the shard has already seen
        a later epoch, so a stale driver cannot disturb its successor. `horizon` < `epoch`.
        """

    @abstractmethod
    def state_revert(self, shard: int, after: int, upto: int) -> None:
        """Remove what epochs in (after, upto] have written, and refuse what they write from now on.

        In one transaction. Each row is then as it was at epoch `after`; `state_apply` of an epoch
        up to `upto` raises Fenced. None of those epochs may have been published. Reverting again,
        also after a later epoch has written, changes nothing.
        """

    @abstractmethod
    def state_sweep(self, shard: int, horizon: int, budget: int = 10_000) -> bool:
        """Remove rows deleted at or before `horizon`, a budget at a time; True if more remain."""

    @abstractmethod
    def state_drop(self, shard: int, table: int, budget: int = 10_000) -> bool:
        """Remove a state table's rows in all versions; True if more remain."""

    # -- meta side ---------------------------------------------------------------------------

    @abstractmethod
    def meta_get(self, key: str) -> bytes | None:
        """The value of a meta record, or None."""

    @abstractmethod
    def meta_cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace the record if it still equals `old` (None: absent); atomic and durable."""

    @abstractmethod
    def meta_scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """All records whose key starts with `prefix`, in key order, as one snapshot."""

    # -- housekeeping ------------------------------------------------------------------------

    @abstractmethod
    def check_counts(self, node: int) -> None:
        """Corrupt if a node's rows or log are not as many records as the store has counted.

        For verification: reads may not notice damage that hides records which nothing leads to.
        """

    @abstractmethod
    def sizes(self) -> Sizes:
        """What `status` reports; may be approximate."""

    @abstractmethod
    def close(self) -> None:
        """Release files and maps. Calling it twice is harmless."""
