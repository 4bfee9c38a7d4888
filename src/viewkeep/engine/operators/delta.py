"""DELTA: exact changes of rows out of operations on their cells, in any order and number.

Law: the rows that it has given out add up to those of the set of all operations that have come.
What it holds is enough to load any new operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from viewkeep.deferred import pl
from viewkeep.engine.budget import Budget
from viewkeep.engine.cells.merge import Changed, Merge, MergeInput
from viewkeep.engine.cells.travel import (
    CELLS,
    RANGES,
    CellBox,
    combined,
    merged_frame,
    ranges_in,
    rows_in,
)
from viewkeep.engine.cells.values import CellRows
from viewkeep.engine.exchange import Frames
from viewkeep.engine.inbox import Inbox
from viewkeep.engine.loading import LoadChunk
from viewkeep.engine.operators.executor import Executor
from viewkeep.engine.operators.sides.rows import MOST_ROWS
from viewkeep.engine.rows.convert import frame_of
from viewkeep.engine.rows.delta import Rows, TooMany
from viewkeep.engine.state import ShardState
from viewkeep.ops.cells import form
from viewkeep.plan.nodes import Delta, Node
from viewkeep.plan.program import Operator


class DeltaExecutor(Executor[CellBox, MergeInput]):
    """Runs a DELTA."""

    def __init__(self, operator: Operator):
        super().__init__(operator)
        assert isinstance(operator.node, Delta)
        self.source, self.rules = operator.node.input, operator.node.input.rules

    @cached_property
    def _values(self) -> CellRows:
        return CellRows(self.source.schema)

    def inputs(self, inbox: Inbox) -> Iterator[MergeInput]:
        deleted = ranges_in(inbox.taken(self.operator.id, RANGES))
        after: bytes | None = None
        parts = inbox.parts(self)
        following = next(parts, None)
        while following is not None:
            rows = rows_in(following.values(), self.rules)
            following = next(parts, None)
            last = None if following is None else max(rows)
            yield MergeInput(rows, deleted, after, last)
            after = last

    @property
    def nothing(self) -> MergeInput:
        return MergeInput()

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        return inputs[0]

    def run_columns(
        self, state: ShardState, given: MergeInput, heard: bool
    ) -> Iterator[pl.DataFrame]:
        for changed in self._merge(state, given):
            rows = list(self._rows(changed))
            if heard and rows:
                yield frame_of(rows, self.shape)

    def run_rows(self, state: ShardState, boxes: Sequence[CellBox], heard: bool) -> Rows:
        rows: Rows = []
        for changed in self._merge(state, self.frames_of(boxes)):
            rows += self._rows(changed)
            if len(rows) > MOST_ROWS:
                raise TooMany
        return rows if heard else []

    def loaded(self, chunk: LoadChunk) -> pl.DataFrame:
        states = zip(chunk.keys, map(form.unpack, chunk.rows), strict=True)
        found = ((key, self._values.values(key, state)) for key, state in states)
        rows = [(key, values, 1) for key, values in found if values is not None]
        return frame_of(rows, self.shape)

    def new_box(self) -> CellBox:
        return CellBox()

    def size(self, box: CellBox) -> int:
        return len(box)

    def combined(self, boxes: Sequence[CellBox]) -> CellBox:
        return combined(boxes, self.rules)

    def pack(self, delta: pl.DataFrame, shards: int) -> Frames:
        raise AssertionError("a DELTA is fed with operations, not with rows")

    def combine(self, name: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
        whole = parts[0] if len(parts) == 1 else pl.concat(parts)
        return merged_frame(whole, self.rules) if name == CELLS else whole.unique()

    def frames_of(self, boxes: Sequence[CellBox]) -> MergeInput:
        box = self.combined(boxes)
        return MergeInput(box.rows, box.ranges)

    def _merge(self, state: ShardState, given: MergeInput) -> Iterator[list[Changed]]:
        return Merge(state, self.operator.tables, self.rules, given).run()

    def _rows(self, changed: Iterable[Changed]) -> Rows:
        """The rows that go and come where what is visible has changed."""
        rows: Rows = []
        for key, old, new in changed:
            gone, come = self._values.values(key, old), self._values.values(key, new)
            if gone == come:
                continue
            if gone is not None:
                rows.append((key, gone, -1))
            if come is not None:
                rows.append((key, come, 1))
        return rows
