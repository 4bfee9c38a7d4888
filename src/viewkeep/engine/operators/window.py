"""WINDOW: each row with the values of functions over its partition, in the columns lane alone.

Law: a value is computed from the rows of its frame alone. Where every frame of a window is bounded,
only the neighbourhood of each changed row is read, so the cost does not grow with the partition;
otherwise the changed partitions are read whole. Rows whose value stays give no change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from viewkeep.codec.keys import prefix_end
from viewkeep.deferred import pl
from viewkeep.delta import KEY, WEIGHT, weighted
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import port_name
from viewkeep.engine.groups import (
    GROUP,
    changed,
    differences,
    framed,
    grouped,
    in_order,
    is_cut,
    rows_of_groups,
    sorted_by_partition,
)
from viewkeep.engine.operators.executor import Batches, Reader
from viewkeep.engine.rows.delta import ColumnsNeeded, Rows
from viewkeep.engine.state import ShardState
from viewkeep.ops.window import reach, window_columns
from viewkeep.plan.nodes import Node, Window
from viewkeep.plan.program import Operator


class WindowExecutor(Reader):
    """Runs window functions."""

    @property
    def has_rows(self) -> bool:
        return False

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, Window)
        rows = sorted_by_partition(node, inputs[0], budget)
        return rows.hstack(window_columns(rows, node.partition, node.order, node.calls))

    def run_columns(self, state: ShardState, given: Batches, heard: bool) -> Iterator[pl.DataFrame]:
        if given:
            yield from _run(self.operator, state, pl.concat(given[port_name(0)]))

    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        return _rows_among(self.operator, state, rows)

    def run_rows(self, state: ShardState, boxes: Sequence[list[Rows]], heard: bool) -> Rows:
        raise ColumnsNeeded


def _run(operator: Operator, state: ShardState, delta: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The changes of the rows with their values, given those of the rows."""
    delta = grouped(operator, delta)
    old = _neighbours(operator, state, delta)
    if old is None:
        old = rows_of_groups(operator, state, delta[GROUP].unique().to_list())
    before, after = _valued(operator, old), _valued(operator, changed(old, delta))
    yield from differences(before, after, [column.name for column in operator.node.columns])


def _rows_among(
    operator: Operator, state: ShardState, rows: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """The rows of the result at the epoch before that are among these."""
    rows = grouped(operator, rows)
    read = _neighbours(operator, state, rows)
    if read is None:
        read = rows_of_groups(operator, state, rows[GROUP].unique().to_list())
    valued = _valued(operator, read)
    yield weighted(valued.drop(GROUP).join(rows.select(KEY), on=KEY, how="semi"), 1)


def _valued(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    node = operator.node
    assert isinstance(node, Window)
    rows = in_order(operator, rows)
    return rows.hstack(window_columns(rows, [GROUP], node.order, node.calls))


def _neighbours(operator: Operator, state: ShardState, delta: pl.DataFrame) -> pl.DataFrame | None:
    """The rows around each changed row whose values may change, and those that these depend on.

    None if they cannot be told by their number. Two neighbourhoods may touch in the result that lie
    apart in the partition. The rows at such a seam get values that are wrong, but the same before
    and after the changes, since every change lies further away than a value reads; so they give no
    difference.
    """
    node, table = operator.node, operator.ports[0].table
    assert isinstance(node, Window)
    before, after = reach(node.calls)
    if before is None or after is None:
        return None
    net = delta.group_by(GROUP, KEY).agg(pl.col(WEIGHT).sum())
    gone = dict(net.filter(pl.col(WEIGHT) < 0).group_by(GROUP).len().iter_rows())
    keys, rows, owners = list[bytes](), list[bytes](), list[bytes]()
    last, first = None, 0  # the group at hand, and where its rows begin
    for group, key in net.select(GROUP, KEY).sort(GROUP, KEY).iter_rows():
        if group != last:
            last, first = group, len(keys)
        prefix, width = table.prefix(group), before + after + gone.get(group, 0)
        # Going up, all up to the last row read is known: no row is read twice.
        unread = keys[-1] + b"\0" if len(keys) > first else prefix
        known = len(keys) - bisect_left(keys, key, first)
        found: list[tuple[bytes, bytes]] = []
        if unread < key:
            back = state.scan(table, start=unread, stop=key, limit=width, reverse=True)
            found += zip(reversed(back.keys), reversed(back.rows), strict=True)
        if known <= width:
            start, stop = max(unread, key), prefix_end(prefix)
            onward = state.scan(table, start=start, stop=stop, limit=width + 1 - known)
            found += zip(onward.keys, onward.rows, strict=True)
        if any(is_cut(one) for one, _ in found):
            return None
        keys += [one for one, _ in found]
        rows += [row for _, row in found]
        owners += [group] * len(found)
    return framed(operator, keys, rows, owners)
