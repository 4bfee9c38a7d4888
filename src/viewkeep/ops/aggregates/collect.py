"""STRING_AGG and ARRAY_AGG: the values of a group put together in a determined order.

Law: the result is a function of the multiset of values: it follows the order asked for, and values
that the order does not tell apart follow their own order.
"""

from __future__ import annotations

import polars as pl

from viewkeep.expr import Scalar
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, Ordered, every_group, in_order

_MADE = "#made"


def collected(
    values: pl.DataFrame,
    order: Ordered,
    groups: int,
    function: str,
    parameters: tuple[Scalar, ...],
    distinct: bool,
) -> pl.Series:
    """The values of each group in order, as one; the last of the ordered columns is collected.

    Nothing collected is NULL as a string, and an empty array.
    """
    rows = in_order(values.filter(pl.col(TIMES) > 0), order)
    item = pl.col(order.names[-1])
    if not distinct:
        rows = rows.select(GROUP, item.repeat_by(TIMES)).explode(order.names[-1])
    if rows.schema[order.names[-1]] == pl.Float64:
        item = item + 0.0  # -0.0 is 0.0, as it will be read back
    together = item.str.join(str(parameters[0])) if function == "string_agg" else item
    made = rows.group_by(GROUP, maintain_order=True).agg(together.alias(_MADE))
    return filled(every_group(made, groups)[_MADE])


def filled(series: pl.Series) -> pl.Series:
    """The values of a collection: there is always an array, if need be an empty one."""
    if not isinstance(series.dtype, pl.List) or not series.null_count():
        return series
    blank = pl.lit(pl.Series([[]], dtype=series.dtype))
    one = pl.DataFrame([series.alias(_MADE)])
    made = pl.when(pl.col(_MADE).is_null()).then(blank).otherwise(pl.col(_MADE))
    return one.select(made.alias(series.name)).to_series()
