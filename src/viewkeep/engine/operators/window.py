"""WINDOW: each row with the values of functions over its partition, in the columns lane alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from viewkeep.engine.operators.executor import Reader
from viewkeep.engine.parcels import Frames
from viewkeep.engine.readers import run_reader
from viewkeep.engine.rows.delta import ColumnsNeeded, Rows
from viewkeep.engine.state import ShardState


class WindowExecutor(Reader):
    """Runs window functions."""

    has_rows = False

    def run_columns(self, state: ShardState, frames: Frames, heard: bool) -> Iterator[pl.DataFrame]:
        return run_reader(self.operator, state, {name: [frame] for name, frame in frames.items()})

    def run_rows(self, state: ShardState, boxes: Sequence[list[Rows]], heard: bool) -> Rows:
        raise ColumnsNeeded
