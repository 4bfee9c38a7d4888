"""What every operator's class does: take its input, run on it in either lane, give its changes.

Law: `run_rows` and `run_columns` stage the same bytes and give the same changes for the same input,
and depend on that input and on state at the epoch before alone. `run_rows` stages nothing before it
raises ColumnsNeeded. An operator's input is a *box* in the rows lane and named frames in the
columns lane; `frames_of` and `fill` convert between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from viewkeep.deferred import pl
from viewkeep.engine.budget import Budget
from viewkeep.engine.changes import state_rows
from viewkeep.engine.exchange import Frames, port_name
from viewkeep.engine.inbox import Inbox
from viewkeep.engine.loading import LoadChunk
from viewkeep.engine.rows.convert import frame_of
from viewkeep.engine.rows.delta import Boxes, Rows
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import run_steps
from viewkeep.ops.rowcode import RowWriter
from viewkeep.plan.nodes import Node
from viewkeep.plan.program import Operator
from viewkeep.types import Column

B = TypeVar("B")  # what has come for an operator, in the rows lane
C = TypeVar("C")  # the same in the columns lane
Batches: TypeAlias = "Mapping[str, Iterable[pl.DataFrame]]"  # changes by port


class Executor(ABC, Generic[B, C]):
    """Runs one operator, of whatever program."""

    def __init__(self, operator: Operator):
        self.operator: Operator = operator

    @property
    def has_rows(self) -> bool:
        """Whether the rows lane can run it."""
        return True

    @property
    def shape(self) -> tuple[Column, ...]:
        """The columns of the rows that it gives out."""
        return self.operator.node.columns

    def code(self) -> Iterator[tuple[str, str]]:
        """Generated functions of its own: what each does, and its source."""
        return iter(())

    @abstractmethod
    def inputs(self, inbox: Inbox) -> Iterator[C]:
        """What has come for it in the columns lane, in parts of bounded size."""

    @property
    @abstractmethod
    def nothing(self) -> C:
        """No input, in the columns lane."""

    @classmethod
    @abstractmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        """All rows of a node, given those of its inputs, for a query that is asked once."""

    @abstractmethod
    def run_columns(self, state: ShardState, given: C, heard: bool) -> Iterator[pl.DataFrame]:
        """Stage what the input does to the state; the changes of the operator's rows if heard."""

    @abstractmethod
    def run_rows(self, state: ShardState, boxes: Sequence[B], heard: bool) -> Rows:
        """The same in the rows lane. Each box is of one sender, combined there."""

    def loaded(self, chunk: LoadChunk) -> pl.DataFrame:
        """Rows of the table that it starts from, as insertions."""
        return state_rows(self.operator, chunk)

    def rows_for(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Its rows at the epoch before, out of some rows of the table that it starts from."""
        yield rows

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
    def pack(self, delta: pl.DataFrame, shards: int) -> Frames:
        """A delta of its input as frames that travel, with each row's shard."""

    @abstractmethod
    def combine(self, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Frames of one name put together, with equal rows added up."""

    @abstractmethod
    def frames_of(self, boxes: Sequence[B]) -> C:
        """Boxes as the input of the columns lane."""


class Fed(Executor[B, Frames]):
    """An operator with state, fed by producers through filters and projections."""

    def inputs(self, inbox: Inbox) -> Iterator[Frames]:
        return inbox.parts(self)

    @property
    def nothing(self) -> Frames:
        return {}

    @abstractmethod
    def write_input(self, writer: RowWriter, shard: str) -> None:
        """Write what puts a row into the box of its shard.

        The loop has `weight`, `boxes` and `shards`; `shard` is the source of the shard where it is
        known, else empty.
        """

    @abstractmethod
    def fill(self, boxes: Boxes[B], frames: Frames) -> None:
        """Put frames with a shard for each row into boxes."""

    @property
    def settles(self) -> bool:
        """Whether boxes are finished by `settle` when a delta has been put into them."""
        return False

    def settle(self, box: B) -> None:
        """Finish a box."""


class Reader(Executor[list[Rows], Batches]):
    """An operator without state, which reads the arrangements at its ports.

    Law: what it gives out depends on its arrangements at the epoch before and on their changes;
    each of its rows has the key of a row of its first arrangement. So the part of its rows that
    belongs to some rows of that arrangement can be made at any time: that loads its consumers.
    """

    def rows_for(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        rows = run_steps(self.operator.ports[0].narrowed[1], rows)
        if rows.height:
            yield from self.rows_from(state, rows)

    @abstractmethod
    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Its rows at the epoch before that belong to some rows of its first port."""

    def pack(self, delta: pl.DataFrame, shards: int) -> Frames:
        raise AssertionError("the changes of an arrangement stay on its shard")

    def combine(self, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
        return parts[0] if len(parts) == 1 else pl.concat(parts)

    def inputs(self, inbox: Inbox) -> Iterator[Batches]:
        return inbox.ports(self.operator)

    @property
    def nothing(self) -> Batches:
        return {}

    def new_box(self) -> list[Rows]:
        return [[] for _ in self.operator.ports]

    def size(self, box: list[Rows]) -> int:
        return sum(map(len, box))

    def combined(self, boxes: Sequence[list[Rows]]) -> list[Rows]:
        return [
            [row for box in boxes for row in box[place]]
            for place in range(len(self.operator.ports))
        ]

    def frames_of(self, boxes: Sequence[list[Rows]]) -> Batches:
        ports = self.combined(boxes)
        return {
            port_name(place): [frame_of(rows, self.operator.ports[place].columns)]
            for place, rows in enumerate(ports)
            if rows
        }
