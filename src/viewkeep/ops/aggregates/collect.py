"""STRING_AGG and ARRAY_AGG: the values of a group put together in a determined order.

Law: the result is a function of the multiset of values: it follows the order asked for, and values
that the order does not tell apart follow their own order.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from viewkeep.deferred import pl
from viewkeep.expr import Expr
from viewkeep.ops.aggregates.function import AggregateFunction, Kept, Output
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, Ordered, every_group, in_order
from viewkeep.types import DataType, array

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall

_MADE = "#made"


class _Collection(AggregateFunction):
    """The values of a group put together; the last of the ordered columns is collected."""

    takes_distinct = True
    kept = Kept.VALUES

    def order(self, call: AggregateCall) -> Ordered | None:
        """The order asked for, up to where it reaches the value itself, then the value."""
        argument = call.argument
        assert argument is not None
        by = [part.expr for part in call.by]
        reached = by.index(argument) if argument in by else len(by)
        descending = reached < len(by) and call.by[reached].descending
        parts = dict[Expr, bool]()
        for part in call.by[:reached]:
            parts.setdefault(part.expr, part.descending)
        parts[argument] = descending
        needed = tuple(expr == argument for expr in parts)
        return Ordered(tuple(parts), tuple(parts.values()), needed)

    def of_values(self, values: pl.DataFrame, groups: pl.DataFrame, output: Output) -> pl.Series:
        order = output.order
        assert order is not None
        rows = in_order(values.filter(pl.col(TIMES) > 0), order)
        item = pl.col(order.names[-1])
        if not output.distinct:
            rows = rows.select(GROUP, item.repeat_by(TIMES)).explode(order.names[-1])
        if rows.schema[order.names[-1]] == pl.Float64:
            item = item + 0.0  # -0.0 is 0.0, as it will be read back
        made = rows.group_by(GROUP, maintain_order=True).agg(
            self.together(item, output).alias(_MADE)
        )
        return self.of_none(every_group(made, groups.height)[_MADE])

    @abstractmethod
    def together(self, item: pl.Expr, output: Output) -> pl.Expr:
        """The values of one group as one."""


class StringAgg(_Collection):
    """STRING_AGG: texts with a separator between; NULL of none."""

    def together(self, item: pl.Expr, output: Output) -> pl.Expr:
        return item.str.join(str(output.parameters[0]))


class ArrayAgg(_Collection):
    """ARRAY_AGG: an array; an empty one of none."""

    def result(self, given: DataType) -> DataType:
        return given if given.is_array else array(given)

    def together(self, item: pl.Expr, output: Output) -> pl.Expr:
        return item

    def of_none(self, series: pl.Series) -> pl.Series:
        if not series.null_count():
            return series
        blank = pl.lit(pl.Series([[]], dtype=series.dtype))
        one = pl.DataFrame([series.alias(_MADE)])
        made = pl.when(pl.col(_MADE).is_null()).then(blank).otherwise(pl.col(_MADE))
        return one.select(made.alias(series.name)).to_series()
