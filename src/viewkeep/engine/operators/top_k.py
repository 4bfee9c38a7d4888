"""TOP-K: the first rows of each group of an arrangement.

Law: of a changed group as many rows are read as the result shows or skips, plus one for each that
goes; so the cost does not grow with the group. The rows of a group lie in the order asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import polars as pl

from viewkeep.codec.keys import KEPT
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import port_name
from viewkeep.engine.operators.executor import Batches, Reader
from viewkeep.engine.operators.side import ArrangementSide
from viewkeep.engine.rows.delta import ColumnsNeeded, Rows, Values
from viewkeep.engine.state import ShardState
from viewkeep.engine.topk import run_top_k, top_rows, whole_top_k
from viewkeep.plan.nodes import Node, TopK
from viewkeep.plan.program import Operator
from viewkeep.types import Column


class TopKExecutor(Reader):
    """Runs a TOP-K."""

    def __init__(self, operator: Operator):
        super().__init__(operator)
        assert isinstance(operator.node, TopK)
        self.node = operator.node

    @cached_property
    def side(self) -> ArrangementSide:
        """The arrangement."""
        return ArrangementSide(self.operator.ports[0])

    @property
    def has_rows(self) -> bool:
        return self.side.has_rows

    @property
    def shape(self) -> tuple[Column, ...]:
        return self.operator.ports[0].columns

    @classmethod
    def whole(cls, node: Node, inputs: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
        assert isinstance(node, TopK)
        return whole_top_k(node, inputs[0], budget)

    def run_columns(self, state: ShardState, given: Batches, heard: bool) -> Iterator[pl.DataFrame]:
        if given:
            yield from run_top_k(self.operator, state, given[port_name(0)])

    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        return top_rows(self.operator, state, rows)

    def run_rows(self, state: ShardState, boxes: Sequence[list[Rows]], heard: bool) -> Rows:
        (changes,) = self.combined(boxes)
        groups = self.side.grouped(changes)
        limits = None
        if self.node.limit is not None:
            most = self.node.offset + self.node.limit
            limits = [most + sum(w < 0 for *_, w in rows) for rows in groups.values()]
        if self.side.table.unique_groups:
            limits = None
        held = self.side.partners(state, list(groups), limits)
        out: Rows = []
        for group, rows in groups.items():
            old = dict(held.get(group, ()))
            new = dict(old)
            for key, _, weight in rows:
                if weight < 0:
                    new.pop(key, None)
            new.update((key, values) for key, values, weight in rows if weight > 0)
            if any(len(key) > KEPT for key in (*old, *new)):
                raise ColumnsNeeded
            before, after = self._first(old), self._first(new)
            for key in before.keys() | after.keys():
                gone, come = before.get(key), after.get(key)
                if gone is not None and come is not None and _same(gone, come):
                    continue
                if gone is not None:
                    out.append((key, gone, -1))
                if come is not None:
                    out.append((key, come, 1))
        return out

    def _first(self, rows: dict[bytes, Values]) -> dict[bytes, Values]:
        """The rows that the result shows of a group; keys are in the order asked for."""
        stop = None if self.node.limit is None else self.node.offset + self.node.limit
        return {key: rows[key] for key in sorted(rows)[self.node.offset : stop]}


def _same(one: Values, other: Values) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
