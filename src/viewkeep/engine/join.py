"""REVERSE-JOIN on one shard: what the changes of two arrangements do to their join.

Law, with L and R the sides at the epoch before and d their changes:

    d(L join R) = dL join R + L join dR + dL join dR
    d(L semi R) = dL where R has a partner after + L where that changed
    d(L anti R) = dL where R has none after      + L where that changed
    d(L left R) = d(L join R) + d(L anti R) with NULLs

Each term reads the partners of changed rows alone, by the prefix of their group. A row of the
result has the key of its left row. A group of many partners comes in batches, so the memory in use
is bounded by `ROWS_AT_ONCE` and not by the group. Of the right side's changes a join that asks for
existence holds the groups that get rows, and the keys that go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl

from viewkeep.delta import KEY, WEIGHT, weighted, without
from viewkeep.engine.amounts import ROW_BYTES, amount_of, parts, row_sizes
from viewkeep.engine.batches import project_batches, width
from viewkeep.engine.budget import SMALL, Budget
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import PLACE, run_steps
from viewkeep.errors import QueryTooLarge
from viewkeep.plan.nodes import Join
from viewkeep.plan.program import Operator, Port

GROUP = "#group"
_OTHER = "#other"
ROWS_AT_ONCE = 200_000  # as amounts
MOST_JOINED = 20_000_000  # rows that a join of a query may have


def run_join(
    operator: Operator,
    state: ShardState,
    left: Iterable[pl.DataFrame],
    right: Iterable[pl.DataFrame],
) -> Iterator[pl.DataFrame]:
    """The changes of a join, given those of its sides, each in any number of frames."""
    node = operator.node
    assert isinstance(node, Join)
    sides = [TableSide(port, state) for port in operator.ports]
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
    sides = [TableSide(port, state) for port in operator.ports]
    ours = sides[0].grouped(left)
    if node.shows_right:
        yield from sides[1].matched(ours)
    if node.kind != "inner":
        there, _ = sides[1].present(ours[GROUP].unique(), _Moves(()))
        kept = pl.col(GROUP).is_in(there.implode())
        part = ours.filter(kept if node.kind == "semi" else ~kept).drop(GROUP)
        yield _widened(node, part) if node.kind == "left" else part


class TableSide:
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
            for start, some, rows in self.state.lookups(self.table, groups, ROWS_AT_ONCE):
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
        rows = _Placed(placed.hstack([places]), len(groups))
        for batch in self.partners(groups):
            mine = batch if mine_is_left else without(batch, KEY)
            for part in rows.pairs(mine):
                yield without(part, PLACE)

    def present(self, groups: pl.Series, moves: _Moves) -> tuple[pl.Series, pl.Series]:
        """Of these groups those that had rows before the changes of this side, and have after."""
        sought: list[bytes] = groups.sort().to_list()
        before, stays = set[bytes](), set[bytes]()
        for group, key in self._first_keys(sought, moves.gone):
            before.add(group)
            if key not in moves.gone.get(group, ()):
                stays.add(group)
        after = stays | moves.come
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


class _Moves:
    """What the changes of a side do to its groups: those that get rows, and the keys that go.

    All changes of a row are in one frame. An update of it is one of each weight: it stays.
    """

    def __init__(self, changes: Iterable[pl.DataFrame]):
        self.come: set[bytes] = set()
        self.gone: dict[bytes, set[bytes]] = {}
        for frame in changes:
            net = frame.group_by(GROUP, KEY).agg(pl.col(WEIGHT).sum())
            self.come.update(net.filter(pl.col(WEIGHT) > 0)[GROUP].unique().to_list())
            for group, key in net.filter(pl.col(WEIGHT) < 0).select(GROUP, KEY).iter_rows():
                self.gone.setdefault(group, set()).add(key)

    @property
    def groups(self) -> pl.Series:
        return pl.Series(GROUP, list(self.come | self.gone.keys()), pl.Binary)


class _Placed:
    """Rows with the places of their groups, to be joined with others on their places."""

    def __init__(self, rows: pl.DataFrame, groups: int):
        self._rows, self._sizes, self._places = rows, row_sizes(rows), rows[PLACE].to_numpy()
        self._counts = np.bincount(self._places, minlength=groups)
        self._held = np.bincount(self._places, self._sizes, groups)

    def pairs(self, others: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """The pairs of these rows and others, in pieces of at most `ROWS_AT_ONCE`."""
        places, sizes = others[PLACE].to_numpy(), row_sizes(others)
        counts = self._counts[places]
        joined = self._held[places] + counts * sizes
        amounts = np.maximum(counts, joined // ROW_BYTES).astype(np.int64)
        if amounts.sum() <= ROWS_AT_ONCE:
            yield self._rows.join(others, on=PLACE)
            return
        for part in parts(amounts, ROWS_AT_ONCE):
            some = others[part]
            if amounts[part].sum() <= ROWS_AT_ONCE:
                yield self._rows.join(some, on=PLACE)
                continue
            # A row may have more partners than that by itself.
            mine = np.flatnonzero(self._places == places[part.start])
            joined = self._sizes[mine] + sizes[part.start]
            amounts_here = np.maximum(1, joined // ROW_BYTES).astype(np.int64)
            for few in parts(amounts_here, ROWS_AT_ONCE):
                yield self._rows[mine[few]].join(some, on=PLACE)


class _Grouped:
    """The changes of one side with the bytes of their group. Frames in a list are made once."""

    def __init__(self, side: TableSide, frames: Iterable[pl.DataFrame]):
        self._side, self._frames = side, frames
        self._made = list(self._make()) if isinstance(frames, (list, tuple)) else None

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return self._make() if self._made is None else iter(self._made)

    def _make(self) -> Iterator[pl.DataFrame]:
        return (self._side.grouped(frame) for frame in self._frames if frame.height)


def _inner(sides: list[TableSide], ours: _Grouped, theirs: _Grouped) -> Iterator[pl.DataFrame]:
    for left in ours:
        yield from sides[1].matched(left)
    for right in theirs:
        yield from sides[0].matched(right, mine_is_left=True)
    for right in theirs:
        others = without(right, KEY, WEIGHT).hstack([right[WEIGHT].alias(_OTHER)])
        for left in ours:
            for part in _pairs(left, others):
                product = part[WEIGHT] * part[_OTHER]
                yield without(part, WEIGHT, _OTHER).hstack([product])


def _existence(
    node: Join, sides: list[TableSide], ours: _Grouped, theirs: _Grouped
) -> Iterator[pl.DataFrame]:
    """The changes of left rows that have (semi), or have not (left, anti), a partner."""
    wanted = node.kind == "semi"
    moves = _Moves(theirs)
    moved = moves.groups
    there: tuple[pl.Series, pl.Series] | None = None
    for left in ours:
        there = sides[1].present(pl.concat([left[GROUP], moved]).unique(), moves)
        has = pl.col(GROUP).is_in(there[1].implode())
        yield left.filter(has if wanted else ~has).drop(GROUP)
    if moved.is_empty():
        return
    before, after = there or sides[1].present(moved, moves)
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
    different = groups.unique()
    every = pl.DataFrame([different, pl.Series(PLACE, np.arange(len(different)))])
    placed = groups.to_frame().join(every, on=GROUP, how="left", maintain_order="left")
    return different.to_list(), placed[PLACE]


def _pairs(one: pl.DataFrame, other: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The pairs of the rows of two frames that have one group, in pieces; without the group."""
    rows, others = one.height, other.height
    size = others * int(one.estimated_size()) + rows * int(other.estimated_size())
    if amount_of(rows * others, size) <= ROWS_AT_ONCE:
        yield one.join(other, on=GROUP).drop(GROUP)
        return
    groups, places = _numbered(pl.concat([one[GROUP], other[GROUP]]))
    placed = _Placed(without(one, GROUP).hstack([places[:rows]]), len(groups))
    for part in placed.pairs(without(other, GROUP).hstack([places[rows:]])):
        yield without(part, PLACE)


