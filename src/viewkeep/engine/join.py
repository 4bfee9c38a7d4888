"""REVERSE-JOIN on one shard: what the changes of two arrangements do to their join.

Law, with L and R the sides at the epoch before and d their changes:

    d(L join R) = dL join R + L join dR + dL join dR
    d(L semi R) = dL where R has a partner after + L where that changed
    d(L anti R) = dL where R has none after      + L where that changed
    d(L left R) = d(L join R) + d(L anti R) with NULLs

Each term reads the partners of changed rows alone, by the prefix of their group. A row of the
result has the key of its left row. A group of many partners comes in batches, so the memory in use
is bounded by `ROWS_AT_ONCE` and not by the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from viewkeep.delta import KEY, WEIGHT, weighted, without
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import PLACE, run_steps
from viewkeep.plan.nodes import Join
from viewkeep.plan.program import Operator, Port

GROUP = "#group"
_OTHER = "#other"
ROWS_AT_ONCE = 200_000
_FEW = 1_000  # rows up to which Python's own loops are faster than queries


def run_join(
    operator: Operator,
    state: ShardState,
    left: Iterable[pl.DataFrame],
    right: Iterable[pl.DataFrame],
) -> Iterator[pl.DataFrame]:
    """The changes of a join, given those of its sides, each in any number of frames."""
    node = operator.node
    assert isinstance(node, Join)
    sides = [_Side(port, state) for port in operator.ports]
    ours, theirs = _Grouped(sides[0], left), _Grouped(sides[1], right)
    if node.shows_right:
        yield from _inner(sides, ours, theirs)
    if node.kind != "inner":
        for part in _existence(node, sides, ours, theirs):
            yield _widened(node, part) if node.kind == "left" else part


def join_rows(operator: Operator, state: ShardState, left: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of a join at the epoch before that belong to some rows of its left side."""
    node = operator.node
    assert isinstance(node, Join)
    sides = [_Side(port, state) for port in operator.ports]
    ours = sides[0].grouped(left)
    if node.shows_right:
        yield from sides[1].matched(ours)
    if node.kind != "inner":
        there, _ = sides[1].present(ours[GROUP].unique(), None)
        kept = pl.col(GROUP).is_in(there.implode())
        part = ours.filter(kept if node.kind == "semi" else ~kept).drop(GROUP)
        yield _widened(node, part) if node.kind == "left" else part


class _Side:
    """One side: its table as of the epoch before, and how its rows are grouped."""

    def __init__(self, port: Port, state: ShardState):
        self.port, self.table, self.state = port, port.table, state

    def grouped(self, delta: pl.DataFrame) -> pl.DataFrame:
        """The rows with the bytes of their group."""
        columns = [delta[name] for name in self.port.group]
        return delta.hstack([self.table.groups(columns, delta.height, GROUP)])

    def partners(self, groups: list[bytes]) -> Iterator[pl.DataFrame]:
        """The rows of these groups, in batches; `#place` says which group a row is of."""
        if self.table.unique_groups:
            for start in range(0, len(groups), ROWS_AT_ONCE):
                some = groups[start : start + ROWS_AT_ONCE]
                rows = self.state.lookup(self.table, some)
                there = [i for i, row in enumerate(rows) if row is not None]
                found = [row for row in rows if row is not None]
                yield self._frame([start + i for i in there], [some[i] for i in there], found)
            return
        prefixes = [self.table.prefix(group) for group in groups]
        for batch in self.state.find(self.table, prefixes):
            yield self._frame(batch.places, batch.keys, batch.rows)

    def matched(self, others: pl.DataFrame, mine_is_left: bool = False) -> Iterator[pl.DataFrame]:
        """Rows of the other side with their partners here, weighted as the other side's rows."""
        groups, places = _numbered(others[GROUP])
        # The key of the result is that of the left row.
        placed = without(others, GROUP, KEY) if mine_is_left else without(others, GROUP)
        placed = placed.hstack([places])
        for batch in self.partners(groups):
            mine = batch if mine_is_left else without(batch, KEY)
            partners = np.bincount(placed[PLACE].to_numpy(), minlength=len(groups))
            few = int(partners[mine[PLACE].to_numpy()].sum()) <= ROWS_AT_ONCE
            parts = [placed.join(mine, on=PLACE)] if few else _pairs(placed, mine, PLACE)
            for part in parts:
                yield without(part, PLACE)

    def present(
        self, groups: pl.Series, changes: pl.DataFrame | None
    ) -> tuple[pl.Series, pl.Series]:
        """Of these groups those that had rows before the changes of this side, and have after."""
        sought: list[bytes] = groups.to_list()
        gone: dict[bytes, set[bytes]] = {}
        come: set[bytes] = set()
        if changes is not None:
            # An update of a row is one of each weight: it stays.
            net = changes.group_by(GROUP, KEY).agg(pl.col(WEIGHT).sum())
            come = set(net.filter(pl.col(WEIGHT) > 0)[GROUP].to_list())
            for group, key in net.filter(pl.col(WEIGHT) < 0).select(GROUP, KEY).iter_rows():
                gone.setdefault(group, set()).add(key)
        before, stays = set[bytes](), set[bytes]()
        for group, key in self._first_keys(sought, gone):
            before.add(group)
            if key not in gone.get(group, ()):
                stays.add(group)
        after = stays | come
        return (
            pl.Series(GROUP, [g for g in sought if g in before], pl.Binary),
            pl.Series(GROUP, [g for g in sought if g in after], pl.Binary),
        )

    def _first_keys(
        self, groups: list[bytes], gone: dict[bytes, set[bytes]]
    ) -> Iterator[tuple[bytes, bytes]]:
        """The first keys of each group: one more than go."""
        if self.table.unique_groups:
            for frame in self.partners(groups):
                for place, key in frame.select(PLACE, KEY).iter_rows():
                    yield groups[place], key
            return
        prefixes = [self.table.prefix(group) for group in groups]
        limits = [1 + len(gone.get(group, ())) for group in groups]
        for batch in self.state.find(self.table, prefixes, limits):
            for place, key in zip(batch.places, batch.keys, strict=True):
                yield groups[place], key

    def _frame(self, places: list[int], keys: list[bytes], rows: list[bytes]) -> pl.DataFrame:
        needed, steps = self.port.narrowed
        names = [column.name for column in self.table.columns if column.name in needed]
        frame = self.table.row_codec.decode(rows, names) if names else pl.DataFrame()
        frame = frame.hstack([pl.Series(PLACE, places, pl.Int64), pl.Series(KEY, keys, pl.Binary)])
        return run_steps(steps, frame)


