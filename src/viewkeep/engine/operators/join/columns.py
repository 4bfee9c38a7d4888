"""The columns lane of joins, on one shard.

Each term of the law reads the partners of changed rows alone, by the prefix of their group. A group
of many partners comes in batches, so the memory in use is bounded by `ROWS_AT_ONCE` and not by the
group. Of the right side's changes a join that asks for existence holds the groups that get rows,
and the keys that go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.deferred import pl
from viewkeep.delta import KEY, WEIGHT, weighted, without
from viewkeep.engine.groups import GROUP
from viewkeep.engine.operators.sides.columns import Moves, TableSide, pairs
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import PLACE
from viewkeep.plan.nodes import Join
from viewkeep.plan.program import Operator

_OTHER = "#other"


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
        there, _ = sides[1].present(ours[GROUP].unique(), Moves(()))
        kept = pl.col(GROUP).is_in(there.implode())
        part = ours.filter(kept if node.kind == "semi" else ~kept).drop(GROUP)
        yield _widened(node, part) if node.kind == "left" else part


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
            for part in pairs(left, others):
                product = part[WEIGHT] * part[_OTHER]
                yield without(part, WEIGHT, _OTHER).hstack([product])


def _existence(
    node: Join, sides: list[TableSide], ours: _Grouped, theirs: _Grouped
) -> Iterator[pl.DataFrame]:
    """The changes of left rows that have (semi), or have not (left, anti), a partner."""
    wanted = node.kind == "semi"
    moves = Moves(theirs)
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
