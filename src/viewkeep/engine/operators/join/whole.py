"""All rows of a join, for a query that is asked once."""

from __future__ import annotations

from typing import Any

from viewkeep.deferred import pl
from viewkeep.engine.batches import project_batches, width
from viewkeep.engine.budget import SMALL, Budget
from viewkeep.errors import QueryTooLarge
from viewkeep.plan.nodes import Join

MOST_JOINED = 20_000_000  # rows that a join of a query may have


def whole_join(node: Join, left: pl.DataFrame, right: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    """All rows of a join, given those of its sides."""
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
            count = _count_pairs(left, right, keys)
        alone = left.height * (node.kind != "inner") + right.height * (node.kind == "full")
        _check_size(count, left, right, budget, alone)
    else:
        budget.hold(left.height * width(left), "a join of the query")
    how: Any = node.kind
    return left.join(right, on=keys, how=how, nulls_equal=True).select(names)


def _count_pairs(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> int:
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
