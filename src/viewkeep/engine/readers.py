"""Joins, TOP-K and windows: operators without state of their own, which read arrangements.

Law: what a reader gives out depends on its arrangements at the epoch before and on their changes;
each of its rows has the key of a row of its first arrangement. So the part of a reader's rows that
belongs to some rows of that arrangement can be made at any time, which is how consumers are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from viewkeep.engine.join import join_rows, run_join
from viewkeep.engine.parcels import port_name
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import run_steps
from viewkeep.engine.topk import run_top_k, top_rows
from viewkeep.engine.windows import run_window, window_rows
from viewkeep.plan.nodes import Join, TopK
from viewkeep.plan.program import Operator


def run_reader(
    operator: Operator, state: ShardState, changes: Mapping[str, Iterable[pl.DataFrame]]
) -> Iterator[pl.DataFrame]:
    """The changes of a reader's rows, given those at its ports, in one or several frames each."""
    if not changes:
        return
    if isinstance(operator.node, Join):
        left, right = (changes.get(port_name(place), ()) for place in range(2))
        yield from run_join(operator, state, left, right)
        return
    delta = changes[port_name(0)]
    if isinstance(operator.node, TopK):
        yield from run_top_k(operator, state, delta)
    else:
        yield from run_window(operator, state, pl.concat(delta))


def rows_from(operator: Operator, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """An operator's rows at the epoch before, out of some rows of the table it starts from."""
    if not operator.ports:
        yield rows
        return
    rows = run_steps(operator.ports[0].narrowed[1], rows)
    if rows.height == 0:
        return
    if isinstance(operator.node, Join):
        yield from join_rows(operator, state, rows)
    elif isinstance(operator.node, TopK):
        yield from top_rows(operator, state, rows)
    else:
        yield from window_rows(operator, state, rows)
