"""How far views that are being loaded have come, as a share of their rows.

The number of rows to load is not counted anywhere, so the share is an estimate: where the last key
that was loaded lies between the first and the last key there is. The time that is left is told by
the time so far. Law: the share is 0 before the first chunk, 1 when nothing is left, and never
counts a finished part as unfinished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from viewkeep.engine.cells.loading import is_read
from viewkeep.engine.epochs import Published
from viewkeep.plan.nodes import Source, Values
from viewkeep.plan.program import OperatorFeed, Placement, Program
from viewkeep.stores.contract import Store

_DIGITS = 8  # bytes of a key that are looked at, after what all keys of the part share


@dataclass(frozen=True)
class LoadProgress:
    """Rows that are in, and the share of all rows that they are, by estimate."""

    rows: int
    share: float
    seconds: float  # of epochs since it began

    @property
    def seconds_left(self) -> float | None:
        """How long it will still take, at the pace that it has had; None if nothing is in yet."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def __str__(self) -> str:
        if self.seconds_left is None:
            return ""
        return f"about {self.share:.0%}, {self.seconds_left:,.0f} s left"


class Loads:
    """What is being loaded at one published epoch; each feed is looked at once for all views."""

    def __init__(self, store: Store, program: Program, published: Published):
        self._published, self.program = published, program
        loading = published.loading
        feeds = (feed for op in program.operators for feed in op.feeds) if loading else ()
        self._shares = {
            feed.id: _share(store, program, feed, loading[feed.id])
            for feed in feeds
            if feed.id in loading
        }

    def of(self, placement: Placement) -> LoadProgress | None:
        """How far a view is; None when it has all its rows."""
        left = self._shares.keys() & placement.feeds
        if not left:
            return None
        rows = sum(self._published.loaded.get(feed, 0) for feed in left)
        seconds = max(self._published.spent.get(feed, 0.0) for feed in left)
        return LoadProgress(rows, sum(self._shares[feed] for feed in left) / len(left), seconds)


def _share(store: Store, program: Program, feed: OperatorFeed, left: Mapping[str, str]) -> float:
    """The share of one feed: finished parts are not listed in `left`."""
    if isinstance(feed.producer, Values):
        return 0.0
    parts = store.tables.parts if isinstance(feed.producer, Source) else store.state.shards
    unfinished = [
        1.0
        if is_read(bound)
        else _position(bytes.fromhex(bound), *_ends(store, program, feed, int(part)))
        for part, bound in left.items()
    ]
    return (parts - len(unfinished) + sum(unfinished)) / parts


def _ends(
    store: Store, program: Program, feed: OperatorFeed, part: int
) -> tuple[bytes, bytes] | tuple[None, None]:
    """The first and the last key of a part."""
    if isinstance(feed.producer, Source):
        number = feed.producer.number
        first = store.tables.scan(part, number, limit=1)
        last = store.tables.scan(part, number, limit=1, reverse=True)
    else:
        assert isinstance(feed.producer, str)
        number = program.by_id[feed.producer].rows_table.number
        first = store.state.scan(part, number, limit=1, at=None)
        last = store.state.scan(part, number, limit=1, at=None, reverse=True)
    return (first.keys[0], last.keys[0]) if first.keys and last.keys else (None, None)


def _position(key: bytes, first: bytes | None, last: bytes | None) -> float:
    """Where a key lies between two others, with their bytes as digits."""
    if not key or first is None or last is None:
        return 0.0
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    low, at, high = (_number(k[shared : shared + _DIGITS]) for k in (first, key, last))
    return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 1.0


def _number(digits: bytes) -> int:
    return int.from_bytes(digits.ljust(_DIGITS, b"\0"), "big")