def whole_join(node: Join, left: pl.DataFrame, right: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    """All rows of a join, given those of its sides."""
    names = [column.name for column in node.columns]
    if not node.on:
        if not node.shows_right:
            return left if (right.height > 0) == (node.kind == "semi") else left.clear()
        if node.kind == "left" and right.height == 0:
            right = right.clear(1)
        _check_size(left.height * right.height, left, right, budget)
        return left.join(right, how="cross").select(names)
    keys = [f"#match{place}" for place in range(len(node.on))]
    pairs = list(zip(keys, node.on, strict=True))
    left_keys = [(key, match.left) for key, match in pairs]
    right_keys = [(key, match.right) for key, match in pairs]
    left = project_batches(left, left_keys, left.columns, budget)
    right = project_batches(right, right_keys, right.columns, budget)
    # Where NULL is no partner of NULL, it is enough that one side has none.
    right = right.drop_nulls([key for key, match in pairs if not match.null_safe])
    if node.shows_right:
        count = left.height * right.height
        if count > MOST_JOINED or count * (width(left) + width(right)) > SMALL:
            count = _count_pairs(left, right, keys)
        alone = left.height * (node.kind != "inner") + right.height * (node.kind == "full")
        _check_size(count, left, right, budget, alone)
    else:
        budget.hold(left.height * width(left), "a join of the query")
    how: Any = node.kind
    return left.join(right, on=keys, how=how, nulls_equal=True).select(names)


def _count_pairs(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> int:
    """How many pairs of rows have equal keys."""
    counts = [rows.group_by(keys).len(name) for rows, name in ((left, "#left"), (right, "#right"))]
    met = counts[0].join(counts[1], on=keys, nulls_equal=True)
    return int(met.select(pl.col("#left").cast(pl.Int64) * pl.col("#right")).sum().item())


def _check_size(
    pairs: int, left: pl.DataFrame, right: pl.DataFrame, budget: Budget, alone: int = 0
) -> None:
    """Refuse a join that would take more than there is, before it is made.

    `alone` is the number of rows that it has besides, without a partner.
    """
    if pairs > MOST_JOINED:
        raise QueryTooLarge(
            f"a join of the query has {pairs:,} rows, and {MOST_JOINED:,} are the limit",
            hint="Narrow its inputs, or create a view, which is kept row by row",
        )
    size = (pairs + alone) * (width(left) + width(right))
    budget.hold(size, f"a join of {pairs:,} rows in the query")
