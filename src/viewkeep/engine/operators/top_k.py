"""TOP-K: the first rows of each group of an arrangement.

Law: of a changed group as many rows are read as the result shows or skips, plus one for each that
goes; so the cost does not grow with the group. The rows of a group lie in the order asked for.

Of the changes the columns lane holds no more than the first rows of each group that come, and the
keys that go. Without a limit the whole group is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from viewkeep.codec.keys import KEPT
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, WEIGHT, weighted, without
from viewkeep.engine.amounts import amount, parts
from viewkeep.engine.budget import Budget
from viewkeep.engine.exchange import port_name
from viewkeep.engine.groups import (
    GROUP,
    any_cut,
    differences,
    frames_of_groups,
    grouped,
    in_order,
    rows_of_groups,
    sorted_by_partition,
)
from viewkeep.engine.operators.executor import Batches, Reader
from viewkeep.engine.operators.sides.rows import ArrangementSide
from viewkeep.engine.rows.delta import ColumnsNeeded, Rows, Values
from viewkeep.engine.state import ShardState
from viewkeep.ops.window import top_k
from viewkeep.plan.nodes import Node, TopK
from viewkeep.plan.program import Operator
from viewkeep.types import Column

_AT_ONCE = 100_000  # of the rows read, and of those held before only the first are kept


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
        rows = sorted_by_partition(node, inputs[0], budget)
        return top_k(rows, node.partition, node.limit, node.offset)

    def run_columns(self, state: ShardState, given: Batches, heard: bool) -> Iterator[pl.DataFrame]:
        if given:
            yield from _run(self.operator, state, given[port_name(0)])

    def rows_from(self, state: ShardState, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        return _rows_among(self.operator, state, rows)

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


def _run(
    operator: Operator, state: ShardState, changes: Iterable[pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """The changes of the first rows, given those of all rows. All changes of a row in one frame."""
    node = operator.node
    assert isinstance(node, TopK)
    come, goes, lost = _First(operator), list[pl.Series](), Counter[bytes]()
    for delta in changes:
        delta = grouped(operator, delta)
        comes = delta[WEIGHT] > 0
        come.take(without(delta.filter(comes), WEIGHT))
        goes.append(delta[KEY].filter(~comes))
        lost.update(dict(delta.filter(~comes).group_by(GROUP).len().iter_rows()))
    new, gone = come.rows(), pl.concat(goes).sort()
    groups: list[bytes] = sorted({*new[GROUP].unique().to_list(), *lost})
    names = [column.name for column in node.columns]
    reach = None if node.limit is None else node.offset + node.limit
    if reach is None:
        before, after = _before_and_after(operator, state, groups, None, new, gone)
        yield from differences(before, after, names)
        return
    limits = [reach + lost[group] for group in groups]
    for part in parts(np.array(limits, np.int64), _AT_ONCE):
        some = groups[part]
        here = new.filter(pl.col(GROUP).is_between(pl.lit(some[0]), pl.lit(some[-1])))
        before, after = _before_and_after(operator, state, some, limits[part], here, gone)
        yield from differences(before, after, names)


def _rows_among(
    operator: Operator, state: ShardState, rows: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """The rows of the result at the epoch before that are among these."""
    node = operator.node
    assert isinstance(node, TopK)
    groups = grouped(operator, rows)[GROUP].unique().to_list()
    limits = None if node.limit is None else [node.offset + node.limit] * len(groups)
    shown = _shown(operator, rows_of_groups(operator, state, groups, limits))
    yield weighted(shown.drop(GROUP).join(rows.select(KEY), on=KEY, how="semi"), 1)


class _First:
    """Rows of groups, of which no more are held than the result shows or skips, and some."""

    def __init__(self, operator: Operator):
        self._operator, self._most = operator, _AT_ONCE
        self._parts, self._amount = list[pl.DataFrame](), 0

    def take(self, rows: pl.DataFrame) -> None:
        """Hold rows."""
        node = self._operator.node
        assert isinstance(node, TopK)
        self._parts.append(rows)
        self._amount += amount(rows)
        if self._amount > self._most and node.limit is not None:
            ordered = in_order(self._operator, self.rows())
            first = top_k(ordered, [GROUP], node.offset + node.limit)
            self._parts, self._amount = [first], amount(first)
            self._most = max(_AT_ONCE, 2 * self._amount)

    def rows(self) -> pl.DataFrame:
        """The rows that are held."""
        return self._parts[0] if len(self._parts) == 1 else pl.concat(self._parts)


def _before_and_after(
    operator: Operator,
    state: ShardState,
    groups: list[bytes],
    limits: list[int] | None,
    come: pl.DataFrame,
    gone: pl.Series,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that some groups show, as they were and with their changes; `gone` is sorted."""
    before, after = _First(operator), _First(operator)
    for rows in frames_of_groups(operator, state, groups, limits):
        if limits is not None and any_cut(rows[KEY]):
            return _before_and_after(operator, state, groups, None, come, gone)
        before.take(rows)
        after.take(_staying(rows, gone))
    after.take(come.select(before.rows().columns))
    return _shown(operator, before.rows()), _shown(operator, after.rows())


def _staying(rows: pl.DataFrame, gone: pl.Series) -> pl.DataFrame:
    """The rows whose keys are not among those sorted ones."""
    if rows.is_empty() or gone.is_empty():
        return rows
    keys = rows[KEY].sort()
    start = gone.search_sorted(keys[:1], "left").item()
    stop = gone.search_sorted(keys[-1:], "right").item()
    return rows.join(gone[start:stop].to_frame(), on=KEY, how="anti")


def _shown(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    node = operator.node
    assert isinstance(node, TopK)
    return top_k(in_order(operator, rows), [GROUP], node.limit, node.offset)
