"""Evaluates a plan once over given rows, with the same operators that keep views.

Law: the result is what the view of the same plan would hold had it seen these rows as insertions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from viewkeep.delta import WEIGHT, weighted
from viewkeep.errors import Unsupported
from viewkeep.ops.aggregate import (
    COLLECTIONS,
    EXTREMES,
    PERCENTILES,
    count_of,
    distinct_gain,
    finish,
    gains,
    percentile_of,
)
from viewkeep.ops.collect import collected
from viewkeep.ops.evaluate import filter_rows, project
from viewkeep.ops.ordered import GROUP, TIMES, best
from viewkeep.ops.ranks import RESULT, percentiles
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
)

RowsOf = Callable[[Source], pl.DataFrame]

MOST_JOINED = 20_000_000  # rows that a join may have


def evaluate(
    node: Node, rows_of: RowsOf, known: dict[str, pl.DataFrame] | None = None
) -> pl.DataFrame:
    """The rows of a plan node, given the rows of each base table it reads.

    `known` gets the rows of every node below by its id, so that what comes twice is computed once.
    """
    known = {} if known is None else known
    if node.id not in known:
        below = [evaluate(part, rows_of, known) for part in inputs(node)]
        known[node.id] = _evaluated(node, rows_of, below)
    return known[node.id]


def _evaluated(node: Node, rows_of: RowsOf, below: list[pl.DataFrame]) -> pl.DataFrame:
    if isinstance(node, Source):
        return rows_of(node)
    if isinstance(node, Values):
        schema = {column.name: column.type.polars for column in node.columns}
        return pl.DataFrame(node.rows, schema=schema, orient="row")
    if isinstance(node, Union):
        names = [column.name for column in node.columns]
        return pl.concat([rows.select(names) for rows in below])
    if isinstance(node, Join):
        return _join(node, *below)
    (rows,) = below
    if isinstance(node, Filter):
        return filter_rows(rows, node.predicate)
    if isinstance(node, Project):
        return project(rows, [(out.name, out.expr) for out in node.outputs])
    if isinstance(node, Arrange):
        return rows.select([column.name for column in node.columns])
    if isinstance(node, TopK):
        return _top_k(node, rows)
    if isinstance(node, Window):
        return _window(node, rows)
    return _aggregate(node, weighted(rows, 1))


def _pairs(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> int:
    """How many pairs of rows have equal keys."""
    counts = [rows.group_by(keys).len(name) for rows, name in ((left, "#left"), (right, "#right"))]
    met = counts[0].join(counts[1], on=keys, nulls_equal=True)
    return int(met.select(pl.col("#left").cast(pl.Int64) * pl.col("#right")).sum().item())


def _check_size(rows: int) -> None:
    """Refuse what would take all the memory there is, which no one could stop any more."""
    if rows > MOST_JOINED:
        raise Unsupported(
            f"a join of the query has {rows:,} rows, and {MOST_JOINED:,} are the limit",
            hint="Narrow its inputs, or create a view, which is kept row by row",
        )


def _join(node: Join, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    names = [column.name for column in node.columns]
    if not node.on:
        if not node.shows_right:
            return left if (right.height > 0) == (node.kind == "semi") else left.clear()
        if node.kind == "left" and right.height == 0:
            right = right.clear(1)
        _check_size(left.height * right.height)
        return left.join(right, how="cross").select(names)
    keys = [f"#match{place}" for place in range(len(node.on))]
    pairs = list(zip(keys, node.on, strict=True))
    left = project(left, [(key, match.left) for key, match in pairs], left.columns)
    right = project(right, [(key, match.right) for key, match in pairs], right.columns)
    # Where NULL is no partner of NULL, it is enough that one side has none.
    right = right.drop_nulls([key for key, match in pairs if not match.null_safe])
    if node.shows_right and left.height * right.height > MOST_JOINED:
        _check_size(_pairs(left, right, keys))
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
