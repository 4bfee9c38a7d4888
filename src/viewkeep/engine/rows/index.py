"""Which of many consumers a row reaches: one look-up instead of asking each of them.

Views of one shape that differ in a constant (`WHERE author = 'ann'`, a threshold, a bucket) begin
with a predicate that compares a column with constants. Law: a consumer gets at least the rows that
its own predicate lets through; it still asks that predicate, so the index may give it more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

from viewkeep.codec.scalars import to_physical
from viewkeep.engine.rows.delta import Rows
from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.plan.program import Step
from viewkeep.types import DOUBLE

_LOW = {"gt", "ge"}
_HIGH = {"lt", "le"}


class Consumer(Protocol):
    """What begins with steps."""

    @property
    def steps(self) -> Sequence[Step]: ...


C = TypeVar("C", bound=Consumer)


@dataclass(frozen=True)
class ColumnBounds:
    """The values of one column that may pass: some, or a range (None: without an end)."""

    column: str
    values: frozenset[Any] | None = None
    low: Any = None
    high: Any = None


class ConsumerIndex(Generic[C]):
    """The consumers of one producer, whose rows have the columns `shape`."""

    def __init__(self, shape: Sequence[str], consumers: Sequence[C]):
        self._every: list[C] = []
        self._equal: dict[int, dict[Any, list[C]]] = {}
        ranges: dict[int, list[tuple[ColumnBounds, C]]] = {}
        for consumer in consumers:
            bounds = bounds_of(consumer.steps)
            if bounds is None:
                self._every.append(consumer)
            elif bounds.values is not None:
                values = self._equal.setdefault(shape.index(bounds.column), {})
                for value in bounds.values:
                    values.setdefault(value, []).append(consumer)
            else:
                ranges.setdefault(shape.index(bounds.column), []).append((bounds, consumer))
        self._ranges = {place: _Ranges(found) for place, found in ranges.items()}

    def reached(self, rows: Rows) -> Iterator[tuple[C, Rows]]:
        """The consumers that rows may reach, each with those rows."""
        for consumer in self._every:
            yield consumer, rows
        if not self._equal and not self._ranges:
            return
        found: dict[int, tuple[C, Rows]] = {}
        for row in rows:
            values = row[1]
            for place, wanted in self._equal.items():
                for consumer in wanted.get(values[place], ()):
                    found.setdefault(id(consumer), (consumer, []))[1].append(row)
            for place, ranges in self._ranges.items():
                for consumer in ranges.around(values[place]):
                    found.setdefault(id(consumer), (consumer, []))[1].append(row)
        yield from found.values()


class _Ranges(Generic[C]):
    """Ranges in the order of their low ends, each with the greatest high end up to it."""

    def __init__(self, ranges: list[tuple[ColumnBounds, C]]):
        self._open = [consumer for bounds, consumer in ranges if bounds.low is None]
        self._ends = [bounds.high for bounds, _ in ranges if bounds.low is None]
        order = sorted(range(len(self._ends)), key=lambda at: self._ends[at])
        self._open = [self._open[at] for at in order]
        self._ends.sort()
        closed = sorted(
            (found for found in ranges if found[0].low is not None), key=lambda found: found[0].low
        )
        self._lows = [bounds.low for bounds, _ in closed]
        self._closed = [(bounds.high, consumer) for bounds, consumer in closed]
        self._furthest = list(accumulate((high for high, _ in self._closed), _later))

    def around(self, value: Any) -> Iterator[C]:
        """The consumers whose ranges hold a value; ends count as within."""
        if value is None:
            return
        # From the greatest high end down, as far as the value is not beyond it.
        for at in range(len(self._ends) - 1, -1, -1):
            if self._ends[at] < value:
                break
            yield self._open[at]
        # From the last range that begins before the value back to where all end before it.
        for at in range(bisect_right(self._lows, value) - 1, -1, -1):
            furthest = self._furthest[at]
            if furthest is not None and furthest < value:
                return
            high, consumer = self._closed[at]
            if high is None or high >= value:
                yield consumer


def _later(one: Any, other: Any) -> Any:
    """The later of two high ends; None is the end of nothing."""
    return None if one is None or other is None else max(one, other)


def bounds_of(steps: Sequence[Step]) -> ColumnBounds | None:
    """What the first step, if it is a predicate, asks of a column; None if nothing."""
    if not steps or isinstance(steps[0], tuple):
        return None
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for part in _conjuncts(steps[0]):
        column, constants = _compared(part)
        if column is None:
            continue
        if part.function in ("eq", "null_safe_eq", "in"):
            return ColumnBounds(column, frozenset(constants))
        if part.function in _LOW:
            low.setdefault(column, constants[0])
        elif part.function in _HIGH:
            high.setdefault(column, constants[0])
    names = [*(name for name in low if name in high), *low, *high]
    return ColumnBounds(names[0], None, low.get(names[0]), high.get(names[0])) if names else None


def _conjuncts(predicate: Expr) -> Iterator[Call]:
    waiting = [predicate]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, Call) and expr.function == "and":
            waiting += reversed(expr.args)
        elif isinstance(expr, Call):
            yield expr


def _compared(call: Call) -> tuple[str | None, list[Any]]:
    """A column and the physical constants that it is compared with.

    A DOUBLE has values that compare otherwise than Python's floats do.
    """
    if call.function not in {"eq", "null_safe_eq", "in"} | _LOW | _HIGH:
        return None, []
    column, *constants = call.args
    if not isinstance(column, Ref) or column.type == DOUBLE:
        return None, []
    values = []
    for constant in constants:
        if not isinstance(constant, Lit) or constant.value is None:
            return None, []
        values.append(to_physical(constant.type)(constant.value))
    return column.name, values
