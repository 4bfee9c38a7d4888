"""Evaluates a plan once over given rows, with the same operators that keep views.

Law: the result is what the view of the same plan would hold had it seen these rows as insertions.
What an operator will hold is taken from the budget before it is made: the rows of a join are
counted first, and expressions are computed a batch at a time. All rows are held until the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import polars as pl

from viewkeep.delta import WEIGHT, weighted
from viewkeep.engine.batches import filter_batches, project_batches, width
from viewkeep.engine.budget import SMALL, Budget
from viewkeep.errors import QueryTooLarge
from viewkeep.expr import Call, Expr, Ref
from viewkeep.ops.aggregates.accumulators import (
    COLLECTIONS,
    EXTREMES,
    PERCENTILES,
    count_of,
    distinct_gain,
    finish,
    gains,
    percentile_of,
)
from viewkeep.ops.aggregates.collect import collected
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, best
from viewkeep.ops.aggregates.percentiles import RESULT, percentiles
from viewkeep.ops.window import top_k, window_columns
from viewkeep.plan.accumulators import accumulators
from viewkeep.plan.nodes import (
    Aggregate,
    Arrange,
    Filter,
    Join,
    Node,
    Project,
    Source,
    TopK,
    Union,
    Values,
    Window,
    inputs,
    nodes,
)

RowsOf: TypeAlias = "Callable[[Source], pl.DataFrame]"

MOST_JOINED = 20_000_000  # rows that a join may have
_COPIES = 2  # of its input that an aggregate makes


def evaluate(
    node: Node,
    rows_of: RowsOf,
    known: dict[str, pl.DataFrame] | None = None,
    budget: Budget | None = None,
) -> pl.DataFrame:
    """The rows of a plan node, given the rows of each base table it reads.

    `known` gets the rows of every node below by its id, so that what comes twice is computed once.
    """
    known = {} if known is None else known
    budget = Budget() if budget is None else budget
    for part in nodes([node]):
        if part.id not in known:
            budget.check()
            below = [known[one.id] for one in inputs(part)]
            known[part.id] = _evaluated(part, rows_of, below, budget)
    return known[node.id]


def _evaluated(
    node: Node, rows_of: RowsOf, below: list[pl.DataFrame], budget: Budget
) -> pl.DataFrame:
    if isinstance(node, Source):
        return rows_of(node)
    if isinstance(node, Values):
        schema = {column.name: column.type.polars for column in node.columns}
        return pl.DataFrame(node.rows, schema=schema, orient="row")
    if isinstance(node, Union):
        names = [column.name for column in node.columns]
        return pl.concat([rows.select(names) for rows in below])
    if isinstance(node, Join):
        left, right = below
        return _join(node, left, right, budget)
    (rows,) = below
    if isinstance(node, Filter):
        return filter_batches(rows, node.predicate, budget)
    if isinstance(node, Project):
        return project_batches(rows, [(out.name, out.expr) for out in node.outputs], (), budget)
    if isinstance(node, Arrange):
        return rows.select([column.name for column in node.columns])
    if isinstance(node, TopK | Window):
        # Sorted, and with the order of the rows beside them.
        budget.hold(rows.height * (width(rows) + 16), "a sort of the query")
        return _top_k(node, rows) if isinstance(node, TopK) else _window(node, rows)
    assert isinstance(node, Aggregate), "a finished plan has no fences"
    node, rows = _computed(node, rows, budget)
    # Groups are found by copies of their keys, and hold copies of their values.
    budget.hold(_COPIES * int(rows.estimated_size()), "an aggregate of the query")
    return _aggregate(node, weighted(rows, 1))


def _computed(
    node: Aggregate, rows: pl.DataFrame, budget: Budget
) -> tuple[Aggregate, pl.DataFrame]:
    """An aggregate over columns alone, with the columns that its expressions make."""
    exprs: dict[Expr, Ref] = {}

    def column(expr: Expr) -> Expr:
        if not isinstance(expr, Call):
            return expr
        return exprs.setdefault(expr, Ref(f"#argument{len(exprs)}", expr.type))

    keys = tuple(replace(key, expr=column(key.expr)) for key in node.keys)
    calls = tuple(
        replace(
            call,
            argument=None if call.argument is None else column(call.argument),
            by=tuple(replace(part, expr=column(part.expr)) for part in call.by),
        )
        for call in node.aggregates
    )
    if not exprs:
        return node, rows
    outputs = [(ref.name, expr) for expr, ref in exprs.items()]
    rows = project_batches(rows, outputs, rows.columns, budget)
    return replace(node, keys=keys, aggregates=calls), rows


def _pairs(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> int:
    """How many pairs of rows have equal keys."""
    counts = [rows.group_by(keys).len(name) for rows, name in ((left, "#left"), (right, "#right"))]
    met = counts[0].join(counts[1], on=keys, nulls_equal=True)
    return int(met.select(pl.col("#left").cast(pl.Int64) * pl.col("#right")).sum().item())


def _check_size(
    pairs: int, left: pl.DataFrame, right: pl.DataFrame, budget: Budget, alone: int = 0
) -> None:
    """Refuse a join that would take more than there is, before it is made.

    `alone` is the number of rows that it has besides, without a partner.
    """
    if pairs > MOST_JOINED:
        raise QueryTooLarge(
            f"a join of the query has {pairs:,} rows, and {MOST_JOINED:,} are the limit",
            hint="Narrow its inputs, or create a view, which is kept row by row",
        )
    size = (pairs + alone) * (width(left) + width(right))
    budget.hold(size, f"a join of {pairs:,} rows in the query")


def _join(node: Join, left: pl.DataFrame, right: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    names = [column.name for column in node.columns]
    if not node.on:
        if not node.shows_right:
            return left if (right.height > 0) == (node.kind == "semi") else left.clear()
        if node.kind == "left" and right.height == 0:
            right = right.clear(1)
        _check_size(left.height * right.height, left, right, budget)
        return left.join(right, how="cross").select(names)
    keys = [f"#match{place}" for place in range(len(node.on))]
    pairs = list(zip(keys, node.on, strict=True))
    left_keys = [(key, match.left) for key, match in pairs]
    right_keys = [(key, match.right) for key, match in pairs]
    left = project_batches(left, left_keys, left.columns, budget)
    right = project_batches(right, right_keys, right.columns, budget)
    # Where NULL is no partner of NULL, it is enough that one side has none.
    right = right.drop_nulls([key for key, match in pairs if not match.null_safe])
    if node.shows_right:
        count = left.height * right.height
        if count > MOST_JOINED or count * (width(left) + width(right)) > SMALL:
            count = _pairs(left, right, keys)
        alone = left.height * (node.kind != "inner") + right.height * (node.kind == "full")
        _check_size(count, left, right, budget, alone)
    else:
        budget.hold(left.height * width(left), "a join of the query")
    how: Any = node.kind
    return left.join(right, on=keys, how=how, nulls_equal=True).select(names)


def _top_k(node: TopK, rows: pl.DataFrame) -> pl.DataFrame:
    return top_k(_sorted(node, rows), node.partition, node.limit, node.offset)


def _window(node: Window, rows: pl.DataFrame) -> pl.DataFrame:
    rows = _sorted(node, rows)
    return rows.hstack(window_columns(rows, node.partition, node.order, node.calls))


def _sorted(node: TopK | Window, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows by partition, order and row key; NULLs come first going up, last going down."""
    by = dict.fromkeys(node.partition, False)
    for part in node.order:
        by.setdefault(part.name, part.descending)
    for name in node.row_key:
        by.setdefault(name, False)
    if not by:
        return rows
    return rows.sort(list(by), descending=list(by.values()), nulls_last=list(by.values()))


def _aggregate(node: Aggregate, delta: pl.DataFrame) -> pl.DataFrame:
    kept = accumulators(node)
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
        for output in kept.depending(EXTREMES, order):
            chosen = best(values, order, groups.height, output.function.startswith("max"))
            groups = groups.with_columns(chosen[order.names[-1]].alias(output.name))
        for output in kept.depending(PERCENTILES, order):
            counts = groups[count_of(output)].to_list()
            ranked = percentiles(values, counts, percentile_of(output), output.distinct)
            groups = groups.with_columns(ranked[RESULT].alias(output.name))
        for output in kept.depending(COLLECTIONS, order):
            function, given = output.function, output.parameters
            made = collected(values, order, groups.height, function, given, output.distinct)
            groups = groups.with_columns(made.alias(output.name))
    for output in kept.totalled:
        groups = groups.with_columns(finish(groups, output))
    return groups.select([column.name for column in node.columns])
