"""Evaluates a plan once over given rows, with the same operators that keep views.

Law: the result is what the view of the same plan would hold had it seen these rows as insertions.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from viewkeep.delta import WEIGHT, weighted
from viewkeep.ops.aggregate import GROUP, TIMES, VALUE, best, distinct_gain, finish, gains
from viewkeep.ops.evaluate import filter_rows, project
from viewkeep.plan.accumulators import accumulators
from viewkeep.plan.nodes import Aggregate, Arrange, Filter, Node, Project, Source

RowsOf = Callable[[Source], pl.DataFrame]


def evaluate(node: Node, rows_of: RowsOf) -> pl.DataFrame:
    """The rows of a plan node, given the rows of each base table it reads."""
    if isinstance(node, Source):
        return rows_of(node)
    rows = evaluate(node.input, rows_of)
    if isinstance(node, Filter):
        return filter_rows(rows, node.predicate)
    if isinstance(node, Project):
        return project(rows, [(out.name, out.expr) for out in node.outputs])
    if isinstance(node, Arrange):
        return rows.select([column.name for column in node.columns])
    return _aggregate(node, weighted(rows, 1))


def _aggregate(node: Aggregate, delta: pl.DataFrame) -> pl.DataFrame:
    kept = accumulators(node)
    gain = gains(delta, [(key.name, key.expr) for key in node.keys], kept)
    groups = gain.groups
    names = [key.name for key in node.keys]
    if not names and groups.height == 0:
        groups = pl.DataFrame({column: [0] for column in groups.columns}).cast(groups.schema)
    groups = groups.with_row_index(GROUP).with_columns(pl.col(GROUP).cast(pl.Int64))
    for argument, values in zip(kept.ordered, gain.values, strict=True):
        if names:
            values = values.join(groups.select(GROUP, *names), on=names, nulls_equal=True)
        else:
            values = values.with_columns(pl.lit(0, pl.Int64).alias(GROUP))
        totals = [t for t in kept.totals if t.distinct and t.argument == argument]
        if totals:
            found = values.select(GROUP, VALUE, pl.col(TIMES).sign().alias(WEIGHT))
            extra = distinct_gain(found, totals, groups.height).fill_null(0)
            groups = groups.hstack([extra[c.name] for total in totals for c in total.columns])
        for output in kept.outputs:
            if output.function in ("min", "max") and output.argument == argument:
                chosen = best(values.select(GROUP, VALUE), groups.height, output.function == "max")
                groups = groups.with_columns(chosen.alias(output.name))
    for output in kept.outputs:
        if output.function in ("sum", "avg"):
            groups = groups.with_columns(finish(groups, output))
    return groups.select([column.name for column in node.columns])
