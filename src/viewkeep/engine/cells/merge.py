"""Merging what an epoch's operations say into the rows of a shard.

Law: after it, the state is the join of the one before with all that came, purged by the watermark;
the changes given out are the differences of the visible rows. What changes no state writes nothing,
so repetitions cost a read. Each row, segment and entry of `due` is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from viewkeep.cells import CellRules
from viewkeep.engine.cells.tables import Due, DueTable, RowTable, SegmentTable
from viewkeep.engine.state import ShardState
from viewkeep.ops.cells import row
from viewkeep.ops.cells.column import later
from viewkeep.ops.cells.ranges import NO_RANGES, DeletedRanges
from viewkeep.ops.cells.row import RowState
from viewkeep.plan.program import StateTable

Changed: TypeAlias = tuple[bytes, RowState, RowState]

_AT_ONCE: Final = 10_000  # rows read together, as amounts
_PURGED: Final = 1_000  # entries that an epoch purges besides one for each row that came


@dataclass(frozen=True)
class MergeInput:
    """What has come for rows with `after` < key <= `last`, and all range deletions of the epoch."""

    rows: Mapping[bytes, RowState] = field(default_factory=dict)
    deleted: DeletedRanges = NO_RANGES
    after: bytes | None = None
    last: bytes | None = None  # None: there is no further part

    def holds(self, key: bytes) -> bool:
        """Whether a row with this key is of the part."""
        return (self.after is None or self.after < key) and (self.last is None or key <= self.last)


class Merge:
    """One part of what has come for a shard."""

    def __init__(
        self, state: ShardState, tables: tuple[StateTable, ...], rules: CellRules, part: MergeInput
    ):
        rows, segments, due = tables
        self._due = DueTable(state, due)
        self._rows = RowTable(state, rows, self._due)
        self._segments = SegmentTable(state, segments, self._due)
        self._below, self._rules, self._part = state.purge_below, rules, part

    def run(self) -> Iterator[list[Changed]]:
        """Stage all that changes; the states of rows before and after, some at a time."""
        if self._part.after is None and self._part.deleted.segments:
            self._segments.add(self._part.deleted, self._below)
        yield from self._operations()
        yield from self._deletions()
        self._purge()

    def _operations(self) -> Iterator[list[Changed]]:
        """Rows that operations came for."""
        come, deleted = self._part.rows, self._part.deleted
        for keys, states in self._rows.batches(sorted(come), _AT_ONCE):
            changed = list[Changed]()
            older = self._segments.covering(keys)
            for key, old, covering in zip(keys, states, older, strict=True):
                new = row.joined(old, come[key], self._rules)
                new = self._purged(row.covered(new, later(covering, deleted.covering(key))))
                if new != old:
                    changed.append((key, old, new))
            self._rows.stage(changed)
            yield changed

    def _deletions(self) -> Iterator[list[Changed]]:
        """Rows that nothing came for but a deletion of a range."""
        part = self._part
        first = None if part.after is None else part.after + b"\0"
        last = None if part.last is None else part.last + b"\0"
        for segment in part.deleted.segments:
            start = segment.start if first is None else max(first, segment.start)
            ends = [end for end in (segment.stop, last) if end is not None]
            stop = min(ends, default=None)
            if stop is not None and start >= stop:
                continue
            for keys, states in self._rows.between(start, stop, _AT_ONCE):
                changed = list[Changed]()
                for key, old in zip(keys, states, strict=True):
                    if key not in part.rows:
                        new = self._purged(row.covered(old, segment.through))
                        if new != old:
                            changed.append((key, old, new))
                self._rows.stage(changed)
                yield changed

    def _purge(self) -> None:
        """Drop what the watermark has made needless elsewhere, the longest due first."""
        below, part = self._below, self._part
        if below is None:
            return
        entries = list(self._due.until(below, len(part.rows) + _PURGED))
        if part.after is None:
            self._segments.purge(due.key for due in entries if due.is_segment)
        rows = iter(sorted(due.key for due in entries if self._is_left(due)))
        while keys := list(islice(rows, _AT_ONCE)):
            for some, states in self._rows.batches(keys, _AT_ONCE):
                pairs = zip(some, states, strict=True)
                purged = [(key, old, row.purged(old, below)) for key, old in pairs]
                self._rows.stage([change for change in purged if change[1] != change[2]])

    def _is_left(self, due: Due) -> bool:
        """Whether a row is of this part, and was not seen to by what came."""
        part = self._part
        if due.is_segment or due.key in part.rows or not part.holds(due.key):
            return False
        return part.deleted.covering(due.key) is None

    def _purged(self, state: RowState) -> RowState:
        return state if self._below is None else row.purged(state, self._below)
