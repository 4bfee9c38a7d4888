"""The ordered tables of an Aggregate in the rows lane: MIN, MAX, MIN_BY, MAX_BY, DISTINCT.

Law: what `values.ordered` does to pages of values, value by value, with the same bytes. Keys that
are cut are not in the order of their values; where one comes up, the columns lane takes over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from viewkeep.codec.keys import GROUP_BYTES, KEPT
from viewkeep.codec.packed import Packed
from viewkeep.codec.pages import pack, pack_one, rows_of
from viewkeep.codec.rowsource import Generated, compiled
from viewkeep.deferred import np
from viewkeep.engine.rows.delta import ColumnsNeeded, Values
from viewkeep.engine.state import ShardState
from viewkeep.engine.values import pages
from viewkeep.engine.values.seek import seek_pages
from viewkeep.errors import PipelineError
from viewkeep.ops.aggregates import row_form
from viewkeep.ops.aggregates.accumulators import Accumulators
from viewkeep.ops.aggregates.extremes import Extreme
from viewkeep.ops.aggregates.function import Kept, Output
from viewkeep.ops.aggregates.ordered import Ordered
from viewkeep.plan.program import StateTable
from viewkeep.stores.contract import NONE


@dataclass
class GroupValues:
    """What an epoch does to the values of one group."""

    moved: list[tuple[Values, int]] = field(default_factory=list)  # appeared: +1, left: -1
    dead: set[bytes] = field(default_factory=set)  # the keys of those that left
    edges: dict[bytes, Values] = field(default_factory=dict)  # outermost ones of changed pages


class OrderedRows:
    """One ordered table: applies the gains of values."""

    def __init__(self, table: StateTable, order: Ordered, kept: Accumulators):
        self.table, self.order, self.kept = table, order, kept
        self.distinct = kept.distinct(order)
        self.outputs = kept.depending(Kept.EXTREME, order)
        self.shown = [name for output in self.outputs for name in _columns(output)]
        self._place = {column.name: place for place, column in enumerate(kept.columns)}

    @cached_property
    def _pairs(self) -> list[int]:
        return row_form.pairs_among(self.distinct, 0)

    @cached_property
    def _count(self) -> Generated:
        """`count(group, value, weight)`: adds a value that appeared or left to distinct totals."""
        lines = ["def count(group, value, weight):", "    value = value[0]"]
        names = dict(row_form.NAMES)
        at = 0
        for total in self.distinct:
            lines += [f"    {line}" for line in total.row_gain(["value"], at, names)]
            at += len(total.columns)
        return compiled(lines, names)

    @cached_property
    def _blank(self) -> Generated:
        """`blank()`: the slots of the distinct totals before any value."""
        zeros = ", ".join(zero for total in self.distinct for zero in row_form.zeros(total))
        return compiled(["def blank():", f"    return [{zeros}]"], {})

    def advance(
        self,
        state: ShardState,
        keys: Sequence[bytes],
        gains: dict[tuple[bytes, Values], int],
        olds: Sequence[Values | None],
        alive: Sequence[bool],
    ) -> OrderedChange:
        """The table after the gains of these groups, which were `olds` and may be `alive` after."""
        change = OrderedChange(self, state, keys, olds, alive)
        suffix = self.order.key_codec.packer.call
        by_key: list[tuple[bytes, bytes, Values, int]] = []
        for (key, value), times in gains.items():
            if times:
                end = suffix(*value)
                if len(key) >= GROUP_BYTES or len(key) + len(end) > KEPT:
                    raise ColumnsNeeded
                by_key.append((key + end, key, value, times))
        by_key.sort(key=lambda gain: gain[0])
        lows: list[tuple[bytes, int]] = []
        for _, key, *_ in by_key:
            if lows and lows[-1][0] == key:
                lows[-1] = (key, lows[-1][1] + 1)
            else:
                lows.append((key, 1))
        if by_key:
            floor = state.floor(self.table, [gain[0] for gain in by_key], lows)
            first = 0
            for place, count in floor.runs:
                some = by_key[first : first + count]
                first += count
                if place == NONE:
                    change.page(some[0][1], None, some)
                else:
                    change.page(floor.keys[place], floor.rows[place], some)
        return change


class OrderedChange:
    """What an epoch does to one ordered table."""

    def __init__(
        self,
        ordered: OrderedRows,
        state: ShardState,
        keys: Sequence[bytes],
        olds: Sequence[Values | None],
        alive: Sequence[bool],
    ):
        self._ordered, self._state = ordered, state
        self._keys, self._olds, self._alive = keys, olds, alive
        self._groups: dict[bytes, GroupValues] = {}
        self._page_keys: list[bytes] = []
        self._page_rows: list[bytes | None] = []
        codec = ordered.order.row_codec
        self._unpack, self._pack = codec.unpacker.call, codec.packer.call
        self._width = codec.width
        self._suffix = ordered.order.key_codec.packer.call

    def page(
        self, key: bytes, page: bytes | None, gains: Sequence[tuple[bytes, bytes, Values, int]]
    ) -> None:
        """Apply the gains of the values of one page, which lies under `key`."""
        group = gains[0][1]
        values = self._groups.setdefault(group, GroupValues())
        rows = [] if page is None else rows_of(page, self._width)

        def key_of(row: bytes) -> bytes:
            return self._key(group, row)

        for full, _, value, gain in gains:
            at = bisect_left(rows, full, key=key_of)
            held = at < len(rows) and key_of(rows[at]) == full
            times = gain + (self._unpack(rows[at])[-1] if held else 0)
            if times < 0 or (not held and not times):
                raise PipelineError(
                    f"one of the {self._ordered.table.purpose} is removed more often than it was "
                    "added"
                )
            if not held:
                rows.insert(at, self._pack(*value, times))
                values.moved.append((value, 1))
            elif times:
                rows[at] = self._pack(*value, times)
            else:
                del rows[at]
                values.moved.append((value, -1))
                values.dead.add(full)
        for row in {rows[0], rows[-1]} if rows else ():
            values.edges[key_of(row)] = self._unpack(row)[:-1]
        self._write(key, group, rows)

    def _key(self, group: bytes, row: bytes) -> bytes:
        """The key of a value in a page."""
        full: bytes = group + self._suffix(*self._unpack(row)[:-1])
        if len(full) > KEPT:
            raise ColumnsNeeded
        return full

    def _write(self, key: bytes, group: bytes, rows: list[bytes]) -> None:
        if not rows:
            self._page_keys.append(key)
            self._page_rows.append(None)
            return
        whole = pack_one(rows, self._width)
        if len(whole) <= pages.FULL and len(rows) <= pages.MANY:
            self._page_keys.append(key)
            self._page_rows.append(whole)
            return
        packed = Packed.from_list(rows)
        firsts = pages.cut(packed, np.zeros(len(rows), np.int64), self._width)
        for first, body in zip(firsts.tolist(), pack(packed, firsts, self._width), strict=True):
            self._page_keys.append(self._key(group, rows[first]) if first else key)
            self._page_rows.append(body)

    def stage(self, state: ShardState) -> None:
        """Stage the pages."""
        state.stage(self._ordered.table, self._page_keys, self._page_rows)

    def of_group(self, place: int) -> tuple[list[Any], list[Any]]:
        """For the group at this place the gains of its distinct totals, and its outputs."""
        ordered = self._ordered
        values = self._groups.get(self._keys[place])
        counted = ordered._blank.call() if ordered.distinct else []
        if values is not None and ordered.distinct:
            for value, weight in values.moved:
                ordered._count.call(counted, value, weight)
        if ordered._pairs:
            row_form.settled(counted, ordered._pairs)
        shown: list[Any] = []
        for output in ordered.outputs:
            shown += self._extreme(output, place, values)
        return counted, shown

    def _extreme(self, output: Output, place: int, values: GroupValues | None) -> Sequence[Any]:
        """The columns of a MIN or MAX of one group after the epoch."""
        held = self._held(output, place)
        if values is None:
            return held or [None] * len(_columns(output))
        candidates = dict(values.edges)
        largest = _is_largest(output)
        if held is not None and held[0] is not None:
            full = self._held_key(place, held)
            if full not in values.dead:
                candidates[full] = held
            elif (found := self._next[largest].get(place)) is not None:
                candidates[found[0]] = found[1]
        if not candidates:
            return [None] * len(_columns(output))
        return candidates[max(candidates) if largest else min(candidates)]

    def _held(self, output: Output, place: int) -> Values | None:
        """The columns of a MIN or MAX of one group as they were."""
        old, at = self._olds[place], self._ordered._place
        return None if old is None else tuple(old[at[n] + self._shift] for n in _columns(output))

    def _held_key(self, place: int, held: Values) -> bytes:
        full: bytes = self._keys[place] + self._suffix(*held)
        if len(full) > KEPT:
            raise ColumnsNeeded
        return full

    @cached_property
    def _shift(self) -> int:
        """Where the columns after the keys begin in a group's row."""
        return len(self._ordered.table.key_names[: self._ordered.table.group])

    @cached_property
    def _next(self) -> dict[bool, dict[int, tuple[bytes, Values]]]:
        """For MIN, False, and MAX, True: of the groups that lost theirs the next value, by place.

        It is the first of those that were there before the epoch and have not left.
        """
        lost: dict[bool, dict[int, bytes]] = {False: {}, True: {}}
        for output in self._ordered.outputs:
            for place, key in enumerate(self._keys):
                values, held = self._groups.get(key), self._held(output, place)
                if values is None or held is None or held[0] is None or not self._alive[place]:
                    continue
                if self._held_key(place, held) in values.dead:
                    lost[_is_largest(output)][place] = key
        return {largest: self._first_left(groups, largest) for largest, groups in lost.items()}

    def _first_left(
        self, groups: dict[int, bytes], reverse: bool
    ) -> dict[int, tuple[bytes, Values]]:
        """The first or last value of each group without those that left."""
        made: dict[int, tuple[bytes, Values]] = {}

        def take(place: int, page: bytes) -> bool:
            key = groups[place]
            rows = rows_of(page, self._width)
            for row in reversed(rows) if reverse else rows:
                full = self._key(key, row)
                if full not in self._groups[key].dead:
                    made[place] = full, self._unpack(row)[:-1]
                    return True
            return False

        seek_pages(self._state, self._ordered.table, groups, take, reverse=reverse)
        return made


def _is_largest(output: Output) -> bool:
    assert isinstance(output.function, Extreme)
    return output.function.is_largest


def _columns(output: Output) -> list[str]:
    """The columns of a group's row that hold a MIN or MAX, in the order of its values."""
    return [*(column.name for column in output.hidden), output.name]
