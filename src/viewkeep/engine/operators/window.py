"""WINDOW: each row with the values of functions over its partition, in the columns lane alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import port_name
from viewkeep.engine.operators.executor import Batches, Reader
from viewkeep.engine.rows.delta import ColumnsNeeded, Rows
from viewkeep.engine.state import ShardState
from viewkeep.engine.windows import run_window, whole_window, window_rows
from viewkeep.plan.nodes import Node, Window


class WindowExecutor(Reader):
    """Runs window functions."""

    @property
    def has_rows(self) -> bool:
        return False

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, Window)
        return whole_window(node, inputs[0], budget)

    def run_columns(self, state: ShardState, given: Batches, heard: bool) -> Iterator[pl.DataFrame]:
        if given:
            yield from run_window(self.operator, state, pl.concat(given[port_name(0)]))

    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        return window_rows(self.operator, state, rows)

    def run_rows(self, state: ShardState, boxes: Sequence[list[Rows]], heard: bool) -> Rows:
        raise ColumnsNeeded
