"""Whether two results hold the same rows, whatever their order, and how they differ if not.

Integers, texts and NULLs are equal exactly, floating numbers to nine digits.
"""

from __future__ import annotations

import polars as pl

from suite.contract import Result

DIGITS, SHOWN = 9, 3


def difference(found: Result, expected: Result) -> str | None:
    """None if they are equal, otherwise a sentence."""
    if found.keys() != expected.keys():
        return f"there are {sorted(found)}, not {sorted(expected)}"
    for name, frame in expected.items():
        told = _compare(found[name], frame)
        if told:
            return f"{name}: {told}"
    return None


def _compare(found: pl.DataFrame, expected: pl.DataFrame) -> str | None:
    if set(found.columns) != set(expected.columns):
        return f"the columns are {found.columns}, not {expected.columns}"
    one, other = _plain(found, expected), _plain(expected, expected)
    if one.equals(other):
        return None
    columns = list(expected.columns)
    missing = other.join(one, on=columns, how="anti", nulls_equal=True)
    extra = one.join(other, on=columns, how="anti", nulls_equal=True)
    return (
        f"{len(found):,} rows, not {len(expected):,}; {len(missing):,} missing such as "
        f"{missing.head(SHOWN).rows()}, {len(extra):,} too many such as {extra.head(SHOWN).rows()}"
    )


def _plain(frame: pl.DataFrame, like: pl.DataFrame) -> pl.DataFrame:
    """The columns of `like`, in types that compare, rounded, in order."""
    made = []
    for name in like.columns:
        column, kind = pl.col(name), like[name].dtype
        if kind.is_float() or isinstance(kind, pl.Decimal):
            made.append(column.cast(pl.Float64).round_sig_figs(DIGITS))
        elif kind.is_integer():
            made.append(column.cast(pl.Int64))
        else:
            made.append(column.cast(pl.String))
    return frame.select(made).sort(like.columns)
