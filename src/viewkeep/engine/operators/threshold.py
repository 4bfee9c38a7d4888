"""THRESHOLD: the rows on one side of the bound of their group.

An arrangement has the rows of a group in the order of the compared column, so those of the result
are one range of keys, which starts or ends at the *edge* of the group: where the bound would lie.
Law, with L the rows at the epoch before, d their changes, and the ranges before and after:

    d(result) = dL within the range after + L where the range grew - L where it shrank

So a row is compared by its key alone, and a bound that moves costs the rows that it passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from viewkeep.codec.keys import KeyCodec, prefix_end
from viewkeep.deferred import pl
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import port_name
from viewkeep.engine.groups import GROUP
from viewkeep.engine.operators.executor import Batches, Reader
from viewkeep.engine.operators.join.whole import whole_join
from viewkeep.engine.operators.sides.columns import TableSide
from viewkeep.engine.operators.sides.rows import ArrangementSide
from viewkeep.engine.rows.delta import Rows
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import PLACE
from viewkeep.ops.evaluate import filter_rows
from viewkeep.plan.nodes import Join, Node, Threshold
from viewkeep.plan.program import Operator
from viewkeep.stores.contract import KeyRange
from viewkeep.types import Column

_EDGE = "#edge"
_NULL, _VALUE, _PAST = b"\x00", b"\x01", b"\x02"  # what column bytes begin with, and come before

Bounds = Mapping[bytes, bytes | None]  # by group; None: no bound, and so no rows


class ThresholdExecutor(Reader):
    """Runs a Threshold."""

    def __init__(self, operator: Operator):
        super().__init__(operator)
        assert isinstance(operator.node, Threshold)
        self.node = operator.node
        self._table = operator.ports[0].table
        self._rises = self.node.compare in ("lt", "le")  # the range ends at the edge
        self._after_equal = self.node.compare in ("le", "gt")  # the edge is after equal values

    @cached_property
    def sides(self) -> list[ArrangementSide]:
        """The arrangements: rows, bounds."""
        return [ArrangementSide(port) for port in self.operator.ports]

    @cached_property
    def _codec(self) -> KeyCodec:
        types = {column.name: column.type for column in self.operator.ports[1].columns}
        return KeyCodec((types[self.node.bound],))

    @property
    def has_rows(self) -> bool:
        return all(side.has_rows for side in self.sides)

    @property
    def shape(self) -> tuple[Column, ...]:
        return self.operator.ports[0].columns

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, Threshold)
        rows, bounds = inputs
        pairs = whole_join(Join("inner", node.input, node.bounds, node.on), rows, bounds, budget)
        return filter_rows(pairs, node.predicate).select(c.name for c in node.columns)

    # -- edges ---------------------------------------------------------------------------------

    def _edge(self, group: bytes, bound: bytes | None) -> bytes:
        """Where the range of a group ends if the rows are below the bound, else where it starts."""
        prefix = self._table.prefix(group)
        if bound is None:
            return prefix + (_VALUE if self._rises else _PAST)
        edge = prefix + bound
        if self._after_equal:
            after = prefix_end(edge)
            assert after is not None, "a value begins with 01"
            return after
        return edge

    def _passed(self, before: Bounds, after: Bounds) -> Iterator[tuple[bytes, bytes, int]]:
        """Ranges of keys that the edges passed: start, stop, and the weight of their rows."""
        for group, bound in after.items():
            old, new = self._edge(group, before.get(group)), self._edge(group, bound)
            if old != new:
                yield min(old, new), max(old, new), 1 if (new > old) == self._rises else -1

    # -- the columns lane ----------------------------------------------------------------------

    def run_columns(self, state: ShardState, given: Batches, heard: bool) -> Iterator[pl.DataFrame]:
        rows, bounds = (given.get(port_name(port), ()) for port in range(2))
        moved = self._moved(bounds)
        before = self._bounds_before(state, list(moved))
        for frame in rows:
            if frame.height:
                yield self._within(state, frame, moved)
        yield from self._read(state, self._passed(before, moved))

    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        yield self._within(state, rows, {})

    def _moved(self, changes: Iterable[pl.DataFrame]) -> dict[bytes, bytes | None]:
        """The bounds after their changes, of the groups that have any."""
        side, made = self.operator.ports[1], dict[bytes, bytes | None]()
        for frame in filter(len, changes):
            groups = side.table.groups([frame[n] for n in side.group], frame.height, GROUP)
            weights = frame[WEIGHT].to_list()
            for group, bound, weight in zip(groups, self._encoded(frame), weights, strict=True):
                if weight > 0:
                    made[group] = bound
                else:
                    made.setdefault(group, None)
        return made

    def _bounds_before(self, state: ShardState, groups: list[bytes]) -> dict[bytes, bytes | None]:
        made = dict[bytes, bytes | None]()
        for frame in TableSide(self.operator.ports[1], state).partners(groups):
            for place, bound in zip(frame[PLACE], self._encoded(frame), strict=True):
                made[groups[place]] = bound
        return made

    def _encoded(self, frame: pl.DataFrame) -> list[bytes | None]:
        """The bytes of each bound; None for NULL. A frame without rows may lack columns."""
        if frame.is_empty():
            return []
        keys = self._codec.encode([frame[self.node.bound]])
        return [None if key.startswith(_NULL) else key for key in keys]

    def _within(self, state: ShardState, rows: pl.DataFrame, known: Bounds) -> pl.DataFrame:
        """Those of some rows that are in the range of their group."""
        rows = TableSide(self.operator.ports[0], state).grouped(rows)
        groups = rows[GROUP].unique().to_list()
        bounds = self._bounds_before(state, [group for group in groups if group not in known])
        edges = [self._edge(group, known.get(group, bounds.get(group))) for group in groups]
        table = pl.DataFrame(
            [pl.Series(GROUP, groups, pl.Binary), pl.Series(_EDGE, edges, pl.Binary)]
        )
        rows = rows.join(table, on=GROUP, how="left", maintain_order="left")
        inside = rows[KEY] < rows[_EDGE] if self._rises else rows[KEY] >= rows[_EDGE]
        return rows.filter(inside).drop(GROUP, _EDGE)

    def _read(
        self, state: ShardState, passed: Iterable[tuple[bytes, bytes, int]]
    ) -> Iterator[pl.DataFrame]:
        """The rows of ranges of keys, in frames of bounded size."""
        ranges, signs = list[KeyRange](), list[int]()
        for start, stop, weight in passed:
            ranges.append((start, stop))
            signs.append(weight)
        for found in state.scan_ranges(self._table, ranges) if ranges else ():
            yield self._frame(found.keys, found.rows, [signs[place] for place in found.places])

    def _frame(self, keys: list[bytes], rows: list[bytes], weights: list[int]) -> pl.DataFrame:
        frame = self._table.row_codec.decode(rows, [column.name for column in self.shape])
        return frame.hstack([pl.Series(KEY, keys, pl.Binary), pl.Series(WEIGHT, weights, pl.Int64)])

    # -- the rows lane -------------------------------------------------------------------------

    @cached_property
    def _bound_place(self) -> int:
        names = [column.name for column in self.operator.ports[1].columns]
        return names.index(self.node.bound)

    def run_rows(self, state: ShardState, boxes: Sequence[list[Rows]], heard: bool) -> Rows:
        rows, changes = self.combined(boxes)
        side, place = self.sides[1], self._bound_place
        encoded = self._codec.of_row([place])
        moved = dict[bytes, bytes | None]()
        for group, of_group in side.grouped(changes).items():
            moved[group] = None
            for _, values, weight in of_group:
                if weight > 0 and values[place] is not None:
                    moved[group] = encoded(values)
        groups = self.sides[0].grouped(rows)
        before = {
            group: encoded(values)
            for group, held in side.partners(state, list({**moved, **groups})).items()
            for _, values in held
            if values[place] is not None
        }
        out: Rows = []
        for group, of_group in groups.items():
            edge = self._edge(group, moved[group] if group in moved else before.get(group))
            out += [row for row in of_group if (row[0] < edge) == self._rises]
        return out + self.sides[0].between(state, list(self._passed(before, moved)))
