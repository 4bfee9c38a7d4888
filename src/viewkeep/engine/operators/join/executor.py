"""Runs joins: the rows lane, and the way into the columns lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from viewkeep.deferred import pl
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import port_name
from viewkeep.engine.operators.executor import Batches, Reader
from viewkeep.engine.operators.join.columns import join_rows, run_join
from viewkeep.engine.operators.join.whole import whole_join
from viewkeep.engine.operators.sides.rows import MOST_ROWS, ArrangementSide
from viewkeep.engine.rows.delta import Rows, TooMany
from viewkeep.engine.state import ShardState
from viewkeep.plan.nodes import Join, Node
from viewkeep.plan.program import Operator
from viewkeep.types import Column


class JoinExecutor(Reader):
    """Runs a join of any kind."""

    def __init__(self, operator: Operator):
        super().__init__(operator)
        assert isinstance(operator.node, Join)
        self.node = operator.node

    @cached_property
    def sides(self) -> list[ArrangementSide]:
        """The arrangements, left and right."""
        return [ArrangementSide(port) for port in self.operator.ports]

    @property
    def has_rows(self) -> bool:
        return all(side.has_rows for side in self.sides)

    @property
    def shape(self) -> tuple[Column, ...]:
        left, right = (port.columns for port in self.operator.ports)
        return left + right if self.node.shows_right else left

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, Join)
        return whole_join(node, inputs[0], inputs[1], budget)

    def run_columns(self, state: ShardState, given: Batches, heard: bool) -> Iterator[pl.DataFrame]:
        if given:
            left, right = (given.get(port_name(port), ()) for port in range(2))
            yield from run_join(self.operator, state, left, right)

    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        return join_rows(self.operator, state, rows)

    def run_rows(self, state: ShardState, boxes: Sequence[list[Rows]], heard: bool) -> Rows:
        left, right = self.combined(boxes)
        ours, theirs = self.sides[0].grouped(left), self.sides[1].grouped(right)
        out: Rows = []
        if self.node.shows_right:
            self._inner(state, ours, theirs, out)
        if self.node.kind != "inner":
            self._existence(state, ours, theirs, out)
        return out

    def _inner(
        self, state: ShardState, ours: dict[bytes, Rows], theirs: dict[bytes, Rows], out: Rows
    ) -> None:
        partners = self.sides[1].partners(state, list(ours))
        _check(sum(len(ours[group]) * len(found) for group, found in partners.items()))
        for group, rows in ours.items():
            for _, other in partners.get(group, ()):
                out += [(key, mine + other, weight) for key, mine, weight in rows]
        partners = self.sides[0].partners(state, list(theirs))
        _check(sum(len(theirs[group]) * len(found) for group, found in partners.items()))
        for group, rows in theirs.items():
            for key, mine in partners.get(group, ()):
                out += [(key, mine + other, weight) for _, other, weight in rows]
        both = ours.keys() & theirs.keys()
        _check(sum(len(ours[group]) * len(theirs[group]) for group in both))
        for group in both:
            for _, other, times in theirs[group]:
                out += [(key, mine + other, weight * times) for key, mine, weight in ours[group]]

    def _existence(
        self, state: ShardState, ours: dict[bytes, Rows], theirs: dict[bytes, Rows], out: Rows
    ) -> None:
        """The changes of left rows that have (semi), or have not (left, anti), a partner."""
        wanted = self.node.kind == "semi"
        nulls = (None,) * (len(self.shape) - len(self.sides[0].port.columns))
        before, after = self.sides[1].present(state, [*ours.keys() | theirs.keys()], theirs)
        for group, rows in ours.items():
            if (group in after) == wanted:
                out += [(key, values + nulls, weight) for key, values, weight in rows]
        changed = [group for group in theirs if (group in before) != (group in after)]
        for group, held in self.sides[0].partners(state, changed).items():
            weight = 1 if (group in after) == wanted else -1
            out += [(key, values + nulls, weight) for key, values in held]


def _check(pairs: int) -> None:
    if pairs > MOST_ROWS:
        raise TooMany
