"""All groups of an aggregate, for a query that is asked once."""

from __future__ import annotations

from viewkeep.deferred import pl
from viewkeep.delta import WEIGHT, weighted
from viewkeep.engine.batches import project_batches
from viewkeep.engine.budget import Budget
from viewkeep.expr import Call, Expr, Ref
from viewkeep.ops.aggregates.accumulators import distinct_gain, gains
from viewkeep.ops.aggregates.ordered import GROUP, TIMES
from viewkeep.plan.nodes import Aggregate

_COPIES = 2  # of its input that an aggregate makes


def whole_aggregate(node: Aggregate, rows: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    """All groups of an aggregate, given the rows of its input."""
    node, rows = _computed(node, rows, budget)
    # Groups are found by copies of their keys, and hold copies of their values.
    budget.hold(_COPIES * int(rows.estimated_size()), "an aggregate of the query")
    return _grouped(node, weighted(rows, 1))


def _computed(
    node: Aggregate, rows: pl.DataFrame, budget: Budget
) -> tuple[Aggregate, pl.DataFrame]:
    """An aggregate over columns alone, with the columns that its expressions make."""
    exprs: dict[Expr, Ref] = {}

    def column(expr: Expr) -> Expr:
        if not isinstance(expr, Call):
            return expr
        return exprs.setdefault(expr, Ref(f"#argument{len(exprs)}", expr.type))

    made = node.mapped(column, node.inputs)
    assert isinstance(made, Aggregate)
    if not exprs:
        return node, rows
    outputs = [(ref.name, expr) for expr, ref in exprs.items()]
    rows = project_batches(rows, outputs, rows.columns, budget)
    return made, rows


def _grouped(node: Aggregate, delta: pl.DataFrame) -> pl.DataFrame:
    kept = node.accumulators
    gain = gains(delta, [(key.name, key.expr) for key in node.keys], kept)
    groups = gain.groups
    names = [key.name for key in node.keys]
    if not names and groups.height == 0:
        groups = pl.DataFrame({column: [0] for column in groups.columns}).cast(groups.schema)
    groups = groups.with_row_index(GROUP).with_columns(pl.col(GROUP).cast(pl.Int64))
    for order, values in zip(kept.ordered, gain.values, strict=True):
        if names:
            values = values.join(groups.select(GROUP, *names), on=names, nulls_equal=True)
        else:
            values = values.with_columns(pl.lit(0, pl.Int64).alias(GROUP))
        totals = kept.distinct(order)
        if totals:
            found = values.with_columns(pl.col(TIMES).sign().alias(WEIGHT))
            extra = distinct_gain(found, totals, groups.height).fill_null(0)
            groups = groups.hstack([extra[c.name] for total in totals for c in total.columns])
        for output in kept.outputs:
            if output.order == order:
                made = output.function.of_values(values, groups, output)
                groups = groups.with_columns(made.alias(output.name))
    for output in kept.totalled:
        groups = groups.with_columns(output.function.finish(groups, output))
    return groups.select([column.name for column in node.columns])
