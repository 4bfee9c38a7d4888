"""Counts and sums per group as linear totals: adding a delta's totals to the old gives the new.

Law: totals(A + B) = totals(A) + totals(B), so a delta is summed where it arises (map-side combine)
and sums are added where the state is. Integer and decimal sums are exact. A DOUBLE sum is a pair
(high, low) made by `math.fsum`, which rounds once and does not depend on the order of its terms; if
it leaves the range, high is an infinity and low the sum divided by BEYOND, so it can come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum, inf, isinf

import polars as pl

from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.types import BIGINT, DOUBLE, Column, DataType, decimal

_TERMS = "#terms"
BEYOND = 1 << 70  # more than the number of rows that a sum can have
SPLIT_BIGINT = 1 << 32
SPLIT_DECIMAL = 10**19
_ROOMY = 28  # digits of decimals whose sums stay within 38 digits for 10 billion rows


@dataclass(frozen=True)
class Total:
    """The count and, if asked for, the sum of an argument over a group's rows.

    With `distinct`, over the group's distinct values. A DOUBLE sum is kept as an unevaluated pair
    (high + low) besides counts of NaN and the infinities, which have no place in a sum. A sum that
    could leave its type where the result must not (`is_split`) is kept as the sums of two parts of
    each value: its quotient by `split`, rounded down, and the remainder.
    """

    argument: Expr
    distinct: bool
    count: str
    summed: bool
    averaged: bool = False

    @property
    def split(self) -> int:
        return SPLIT_DECIMAL if self.argument.type.is_decimal else SPLIT_BIGINT

    @property
    def is_split(self) -> bool:
        kind = self.argument.type
        if kind.is_decimal:
            return self.summed and kind.precision > _ROOMY
        return self.averaged and kind == BIGINT

    @property
    def sum_type(self) -> DataType:
        kind = self.argument.type
        if kind.is_decimal:
            return decimal(38, 0 if self.is_split else kind.scale)
        return DOUBLE if kind == DOUBLE else BIGINT

    @property
    def text(self) -> str:
        return f"distinct {self.argument}" if self.distinct else str(self.argument)

    @property
    def sum(self) -> str:
        return f"#sum({self.text})"

    @property
    def low(self) -> str:
        return f"#low({self.text})"

    @property
    def specials(self) -> tuple[str, str, str]:
        """Counts of NaN, infinity and minus infinity."""
        return (f"#nan({self.text})", f"#inf({self.text})", f"#-inf({self.text})")

    @property
    def is_double(self) -> bool:
        return self.summed and self.sum_type == DOUBLE

    @property
    def columns(self) -> tuple[Column, ...]:
        made = [Column(self.count, BIGINT)]
        if self.summed:
            made.append(Column(self.sum, self.sum_type))
        if self.is_split:
            made.append(Column(self.low, self.sum_type))
        if self.is_double:
            made.append(Column(self.low, DOUBLE))
            made += [Column(name, BIGINT) for name in self.specials]
        return tuple(made)


def add_up(
    delta: pl.DataFrame, by: Sequence[str], rows: str, totals: Sequence[tuple[Total, str]]
) -> pl.DataFrame:
    """One row per group of `by`: how many rows it gains, and the gain of each total.

    Each total comes with the column of `delta` that holds its argument.
    """
    made = [pl.col(WEIGHT).sum().alias(rows)]
    for total, argument in totals:
        value = pl.col(argument)
        made.append((pl.col(WEIGHT) * value.is_not_null()).sum().alias(total.count))
        if total.is_double:
            finite = value.is_finite()
            made.append((value * pl.col(WEIGHT)).filter(finite).alias(total.sum))
            for name, test in zip(
                total.specials, (value.is_nan(), value == inf, value == -inf), strict=True
            ):
                made.append(pl.col(WEIGHT).filter(test).sum().alias(name))
        elif total.is_split:
            whole = value.to_physical().cast(pl.Int128)
            divisor = pl.lit(total.split, pl.Int128)
            parts = (whole // divisor, whole - whole // divisor * divisor)
            for name, part in zip((total.sum, total.low), parts, strict=True):
                gain = (part * pl.col(WEIGHT).cast(pl.Int128)).sum()
                made.append(gain.cast(total.sum_type.polars).alias(name))
        elif total.summed and total.sum_type.is_decimal:
            wide = value.cast(total.sum_type.polars)
            zero = pl.lit(0).cast(total.sum_type.polars)
            signed = pl.when(pl.col(WEIGHT) < 0).then(zero - wide).otherwise(wide)
            made.append(signed.sum().cast(total.sum_type.polars).alias(total.sum))
        elif total.summed:
            made.append((value.cast(pl.Int64) * pl.col(WEIGHT)).sum().alias(total.sum))
    grouped = _group(delta, by, made)
    for total, _ in totals:
        if total.is_double:
            grouped = _with_pair(grouped, total, grouped[total.sum].to_list())
    return grouped


def merge(
    parts: pl.DataFrame, key: str, carried: Sequence[str], totals: Sequence[Total], rows: str
) -> pl.DataFrame:
    """Rows with the same `key` added up; the `carried` columns are the same in all of them."""
    if parts[key].n_unique() == parts.height:
        return parts
    made = [pl.col(name).first() for name in carried]
    made.append(pl.col(rows).sum())
    for total in totals:
        names = [column.name for column in total.columns]
        if total.is_double:
            names = [name for name in names if name not in (total.sum, total.low)]
            made += [pl.col(total.sum), pl.col(total.low)]
        for name in names:
            summed = pl.col(name).sum()
            if name in (total.sum, total.low):
                summed = summed.cast(total.sum_type.polars)
            made.append(summed)
    grouped = parts.group_by(key).agg(made)
    for total in totals:
        if total.is_double:
            terms = [
                high + low
                for high, low in zip(
                    grouped[total.sum].to_list(), grouped[total.low].to_list(), strict=True
                )
            ]
            grouped = _with_pair(grouped, total, terms)
    return grouped.select(parts.columns)


def advance(old: pl.DataFrame, gain: pl.DataFrame, totals: Iterable[Total]) -> list[pl.Series]:
    """The columns of the totals after adding `gain` to `old`, row by row (NULL in old: nothing)."""
    made: list[pl.Series] = []
    for total in totals:
        if total.is_double:
            columns = (old[total.sum], gain[total.sum], old[total.low], gain[total.low])
            terms = list(zip(*(column.fill_null(0.0).to_list() for column in columns), strict=True))
            highs, lows = _pairs(terms, total)
            count = plus(old[total.count], gain[total.count])
            # A group without values starts afresh, so no rounding survives it.
            blank = [n == 0 for n in count.to_list()]
            highs = [0.0 if empty else high for empty, high in zip(blank, highs, strict=True)]
            lows = [0.0 if empty else low for empty, low in zip(blank, lows, strict=True)]
            made += [count, pl.Series(total.sum, highs, pl.Float64)]
            made.append(pl.Series(total.low, lows, pl.Float64))
            made += [plus(old[name], gain[name]) for name in total.specials]
        else:
            made += [plus(old[column.name], gain[column.name]) for column in total.columns]
    return made


def plus(old: pl.Series, gain: pl.Series) -> pl.Series:
    """old + gain where old may be NULL, of the type of `gain`."""
    frame = pl.DataFrame([old.alias("old"), gain.alias("gain")])
    zero = pl.lit(0).cast(gain.dtype)
    total = (pl.col("old").fill_null(zero) + pl.col("gain").fill_null(zero)).cast(gain.dtype)
    return frame.select(total.alias(gain.name)).to_series()


def _group(delta: pl.DataFrame, by: Sequence[str], made: list[pl.Expr]) -> pl.DataFrame:
    if by:
        return delta.group_by(by).agg(made)
    # Without keys there is one group, and none where there are no rows.
    one = delta.with_columns(pl.lit(0).alias(_TERMS))
    return one.group_by(_TERMS).agg(made).drop(_TERMS)


def _with_pair(frame: pl.DataFrame, total: Total, terms: list[list[float]]) -> pl.DataFrame:
    highs, lows = _pairs(terms, total)
    return frame.with_columns(
        pl.Series(total.sum, highs, pl.Float64), pl.Series(total.low, lows, pl.Float64)
    )


def _pairs(terms: Iterable[Sequence[float]], total: Total) -> tuple[list[float], list[float]]:
    """Each sequence of terms as (high, low). Python's fsum: 30-50 ns a term, and exact.

    The terms are finite values, or highs followed by as many lows.
    """
    highs, lows = [], []
    for group in terms:
        try:
            high = fsum(group)
            low = fsum((*group, -high))
        except (OverflowError, ValueError):  # a sum is out of range, or a partial sum left it
            high, low = _exact_pair(group)
        highs.append(high)
        lows.append(low)
    return highs, lows


def _exact_pair(terms: Sequence[float]) -> tuple[float, float]:
    """What `_pairs` makes of terms whose sum is, or may be, out of range."""
    half = len(terms) // 2
    exact = Fraction(0)
    for place, term in enumerate(terms):
        if isinf(term):
            exact += Fraction(terms[place + half]) * BEYOND
        elif place < half or not isinf(terms[place - half]):
            exact += Fraction(term)
    try:
        high = float(exact)
    except OverflowError:
        return (inf if exact > 0 else -inf), float(exact / BEYOND)
    return high, float(exact - Fraction(high))
