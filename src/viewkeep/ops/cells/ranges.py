"""Range deletions: a step function from keys to the latest timestamp that deletes them.

Law: `joined` is the pointwise maximum, hence a join; equal functions are equal values, since
neighbouring segments with one timestamp are one. So however many ranges overlap, at most twice as
many segments are kept as there were ranges, and a key finds its deletion by one search.

        timestamp   7        ┌───────────┐
                    5   ┌────┘           └──┐          three segments
                    ────┴───────────────────┴─── keys
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from viewkeep.cells import CellKind, CellOperation


class Segment(NamedTuple):
    """Keys with start <= key < stop are deleted through a timestamp. No stop: there is no end."""

    start: bytes
    stop: bytes | None
    through: int


class DeletedRanges(NamedTuple):
    """Segments in key order. They do not overlap, and neighbours that touch differ."""

    segments: tuple[Segment, ...] = ()

    def covering(self, key: bytes) -> int | None:
        """The latest range deletion of a key."""
        place = bisect_right(self.segments, key, key=_start) - 1
        if place < 0:
            return None
        segment = self.segments[place]
        return segment.through if segment.stop is None or key < segment.stop else None


NO_RANGES: Final = DeletedRanges()


def of(operations: Iterable[CellOperation]) -> DeletedRanges:
    """The state that some range deletions make."""
    segments = list[Segment]()
    for operation in operations:
        assert operation.kind is CellKind.DELETE_RANGE
        segments.append(Segment(operation.key, operation.stop, operation.timestamp))
    return highest(segments)


def joined(one: DeletedRanges, other: DeletedRanges) -> DeletedRanges:
    """The state after the deletions of both."""
    return highest([*one.segments, *other.segments])


def highest(segments: Iterable[Segment]) -> DeletedRanges:
    """The pointwise maximum of segments that may overlap."""
    there = [one for one in segments if one.stop is None or one.start < one.stop]
    bounds = sorted({one.start for one in there} | {one.stop for one in there if one.stop})
    opening: dict[bytes, list[int]] = {}
    closing: dict[bytes, list[int]] = {}
    for one in there:
        opening.setdefault(one.start, []).append(one.through)
        if one.stop is not None:
            closing.setdefault(one.stop, []).append(one.through)
    made, active = list[Segment](), dict[int, int]()
    for place, start in enumerate(bounds):
        for through in closing.get(start, ()):
            active[through] -= 1
            if not active[through]:
                del active[through]
        for through in opening.get(start, ()):
            active[through] = active.get(through, 0) + 1
        if not active:
            continue
        stop = bounds[place + 1] if place + 1 < len(bounds) else None
        through = max(active)
        if made and made[-1].stop == start and made[-1].through == through:
            made[-1] = made[-1]._replace(stop=stop)
        else:
            made.append(Segment(start, stop, through))
    return DeletedRanges(tuple(made))


def purged(ranges: DeletedRanges, below: int) -> DeletedRanges:
    """The state when no operation with a timestamp below this one will come any more."""
    return DeletedRanges(tuple(one for one in ranges.segments if one.through >= below))


def _start(segment: Segment) -> bytes:
    return segment.start
