"""What every operator's class does: take its input, run on it in either lane, give its changes.

Law: `run_rows` and `run_columns` stage the same bytes and give the same changes for the same input,
and depend on that input and on state at the epoch before alone. `run_rows` stages nothing before it
raises ColumnsNeeded. An operator's input is a *box* in the rows lane and named frames in the
columns lane; `frames_of` and `fill` convert between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import polars as pl

from viewkeep.engine.parcels import Frames, port_name
from viewkeep.engine.rows.convert import frame_of
from viewkeep.engine.rows.delta import Boxes, Rows
from viewkeep.engine.state import ShardState
from viewkeep.ops.rowcode import RowWriter
from viewkeep.plan.program import Operator
from viewkeep.types import Column

B = TypeVar("B")


class Executor(ABC, Generic[B]):
    """Runs one operator, of whatever program."""

    has_rows: bool = True
    """Whether the rows lane can run it."""

    def __init__(self, operator: Operator):
        self.operator = operator

    @property
    def shape(self) -> tuple[Column, ...]:
        """The columns of the rows that it gives out."""
        return self.operator.node.columns

    def code(self) -> Iterator[tuple[str, str]]:
        """Generated functions of its own: what each does, and its source."""
        return iter(())

    @abstractmethod
    def run_columns(self, state: ShardState, frames: Frames, heard: bool) -> Iterator[pl.DataFrame]:
        """Stage what the input does to the state; the changes of the operator's rows if heard."""

    @abstractmethod
    def run_rows(self, state: ShardState, boxes: Sequence[B], heard: bool) -> Rows:
        """The same in the rows lane. Each box is of one sender, combined there."""

    @abstractmethod
    def new_box(self) -> B:
        """An empty input."""

    @abstractmethod
    def size(self, box: B) -> int:
        """How many rows a box holds."""

    @abstractmethod
    def combined(self, boxes: Sequence[B]) -> B:
        """Boxes of one sender as one."""

    @abstractmethod
    def frames_of(self, boxes: Sequence[B]) -> Frames:
        """Boxes as the input of the columns lane."""


class Fed(Executor[B]):
    """An operator with state, fed by producers through filters and projections."""

    @abstractmethod
    def write_input(self, writer: RowWriter, shard: str) -> None:
        """Write what puts a row into the box of its shard.

        The loop has `weight`, `boxes` and `shards`; `shard` is the source of the shard where it is
        known, else empty.
        """

    @abstractmethod
    def fill(self, boxes: Boxes[B], frames: Frames) -> None:
        """Put frames with a shard for each row into boxes."""

    settles = False
    """Whether boxes are finished by `settle` when a delta has been put into them."""

    def settle(self, box: B) -> None:
        """Finish a box."""


class Reader(Executor[list[Rows]]):
    """An operator without state, which reads the arrangements at its ports."""

    def new_box(self) -> list[Rows]:
        return [[] for _ in self.operator.ports]

    def size(self, box: list[Rows]) -> int:
        return sum(map(len, box))

    def combined(self, boxes: Sequence[list[Rows]]) -> list[Rows]:
        return [
            [row for box in boxes for row in box[place]]
            for place in range(len(self.operator.ports))
        ]

    def frames_of(self, boxes: Sequence[list[Rows]]) -> Frames:
        ports = self.combined(boxes)
        return {
            port_name(place): frame_of(rows, self.operator.ports[place].columns)
            for place, rows in enumerate(ports)
            if rows
        }
