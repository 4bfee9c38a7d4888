"""Whether DELTA's rows are those of the live base table, for verification.

Law: a row that differs counts if nothing was written to it between the epoch's cut and the moment
when the live row was read: then the log, or DELTA, has lost something. What the log says after the
cut is looked at once the live table was read, so no write can lie between. A store that brings
operations late may show rows whose operations are on their way; so such rows are looked at again.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from viewkeep.engine.cells.level import operations_between
from viewkeep.engine.cells.past import TablePast
from viewkeep.engine.cells.travel import CellBox
from viewkeep.engine.epochs import Epochs, Pin
from viewkeep.engine.programs import load_plan
from viewkeep.errors import NotReady
from viewkeep.plan.nodes import CellSource
from viewkeep.stores.contract import Chunk, Looks, Store

_ROWS: Final = 10_000  # read at a time
_MOST: Final = 10_000  # rows that differ and are looked at again
_SECONDS: Final = 2.0  # for which such rows are looked at

_Pairs: TypeAlias = Iterator[tuple[bytes, bytes]]


def lost_rows(store: Store, epochs: Epochs, source: CellSource, pin: Pin) -> int | None:
    """How many rows of DELTA are not those of the live table; None if there is no DELTA."""
    past = _past(store, source, pin)
    if past is None:
        return None
    keys = _different(store, past)
    left = _unexplained(store, source, pin, keys)
    looks, end = Looks(), time.monotonic() + _SECONDS
    while left and time.monotonic() < end:
        looks.pause()
        left = _looked_at_again(store, epochs, source, left)
    return len(left)


def _looked_at_again(
    store: Store, epochs: Epochs, source: CellSource, keys: Sequence[bytes]
) -> list[bytes]:
    pin = epochs.pin()
    try:
        past = _past(store, source, pin)
        if past is None:
            return []
        live = store.tables.get(source.number, keys)
        held = past.get(store, keys)
        differ = [key for key, a, b in zip(keys, live, held, strict=True) if a != b]
        return _unexplained(store, source, pin, differ)
    finally:
        epochs.unpin(pin)


def _past(store: Store, source: CellSource, pin: Pin) -> TablePast | None:
    try:
        return TablePast.of(source, load_plan(store, pin.plan).program, pin.loading, pin.epoch)
    except NotReady:
        return None


def _unexplained(store: Store, source: CellSource, pin: Pin, keys: Sequence[bytes]) -> list[bytes]:
    """The rows that no operation after the cut touches."""
    if not keys:
        return []
    touched = CellBox()
    for operation in operations_between(store, pin.cut, store.log.head(), source):
        touched.take(operation, source.rules)
    ranges = touched.ranges
    return [key for key in keys if key not in touched.rows and ranges.covering(key) is None]


def _different(store: Store, past: TablePast) -> list[bytes]:
    """The keys of rows that are not the same live and in DELTA, but for too many."""
    number = past.source.number
    scan, limit = store.tables.scan, _ROWS
    live = [_walk(partial(scan, part, number, limit=limit)) for part in range(store.tables.parts)]
    held = [
        _walk(partial(past.scan, store, shard, stop=None, limit=limit))
        for shard in range(store.state.shards)
    ]
    key_of = itemgetter(0)
    both = heapq.merge(*live, *held, key=key_of)
    found = list[bytes]()
    for key, pairs in groupby(both, key=key_of):
        rows = [row for _, row in pairs]
        if len(rows) != 2 or rows[0] != rows[1]:
            found.append(key)
            if len(found) == _MOST:
                break
    return found


def _walk(scan: Callable[..., Chunk]) -> _Pairs:
    start, more = b"", True
    while more:
        chunk = scan(start=start)
        yield from zip(chunk.keys, chunk.rows, strict=True)
        more = chunk.more
        if more:
            start = chunk.keys[-1] + b"\0"
