"""Every aggregate function, under its name: the one place that lists them.

Law: whoever plans, keeps, queries or loads aggregates asks the entry, and knows none by name.
"""

from __future__ import annotations

from viewkeep.ops.aggregates.bit_xor import BitXorFunction
from viewkeep.ops.aggregates.collect import ArrayAgg, StringAgg
from viewkeep.ops.aggregates.counts import Count, CountRows, Truth
from viewkeep.ops.aggregates.extremes import Extreme, ExtremeBy
from viewkeep.ops.aggregates.function import AggregateFunction
from viewkeep.ops.aggregates.moments import Comoment, Moment
from viewkeep.ops.aggregates.percentiles import PercentileFunction
from viewkeep.ops.aggregates.sums import Average, Sum

AGGREGATES: dict[str, AggregateFunction] = {
    function.name: function
    for function in (
        CountRows("count_star"),
        Count("count", "count"),
        Sum("sum", "sum"),
        Average("avg", "avg", "mean"),
        Extreme("min", "min", "any_value"),
        Extreme("max", "max"),
        ExtremeBy("min_by"),
        ExtremeBy("max_by"),
        Truth("bool_and", "bool_and", "every"),
        Truth("bool_or", "bool_or", "some", "any"),
        BitXorFunction("bit_xor", "bit_xor"),
        Moment("var_pop", "var_pop"),
        Moment("var_samp", "var_samp", "variance"),
        Moment("stddev_pop", "stddev_pop"),
        Moment("stddev_samp", "stddev_samp", "stddev", "std"),
        Comoment("covar_pop"),
        Comoment("covar_samp"),
        Comoment("corr"),
        PercentileFunction("percentile_cont"),
        PercentileFunction("percentile_disc"),
        StringAgg("string_agg"),
        ArrayAgg("array_agg"),
    )
}


def spelt(word: str) -> AggregateFunction | None:
    """The function of one argument that SQL calls so."""
    return next((one for one in AGGREGATES.values() if word in one.spellings), None)
