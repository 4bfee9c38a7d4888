"""Runs typed expressions over polars frames.

Law: a result depends on the row alone, has exactly the type its expression says, and there is one
per row, also when the expression reads no column or the frame is empty. A time that a function
makes is of the years 1 to 9999, or NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import polars as pl

from viewkeep.expr import Call, Expr, Lit, Ref, Scalar
from viewkeep.ops.functions import FUNCTIONS, Site
from viewkeep.ops.functions.casts import in_years

_ANCHOR = "#rows"


def to_polars(expr: Expr) -> pl.Expr:
    """The polars expression that computes `expr` over a frame with the columns it refers to."""
    return _compiled(expr)


@lru_cache(maxsize=10_000)
def _compiled(expr: Expr) -> pl.Expr:
    if isinstance(expr, Ref):
        return pl.col(expr.name)
    if isinstance(expr, Lit):
        return pl.lit(expr.value, dtype=expr.type.polars)
    site = Site(
        tuple(_compiled(arg) for arg in expr.args),
        tuple(arg.type for arg in expr.args),
        expr.type,
        {i: arg.value for i, arg in enumerate(expr.args) if isinstance(arg, Lit)},
    )
    return in_years(FUNCTIONS[expr.function].build(site), expr.type)


def filter_rows(df: pl.DataFrame, predicate: Expr) -> pl.DataFrame:
    """The rows for which the predicate is TRUE; FALSE and NULL are left out."""
    kept = df.select(pl.repeat(True, pl.len()) & to_polars(predicate)).to_series()
    return df.filter(kept)


def project(
    df: pl.DataFrame, outputs: Sequence[tuple[str, Expr]], keep: Sequence[str] = ()
) -> pl.DataFrame:
    """A frame of computed columns under their names, and the `keep` columns as they are."""
    made = [to_polars(expr).cast(expr.type.polars).alias(name) for name, expr in outputs]
    anchor = pl.int_range(pl.len()).alias(_ANCHOR)
    return df.select(*made, *(pl.col(name) for name in keep), anchor).drop(_ANCHOR)


def evaluate_one(expr: Expr, row: Mapping[str, Scalar]) -> Scalar:
    """The value of an expression for one row."""
    columns = [pl.Series("#", [None])]
    for name, type_ in _columns(expr).items():
        columns.append(pl.Series(name, [row[name]], dtype=type_))
    value: Scalar = project(pl.DataFrame(columns), [("value", expr)]).item()
    return value


def _columns(expr: Expr) -> dict[str, pl.DataType]:
    if isinstance(expr, Ref):
        return {expr.name: expr.type.polars}
    if isinstance(expr, Call):
        return {name: t for arg in expr.args for name, t in _columns(arg).items()}
    return {}
