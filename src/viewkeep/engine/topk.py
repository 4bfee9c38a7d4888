"""TOP-K on one shard: what the changes of an arrangement do to the first rows of its groups.

Law: of a changed group as many rows are read as the result shows or skips, plus one for each that
goes; so the cost does not grow with the group. The rows of a group lie in the order asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from viewkeep.delta import KEY, WEIGHT, weighted
from viewkeep.engine.groups import (
    GROUP,
    changed,
    differences,
    grouped,
    in_order,
    rows_of_groups,
)
from viewkeep.engine.state import ShardState
from viewkeep.ops.window import top_k
from viewkeep.plan.nodes import TopK
from viewkeep.plan.program import Operator


def run_top_k(operator: Operator, state: ShardState, delta: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The changes of the first rows, given those of all rows."""
    node = operator.node
    assert isinstance(node, TopK)
    delta = grouped(operator, delta)
    groups: list[bytes] = delta[GROUP].unique().to_list()
    lost = dict(delta.filter(pl.col(WEIGHT) < 0).group_by(GROUP).len().iter_rows())
    limits = None
    if node.limit is not None:
        limits = [node.offset + node.limit + lost.get(group, 0) for group in groups]
    old = rows_of_groups(operator, state, groups, limits)
    before, after = _first(operator, old), _first(operator, changed(old, delta))
    yield from differences(before, after, [column.name for column in node.columns])


def top_rows(operator: Operator, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of the result at the epoch before that are among these."""
    node = operator.node
    assert isinstance(node, TopK)
    groups = grouped(operator, rows)[GROUP].unique().to_list()
    limits = None if node.limit is None else [node.offset + node.limit] * len(groups)
    shown = _first(operator, rows_of_groups(operator, state, groups, limits))
    yield weighted(shown.drop(GROUP).join(rows.select(KEY), on=KEY, how="semi"), 1)


def _first(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    node = operator.node
    assert isinstance(node, TopK)
    return top_k(in_order(operator, rows), [GROUP], node.limit, node.offset)
