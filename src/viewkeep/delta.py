"""Deltas: rows with an integer weight, +1 for a row that appears and -1 for one that goes.

A delta is a polars frame (Arrow memory) with a `#weight` column. Its meaning is the multiset sum of
its rows times their weights: order means nothing, and equal rows with opposite weights cancel.
Names that start with `#` are never a user's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from viewkeep.deferred import np, pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHT = "#weight"
KEY = "#key"  # encoded key bytes, where a frame carries them
HOME = "#home"  # the shard of the key, where it was computed for many who need it


def weighted(rows: pl.DataFrame, weight: int) -> pl.DataFrame:
    """The rows as a delta in which each has this weight."""
    return rows.hstack([weights(rows.height, weight)])


def without(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The other columns of a frame. A call of polars' own `drop` is a query, this is none."""
    return frame[[name for name in frame.columns if name not in names]]


def chosen(frame: pl.DataFrame, which: NDArray[np.bool_]) -> pl.DataFrame:
    """Some rows of a frame. Column by column: polars' own `filter` of a frame is a query."""
    mask = pl.Series(which)
    return pl.DataFrame([column.filter(mask) for column in frame])


def weights(count: int, weight: int) -> pl.Series:
    """The column in which so many rows have this weight."""
    return pl.Series(WEIGHT, [weight], pl.Int64).new_from_index(0, count)


def consolidate(delta: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The delta with equal rows (in the columns `by`) added up and those of weight 0 gone."""
    summed = delta.group_by(by).agg(pl.col(WEIGHT).sum())
    stays = summed[WEIGHT].to_numpy() != 0
    return summed if stays.all() else chosen(summed, stays)
