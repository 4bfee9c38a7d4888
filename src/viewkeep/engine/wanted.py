"""Writing which keys of a partial view are wanted: operations of the log, like any others.

Law: a key is wanted from the epoch on whose cut covers that it was noted, until one covers that it
was given up. To note it twice changes nothing but when it was used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.memory_bound import bound_of
from viewkeep.errors import ViewkeepError
from viewkeep.plan.nodes import WantedKeys
from viewkeep.stores.contract import Kind, Store, TableWrite
from viewkeep.types import BINARY

_ROWS = 10_000  # read at once
_USES_SECONDS = 120.0  # within which a process notes the use of a key once
_USES_AT_ONCE = 256  # noted by one write, if the oldest of them is not older than that
_MOST_USES = 1_000_000  # keys that a process remembers to have noted


class WantedKey(NamedTuple):
    """A key that is wanted: its bytes, and the epoch that was published when it was last read."""

    key: bytes
    used: int


class WantedTable:
    """The table of wanted keys of one view."""

    def __init__(self, wanted: WantedKeys):
        self.wanted, self.number = wanted, wanted.number
        self.codec = KeyCodec(tuple(column.type for column in wanted.value_columns))
        self._keys = KeyCodec((BINARY,)) if wanted.has_bytes else None
        self._rows, self._used = RowCodec(wanted.schema.columns), len(wanted.schema.columns) - 1

    def want(self, store: Store, keys: Sequence[bytes], used: int) -> None:
        """Note keys as wanted and used."""
        encode = self._rows.encode_one
        rows = [encode(wanted_row(self.wanted, self.codec, key, used)) for key in keys]
        store.tables.write([self._write(Kind.PUT, keys, rows)])

    def given_up(self, keys: Sequence[bytes]) -> TableWrite:
        """What lets keys go: the view loses their rows with the next epoch."""
        return self._write(Kind.DELETE, keys, None)

    def all(self, store: Store) -> Iterator[WantedKey]:
        """The keys that are wanted now."""
        for part in range(store.tables.parts):
            start, more = b"", True
            while more:
                chunk = store.tables.scan(part, self.number, start=start, limit=_ROWS)
                for key, row in zip(chunk.keys, chunk.rows, strict=True):
                    first, used = self._rows.decode_one(row, (0, self._used))
                    yield WantedKey(first if self._keys else key, used)
                more = chunk.more
                if more:
                    start = chunk.keys[-1] + b"\0"

    def _write(self, kind: Kind, keys: Sequence[bytes], rows: Sequence[bytes] | None) -> TableWrite:
        encoded = keys
        if self._keys is not None:
            encoded = [self._keys.encode_one((key,)) for key in keys]
        return TableWrite(self.number, self._rows, kind, encoded, rows)


def wanted_row(
    wanted: WantedKeys, codec: KeyCodec, key: bytes, used: int | None
) -> tuple[object, ...]:
    """The row of a key in the table of wanted keys."""
    values = codec.decode_one(key)
    return (key, *values, used) if wanted.has_bytes else (*values, used)


class Uses:
    """The keys that one process has read of a view, which tells those that nobody reads any more.

    They matter while there is a bound on memory. That a use is noted late, twice or not at all does
    no harm: it only says which keys go first.
    """

    def __init__(self, table: WantedTable):
        self._table = table
        self._checked = self._flushed = -math.inf
        self._matter = False
        self._seen: dict[tuple[object, ...], float] = {}
        self._new: set[tuple[object, ...]] = set()

    def matter(self, store: Store) -> bool:
        """Whether there is a bound, which is looked up now and then."""
        now = time.monotonic()
        if now - self._checked > _USES_SECONDS:
            self._matter, self._checked = bound_of(store) is not None, now
        return self._matter

    def note(self, store: Store, values: tuple[object, ...]) -> None:
        """A key of these values was read."""
        if not self.matter(store):
            return
        now = time.monotonic()
        if now - self._seen.get(values, -math.inf) < _USES_SECONDS:
            return
        if len(self._seen) >= _MOST_USES:
            self._seen = {}
        self._seen[values] = now
        self._new.add(values)
        if len(self._new) >= _USES_AT_ONCE or now - self._flushed > _USES_SECONDS:
            new, self._new, self._flushed = self._new, set(), now
            keys = [self._table.codec.encode_one(one) for one in new]
            with suppress(ViewkeepError):
                self._table.want(store, keys, Epochs(store).read().published.epoch)
