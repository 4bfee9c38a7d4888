"""MIN and MAX, and MIN_BY and MAX_BY: the first or the last of a group's values.

Law: a value that goes is replaced by the next in order, so all values are kept, but few are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewkeep.deferred import pl
from viewkeep.ops.aggregates.function import AggregateFunction, Kept, Output
from viewkeep.ops.aggregates.ordered import Ordered, ascending, best
from viewkeep.types import Column

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall


class Extreme(AggregateFunction):
    """MIN and MAX."""

    kept = Kept.EXTREME

    @property
    def is_largest(self) -> bool:
        """Whether it is the last value."""
        return self.name.startswith("max")

    def order(self, call: AggregateCall) -> Ordered | None:
        assert call.argument is not None
        return ascending(call.argument)

    def of_values(self, values: pl.DataFrame, groups: pl.DataFrame, output: Output) -> pl.Series:
        order = output.order
        assert order is not None
        return best(values, order, groups.height, self.is_largest)[order.names[-1]]


class ExtremeBy(Extreme):
    """MIN_BY and MAX_BY: the value of the row that is first or last by another."""

    def order(self, call: AggregateCall) -> Ordered | None:
        assert call.argument is not None
        return Ordered((call.by[0].expr, call.argument), (False, False), (True, False))

    def hidden(self, call: AggregateCall) -> tuple[Column, ...]:
        return (Column(f"#by({call.name})", call.by[0].expr.type),)
