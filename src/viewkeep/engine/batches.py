"""Row-wise work a batch at a time, within the budget of the query.

Law: the result is that of the whole frame at once. A batch makes at most `BATCH_BYTES`, as far as
one row does not make more, and the clock is looked at between batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeep.deferred import pl
from viewkeep.engine.budget import MIB, Budget
from viewkeep.expr import Call, Expr
from viewkeep.ops.evaluate import compute, project
from viewkeep.ops.sizes import grows, most_bytes, reads

BATCH_ROWS = 100_000
BATCH_BYTES = 32 * MIB
_TEXT_VIEW = 16  # bytes of a text in a column besides its letters, which frames share


def width(rows: pl.DataFrame) -> int:
    """Bytes that a row takes where texts are shared with the frame that they come from."""
    total = 0
    for column in rows.get_columns():
        if column.dtype in (pl.String, pl.Binary):
            total += _TEXT_VIEW
        elif column.dtype.is_nested():
            total += _TEXT_VIEW + int(column.estimated_size()) // max(1, len(column))
        else:
            total += max(1, int(column.estimated_size()) // max(1, len(column)))
    return total


def filter_batches(rows: pl.DataFrame, predicate: Expr, budget: Budget) -> pl.DataFrame:
    """The rows for which the predicate is TRUE."""
    kept = []
    for batch in _batches(rows, [predicate], budget):
        found = batch.filter(compute(batch, [predicate])[0])
        budget.hold(found.height * width(found), "a filter of the query")
        kept.append(found)
    return kept[0] if len(kept) == 1 else pl.concat(kept)


def project_batches(
    rows: pl.DataFrame,
    outputs: Sequence[tuple[str, Expr]],
    keep: Sequence[str],
    budget: Budget,
) -> pl.DataFrame:
    """A frame of computed columns under their names, and the `keep` columns as they are."""
    calls = [(name, expr) for name, expr in outputs if isinstance(expr, Call)]
    made = []
    for batch in _batches(rows, [expr for _, expr in calls], budget):
        found = project(batch, outputs, keep)
        size = sum(found.get_column(name).estimated_size() for name, _ in calls)
        budget.hold(int(size), "an expression of the query")
        made.append(found)
    return made[0] if len(made) == 1 else pl.concat(made)


def _batches(rows: pl.DataFrame, exprs: Sequence[Expr], budget: Budget) -> Iterator[pl.DataFrame]:
    """The rows in parts for which the expressions make a bounded number of bytes."""
    start = 0
    for end in _ends(rows, exprs, budget):
        budget.check()
        yield rows if end - start == rows.height else rows.slice(start, end - start)
        start = end


def _ends(rows: pl.DataFrame, exprs: Sequence[Expr], budget: Budget) -> list[int]:
    """Where the batches end; the last one with the frame."""
    step, height = BATCH_ROWS, rows.height
    growing = [expr for expr in exprs if grows(expr)]
    if growing and height:
        sizes = rows.select(
            pl.sum_horizontal(*(most_bytes(expr) for expr in growing), pl.lit(0.0)).alias("size"),
            pl.int_range(pl.len()).alias("row"),
        )
        largest = sizes.get_column("size").max()
        assert isinstance(largest, float)
        if largest > budget.memory:
            raise budget.too_large("a text that the query makes", int(largest))
        if sizes.get_column("size").sum() > BATCH_BYTES or height > step:
            part = (pl.col("size").cum_sum() / BATCH_BYTES).floor()
            row = pl.col("row")
            last = sizes.filter((part != part.shift(-1)) | (row % step == step - 1))
            return [*(end + 1 for end in last.get_column("row") if end + 1 < height), height]
        return [height]
    if height > 1:
        texts = sum(c.estimated_size() for c in rows.get_columns() if c.dtype == pl.String)
        times = max(1, sum(reads(expr) for expr in exprs))
        step = max(1, min(step, int(BATCH_BYTES * height // max(1, texts * times))))
    return [*range(step, height, step), height]
