"""An arrangement as a reader sees it in the rows lane: its rows at the epoch before, by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from viewkeep.codec.rowsource import Generated
from viewkeep.engine.rows.delta import Rows, TooMany, Values
from viewkeep.engine.rows.transform import transform
from viewkeep.engine.state import ShardState
from viewkeep.ops.rowcode import NoRowForm
from viewkeep.plan.program import Port

MOST_ROWS = 20_000  # that a reader reads or makes in the rows lane


class ArrangementSide:
    """The table behind a port."""

    def __init__(self, port: Port):
        self.port, self.table = port, port.table
        names = [column.name for column in port.columns]
        places = [names.index(name) for name in port.group]
        self.group = self.table.group_codec.of_row(places)
        self._unpack = self.table.row_codec.unpacker.call

    @cached_property
    def has_rows(self) -> bool:
        """Whether the steps on the way from the table have row forms."""
        try:
            _ = self._steps
        except NoRowForm:
            return False
        return True

    @cached_property
    def _steps(self) -> Generated | None:
        needed, steps = self.port.narrowed
        shape = tuple(column.name for column in self.table.columns)
        shown = tuple(column.name for column in self.port.columns)
        return transform(shape, needed, steps, shown)

    def grouped(self, rows: Rows) -> dict[bytes, Rows]:
        """Changes by their groups."""
        made: dict[bytes, Rows] = {}
        group = self.group
        for row in rows:
            made.setdefault(group(row[1]), []).append(row)
        return made

    def partners(
        self, state: ShardState, groups: Sequence[bytes], limits: Sequence[int] | None = None
    ) -> dict[bytes, list[tuple[bytes, Values]]]:
        """The keys and values of the rows of some groups, or of the first so many of each."""
        made: dict[bytes, list[tuple[bytes, Values]]] = {}
        if not groups:
            return made
        unpack, steps, total = self._unpack, self._steps, 0
        for owners, keys, rows in self._found(state, groups, limits):
            total += len(rows)
            if total > MOST_ROWS:
                raise TooMany
            found: Rows = [
                (key, unpack(row), at) for key, row, at in zip(keys, rows, owners, strict=True)
            ]
            for key, values, at in steps.call(found) if steps else found:
                made.setdefault(groups[at], []).append((key, values))
        return made

    def _found(
        self, state: ShardState, groups: Sequence[bytes], limits: Sequence[int] | None
    ) -> Iterator[tuple[Sequence[int], Sequence[bytes], Sequence[bytes]]]:
        """Places among the groups, keys and rows."""
        if self.table.unique_groups:
            held = state.lookup(self.table, groups)
            there = [(at, groups[at], row) for at, row in enumerate(held) if row is not None]
            if there:
                places, keys, rows = zip(*there, strict=True)
                yield places, keys, rows
            return
        prefixes = [self.table.prefix(group) for group in groups]
        for batch in state.find(self.table, prefixes, limits):
            yield batch.places, batch.keys, batch.rows

    def between(self, state: ShardState, ranges: Sequence[tuple[bytes, bytes, int]]) -> Rows:
        """The rows in ranges of keys, from start to before stop, with the weight of their range."""
        made: Rows = []
        if not ranges:
            return made
        unpack, steps, total = self._unpack, self._steps, 0
        bounds = [(start, stop) for start, stop, _ in ranges]
        for found in state.scan_ranges(self.table, bounds):
            total += len(found.rows)
            if total > MOST_ROWS:
                raise TooMany
            rows: Rows = [
                (key, unpack(row), ranges[place][2])
                for place, key, row in zip(found.places, found.keys, found.rows, strict=True)
            ]
            made += steps.call(rows) if steps else rows
        return made

    def present(
        self, state: ShardState, groups: Sequence[bytes], changes: dict[bytes, Rows]
    ) -> tuple[set[bytes], set[bytes]]:
        """Of these groups those that had rows before the changes of this side, and have after."""
        come = set[bytes]()
        gone: dict[bytes, set[bytes]] = {}
        for group, rows in changes.items():
            net: dict[bytes, int] = {}
            for key, _, weight in rows:
                net[key] = net.get(key, 0) + weight
            if any(weight > 0 for weight in net.values()):
                come.add(group)
            if lost := {key for key, weight in net.items() if weight < 0}:
                gone[group] = lost
        limits = [1 + len(gone.get(group, ())) for group in groups]
        before = self.partners(state, groups, None if self.table.unique_groups else limits)
        stays = {
            group
            for group, rows in before.items()
            if any(key not in gone.get(group, ()) for key, _ in rows)
        }
        return set(before), stays | come