class _Grouped:
    """The changes of one side with the bytes of their group. Frames in a list are made once."""

    def __init__(self, side: _Side, frames: Iterable[pl.DataFrame]):
        self._side, self._frames = side, frames
        self._made = list(self._make()) if isinstance(frames, (list, tuple)) else None

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return self._make() if self._made is None else iter(self._made)

    def _make(self) -> Iterator[pl.DataFrame]:
        return (self._side.grouped(frame) for frame in self._frames if frame.height)


def _inner(sides: list[_Side], ours: _Grouped, theirs: _Grouped) -> Iterator[pl.DataFrame]:
    for left in ours:
        yield from sides[1].matched(left)
    for right in theirs:
        yield from sides[0].matched(right, mine_is_left=True)
    for right in theirs:
        others = without(right, KEY, WEIGHT).hstack([right[WEIGHT].alias(_OTHER)])
        for left in ours:
            for part in _pairs(left, others, GROUP):
                product = part[WEIGHT] * part[_OTHER]
                yield without(part, WEIGHT, _OTHER, GROUP).hstack([product])


def _existence(
    node: Join, sides: list[_Side], ours: _Grouped, theirs: _Grouped
) -> Iterator[pl.DataFrame]:
    """The changes of left rows that have (semi), or have not (left, anti), a partner."""
    wanted = node.kind == "semi"
    parts = [right.select(GROUP, KEY, WEIGHT) for right in theirs]
    changes = pl.concat(parts) if parts else None
    there: tuple[pl.Series, pl.Series] | None = None
    for left in ours:
        touched = [left[GROUP]] if changes is None else [left[GROUP], changes[GROUP]]
        there = sides[1].present(pl.concat(touched).unique(), changes)
        has = pl.col(GROUP).is_in(there[1].implode())
        yield left.filter(has if wanted else ~has).drop(GROUP)
    if changes is None:
        return
    before, after = there or sides[1].present(changes[GROUP].unique(), changes)
    for groups, shown in (
        (after.filter(~after.is_in(before.implode())), wanted),
        (before.filter(~before.is_in(after.implode())), not wanted),
    ):
        for batch in sides[0].partners(groups.to_list()):
            yield weighted(without(batch, PLACE), 1 if shown else -1)


def _widened(node: Join, rows: pl.DataFrame) -> pl.DataFrame:
    """Left rows with NULLs for the right side's columns."""
    return rows.with_columns(
        pl.lit(None, column.type.polars).alias(column.name) for column in node.right.columns
    )


def _numbered(groups: pl.Series) -> tuple[list[bytes], pl.Series]:
    """The different groups, and the place of each one's among them."""
    if len(groups) <= _FEW:
        numbers: dict[bytes, int] = {}
        places = [numbers.setdefault(group, len(numbers)) for group in groups.to_list()]
        return list(numbers), pl.Series(PLACE, places, pl.Int64)
    different = groups.unique()
    every = pl.DataFrame([different, pl.Series(PLACE, np.arange(len(different)))])
    placed = groups.to_frame().join(every, on=GROUP, how="left", maintain_order="left")
    return different.to_list(), placed[PLACE]


def _pairs(one: pl.DataFrame, other: pl.DataFrame, on: str) -> Iterator[pl.DataFrame]:
    """The join of two frames, in pieces of at most twice `ROWS_AT_ONCE` rows."""
    if one.height * other.height <= ROWS_AT_ONCE:
        yield one.join(other, on=on)
        return
    partners = one.group_by(on).len("#partners")
    other = other.join(partners, on=on)
    ends = other["#partners"].cast(pl.Int64).cum_sum()
    other = other.drop("#partners")
    total = int(ends[-1]) if len(ends) else 0
    start = 0
    while start < other.height:
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(ends.search_sorted(done + ROWS_AT_ONCE, "right")))
        some = other.slice(start, stop - start)
        start = stop
        if total <= ROWS_AT_ONCE:
            yield one.join(some, on=on)
            return
        # A row may have more partners than that by itself.
        for begin in range(0, one.height, ROWS_AT_ONCE):
            part = one.slice(begin, ROWS_AT_ONCE).join(some, on=on)
            if part.height:
                yield part
