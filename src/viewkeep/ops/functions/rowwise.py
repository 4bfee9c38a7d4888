"""Kernels that polars has no expression for, run over whole columns or row by row in Python.

Law: a NULL argument gives NULL without a call; a constant argument meets every row. Row-by-row
kernels cost about 1 us a row, so each use says why it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeep.deferred import pl


def each(function: Callable[..., object], dtype: pl.DataType, *args: pl.Expr) -> pl.Expr:
    """`function` of the arguments of each row."""

    def run(columns: Sequence[pl.Series]) -> pl.Series:
        lists = [column.to_list() for column in aligned(columns)]
        if len(lists) == 1:
            values = [None if v is None else function(v) for v in lists[0]]
        else:
            values = [None if None in row else function(*row) for row in zip(*lists, strict=True)]
        return pl.Series(columns[0].name, values, dtype=dtype)

    return batches(run, dtype, *args)


def batches(
    run: Callable[[Sequence[pl.Series]], pl.Series], dtype: pl.DataType, *args: pl.Expr
) -> pl.Expr:
    """`run` of whole columns, with a value for each row.

    Of constants alone it is elementwise, so that polars repeats its value for all rows. Else it is
    not: polars would pass a column of equal values as one value, and its result would be no column
    beside a constant.
    """
    constant = not any(arg.meta.root_names() for arg in args)
    return pl.map_batches(list(args), run, return_dtype=dtype, is_elementwise=constant)


def aligned(columns: Sequence[pl.Series]) -> list[pl.Series]:
    """The columns with those of one row, which come from constants, repeated for all rows."""
    lengths = {len(column) for column in columns}
    rows = (lengths - {1} or {1}).pop()
    return [c.new_from_index(0, rows) if len(c) == 1 and rows != 1 else c for c in columns]
