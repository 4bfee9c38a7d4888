"""Rows whose keys the store has cut, in the order of their whole keys.

Law: `ordered` gives the rows of a range in the order of their whole keys, whatever their length,
and goes on after any of them.

A key of MAX_KEY bytes or more is stored as its first KEPT bytes and a digest (`codec/keys.py`).
Rows whose keys agree on their first KEPT bytes are a *run*; the store gives a run in no order. So a
page that begins or ends within a run reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from viewkeep.access.ranges import ScanBounds
from viewkeep.codec.keys import KEPT, KeyCodec, prefix_end

Pairs: TypeAlias = list[tuple[bytes, bytes]]  # keys and rows


def ordered(
    read: Callable[[ScanBounds], Pairs], whole: Callable[[bytes], bytes], bounds: ScanBounds
) -> Pairs:
    """The rows of a range with their whole keys; `whole` gives that of a row.

    `read` gives the rows of a range with their keys as they are stored, in the order of these.
    """
    found: Pairs = []
    if bounds.last is not None:
        run, last = bounds.last[:KEPT], bounds.last
        rows = _with_whole_keys(read(_within(bounds, run)), whole, bounds.reverse)
        found = [pair for pair in rows if (pair[0] < last if bounds.reverse else pair[0] > last)]
        following = _beyond(bounds, run)
        if following is None:
            return found[: bounds.limit]
        bounds = following
    limit = bounds.limit
    left = None if limit is None else max(0, limit - len(found))
    rows = read(replace(bounds, limit=left))
    if left is not None and len(rows) == left and rows and len(rows[-1][0]) > KEPT:
        run = rows[-1][0][:KEPT]
        rows = [pair for pair in rows if pair[0][:KEPT] != run] + read(_within(bounds, run))
    return (found + _with_whole_keys(rows, whole, bounds.reverse))[:limit]


def whole_key(codec: KeyCodec, values: Sequence[object]) -> bytes:
    """The key of these values, however long."""
    return b"".join([codec.column_encoder(at)(value) for at, value in enumerate(values)])


def _with_whole_keys(rows: Pairs, whole: Callable[[bytes], bytes], reverse: bool) -> Pairs:
    if all(len(key) <= KEPT for key, _ in rows):
        return rows
    uncut = [(whole(row) if len(key) > KEPT else key, row) for key, row in rows]
    uncut.sort(reverse=reverse)  # keys are distinct, so rows are never compared
    return uncut


def _within(bounds: ScanBounds, run: bytes) -> ScanBounds:
    """All of a run. Bounds are shorter than KEPT bytes, so they never split one."""
    return replace(bounds, start=run, stop=prefix_end(run) or bounds.stop, limit=None)


def _beyond(bounds: ScanBounds, run: bytes) -> ScanBounds | None:
    """What follows on a run; None if nothing can."""
    if bounds.reverse:
        return replace(bounds, stop=run)
    end = prefix_end(run)
    return None if end is None else replace(bounds, start=end)
