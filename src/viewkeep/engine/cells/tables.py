"""The state tables of a DELTA: rows, deleted ranges, and when which of them is purged.

Law: `due` has one entry for each row and each segment that some bound of the watermark purges,
under the least such bound. So a purge reads what it purges and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from viewkeep.engine.state import ShardState
from viewkeep.ops.cells import form, ranges, row
from viewkeep.ops.cells.ranges import DeletedRanges, Segment
from viewkeep.ops.cells.row import NOTHING, RowState
from viewkeep.plan.program import StateTable

_LATEST: Final = (1 << 63) - 1
_AT_ONCE: Final = 10_000
_BEFORE_START = b"\1"  # so that a range may start at the empty key


class Due(NamedTuple):
    """A row, or a segment by its start, that the bound `at` purges."""

    at: int
    is_segment: bool
    key: bytes


class DueTable:
    """What is to be purged, in the order of the bound that does it."""

    def __init__(self, state: ShardState, table: StateTable):
        self._state, self._table = state, table

    def until(self, below: int, most: int) -> Iterator[Due]:
        """The entries that this bound purges, those due first, up to `most`."""
        codec = self._table.key_codec
        stop = codec.encode_one((below + 1,)) if below < _LATEST else None
        chunk = self._state.scan(self._table, stop=stop, limit=most)
        unpack = self._table.row_codec.unpacker.call
        for data in chunk.rows:
            at, is_segment, key = unpack(data)
            yield Due(at, bool(is_segment), key)

    def stage(self, moved: Sequence[tuple[Due | None, Due | None]]) -> None:
        """Put the new entries in the place of the old ones."""
        gone = {self._key(old) for old, new in moved if old is not None and old != new}
        come = {self._key(new): new for old, new in moved if new is not None and old != new}
        pack = self._table.row_codec.packer.call
        rows: dict[bytes, bytes | None] = dict.fromkeys(gone)
        rows.update((key, pack(due.at, int(due.is_segment), due.key)) for key, due in come.items())
        stage_sorted(self._state, self._table, rows)

    def _key(self, due: Due) -> bytes:
        return self._table.key_codec.encode_one((due.at, due.is_segment, due.key))


class SegmentTable:
    """The deleted ranges that were there before this epoch."""

    def __init__(self, state: ShardState, table: StateTable, due: DueTable):
        self._state, self._table, self._due = state, table, due
        self._is_empty: bool | None = None
        self._seen: set[bytes] = set()  # starts of segments that this epoch has seen to

    @property
    def is_empty(self) -> bool:
        """Whether there are none, which is usual and saves the search for each row."""
        if self._is_empty is None:
            self._is_empty = not self._state.scan(self._table, limit=1).keys
        return self._is_empty

    def covering(self, keys: Sequence[bytes]) -> list[int | None]:
        """The latest deletion of each key; the keys rise."""
        if self.is_empty or not keys:
            return [None] * len(keys)
        wanted = [_BEFORE_START + key for key in keys]
        floor = self._state.floor(self._table, wanted, [(_BEFORE_START, len(wanted))])
        found = [self._segment(data) for data in floor.rows]
        made, nth = list[int | None](), 0
        for place, count in floor.runs:
            for key in keys[nth : nth + count]:
                segment = None if place < 0 else found[place]
                inside = segment is not None and (segment.stop is None or key < segment.stop)
                made.append(segment.through if segment is not None and inside else None)
            nth += count
        return made

    def add(self, new: DeletedRanges, below: int | None) -> None:
        """Merge deletions in, and purge what they meet."""
        old: dict[bytes, Segment] = {}
        for start, stop in _hulls(new):
            old.update((segment.start, segment) for segment in self._meeting(start, stop))
        whole = ranges.highest([*old.values(), *new.segments])
        if below is not None:
            whole = ranges.purged(whole, below)
        self._stage(old, {segment.start: segment for segment in whole.segments})

    def purge(self, starts: Iterable[bytes]) -> None:
        """Drop segments that are due, but those that `add` has seen to."""
        left = [start for start in starts if start not in self._seen]
        rows = self._state.lookup(self._table, [_BEFORE_START + start for start in left])
        found = (self._segment(data) for data in rows if data is not None)
        self._stage({segment.start: segment for segment in found}, {})

    def _stage(self, before: Mapping[bytes, Segment], after: Mapping[bytes, Segment]) -> None:
        rows: dict[bytes, bytes | None] = {}
        moved = list[tuple[Due | None, Due | None]]()
        pack = self._table.row_codec.packer.call
        for start in before.keys() | after.keys():
            old, new = before.get(start), after.get(start)
            self._seen.add(start)
            if old == new:
                continue
            rows[_BEFORE_START + start] = None if new is None else pack(*new)
            moved.append((_segment_due(old), _segment_due(new)))
        stage_sorted(self._state, self._table, rows)
        self._due.stage(moved)

    def _meeting(self, start: bytes, stop: bytes | None) -> Iterator[Segment]:
        """Segments that meet a range or touch it."""
        first, last = _BEFORE_START + start, None if stop is None else _BEFORE_START + stop + b"\0"
        before = self._state.scan(self._table, stop=first, limit=1, reverse=True)
        for data in before.rows:
            segment = self._segment(data)
            if segment.stop is None or segment.stop >= start:
                yield segment
        more = True
        while more:
            chunk = self._state.scan(self._table, start=first, stop=last, limit=_AT_ONCE)
            yield from map(self._segment, chunk.rows)
            more = chunk.more
            if more:
                first = chunk.keys[-1] + b"\0"

    def _segment(self, data: bytes) -> Segment:
        return Segment(*self._table.row_codec.unpacker.call(data))


class RowTable:
    """The rows' states before this epoch."""

    def __init__(self, state: ShardState, table: StateTable, due: DueTable):
        self._state, self._table, self._due = state, table, due

    def batches(
        self, keys: Sequence[bytes], most: int
    ) -> Iterator[tuple[Sequence[bytes], list[RowState]]]:
        """The states of these rows, some at a time."""
        for _, some, rows in self._state.lookups(self._table, keys, most):
            yield some, [NOTHING if data is None else form.unpack(data) for data in rows]

    def between(
        self, start: bytes, stop: bytes | None, most: int
    ) -> Iterator[tuple[list[bytes], list[RowState]]]:
        """The states of all rows in a range of keys, some at a time."""
        more = True
        while more:
            chunk = self._state.scan(self._table, start=start, stop=stop, limit=most)
            if chunk.keys:
                yield chunk.keys, [form.unpack(data) for data in chunk.rows]
                start = chunk.keys[-1] + b"\0"
            more = chunk.more

    def stage(self, changes: Iterable[tuple[bytes, RowState, RowState]]) -> None:
        """Put new states in the place of old ones."""
        rows: dict[bytes, bytes | None] = {}
        moved = list[tuple[Due | None, Due | None]]()
        for key, old, new in changes:
            rows[key] = None if new == NOTHING else form.pack(new)
            moved.append((_row_due(key, old), _row_due(key, new)))
        stage_sorted(self._state, self._table, rows)
        self._due.stage(moved)


def stage_sorted(state: ShardState, table: StateTable, rows: Mapping[bytes, bytes | None]) -> None:
    """Stage rows in the order of their keys."""
    keys = sorted(rows)
    state.stage(table, keys, [rows[key] for key in keys])


def _row_due(key: bytes, state: RowState) -> Due | None:
    at = row.due(state)
    return None if at is None else Due(min(at, _LATEST), False, key)


def _segment_due(segment: Segment | None) -> Due | None:
    return None if segment is None else Due(min(segment.through + 1, _LATEST), True, segment.start)


def _hulls(new: DeletedRanges) -> Iterator[tuple[bytes, bytes | None]]:
    """Where segments that touch each other begin and end."""
    held: tuple[bytes, bytes | None] | None = None
    for start, stop, _ in new.segments:
        if held is not None and held[1] != start:
            yield held
            held = None
        held = (start if held is None else held[0], stop)
    if held is not None:
        yield held
