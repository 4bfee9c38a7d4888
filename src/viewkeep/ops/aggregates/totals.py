"""Counts and sums per group as linear totals: adding a delta's totals to the old gives the new.

Law: totals(A + B) = totals(A) + totals(B), so a delta is summed where it arises (map-side combine)
and sums are added where the state is. Integer and decimal sums are exact; a DOUBLE sum is a pair
(`double_sums`), besides counts of NaN and the infinities, which have no place in a sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from viewkeep.deferred import pl
from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.ops.aggregates.double_sums import advance_pair, with_pair
from viewkeep.ops.functions.rowform import wrapped
from viewkeep.types import BIGINT, DOUBLE, Column, DataType, decimal

_TERMS = "#terms"
SPLIT_BIGINT = 1 << 32
SPLIT_DECIMAL = 10**19
_ROOMY = 28  # digits of decimals whose sums stay within 38 digits for 10 billion rows


class Linear(ABC):
    """Something kept per group to which a delta's share is added."""

    distinct: bool

    @property
    @abstractmethod
    def arguments(self) -> tuple[Expr, ...]:
        """What is computed from each row."""

    @property
    def told_apart_by(self) -> tuple[Expr, ...]:
        """With `distinct`: rows that are equal in these count once."""
        return self.arguments[:1]

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns that hold it."""

    @abstractmethod
    def gained(self, *places: str) -> list[pl.Expr]:
        """Its columns for the rows of a group, whose arguments are in the columns `places`."""

    @abstractmethod
    def merged(self) -> list[pl.Expr]:
        """Its columns for the gains of a group put together."""

    def settled(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame after `gained` or `merged`, where its columns needed another step."""
        return frame

    @abstractmethod
    def advanced(self, old: pl.DataFrame, gain: pl.DataFrame) -> list[pl.Series]:
        """Its columns after adding a gain, row by row (NULL in old: nothing)."""

    # -- for one row at a time (`row_form`) ----------------------------------------------------

    has_row_form: ClassVar[bool] = True
    """Whether `row_gain` and what follows it are there; else the columns lane keeps it."""
    row_merge: ClassVar[str] = "added"
    """How slots of several gains are merged, but for those of a pair: `added` or `xored`."""

    @property
    def is_pair(self) -> bool:
        """Whether its second and third column are a sum of DOUBLEs."""
        return False

    def row_gain(self, values: Sequence[str], at: int, names: dict[str, object]) -> list[str]:
        """Lines that add a row (`weight`) with these arguments to `group`, from slot `at` on.

        What they call is added to `names`.
        """
        raise NotImplementedError

    def row_advance(self, old: Sequence[str], gained: Sequence[str]) -> list[str]:
        """The source of its columns after a gain; a pair's is one source for both."""
        sums = [f"{a} + {b}" for a, b in zip(old, gained, strict=True)]
        if self.is_pair:
            terms = ", ".join((old[1], gained[1], old[2], gained[2]))
            sums[1:3] = [f"PAIR(({terms})) if {sums[0]} else (0.0, 0.0)"]
        return sums


@dataclass(frozen=True)
class Total(Linear):
    """The count and, if asked for, the sum of an argument over a group's rows.

    With `distinct`, over the group's distinct values, of several columns if there are `others`. A
    sum that could leave its type where the result must not (`is_split`) is kept as the sums of two
    parts of each value: its quotient by `split`, rounded down, and the remainder.
    """

    argument: Expr
    distinct: bool
    count: str
    summed: bool
    averaged: bool = False
    others: tuple[Expr, ...] = ()

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return (self.argument,)

    @property
    def told_apart_by(self) -> tuple[Expr, ...]:
        return (self.argument, *self.others)

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

    def gained(self, *places: str) -> list[pl.Expr]:
        value = pl.col(places[0])
        made = [(pl.col(WEIGHT) * value.is_not_null()).sum().alias(self.count)]
        if self.is_double:
            made.append((value * pl.col(WEIGHT)).filter(value.is_finite()).alias(self.sum))
            tests = (value.is_nan(), value == inf, value == -inf)
            for name, test in zip(self.specials, tests, strict=True):
                made.append(pl.col(WEIGHT).filter(test).sum().alias(name))
        elif self.is_split:
            whole = value.to_physical().cast(pl.Int128)
            divisor = pl.lit(self.split, pl.Int128)
            parts = (whole // divisor, whole - whole // divisor * divisor)
            for name, part in zip((self.sum, self.low), parts, strict=True):
                gain = (part * pl.col(WEIGHT).cast(pl.Int128)).sum()
                made.append(gain.cast(self.sum_type.polars).alias(name))
        elif self.summed and self.sum_type.is_decimal:
            wide = value.cast(self.sum_type.polars)
            zero = pl.lit(0).cast(self.sum_type.polars)
            signed = pl.when(pl.col(WEIGHT) < 0).then(zero - wide).otherwise(wide)
            made.append(signed.sum().cast(self.sum_type.polars).alias(self.sum))
        elif self.summed:
            made.append((value.cast(pl.Int64) * pl.col(WEIGHT)).sum().alias(self.sum))
        return made

    def merged(self) -> list[pl.Expr]:
        made = []
        for column in self.columns:
            if self.is_double and column.name in (self.sum, self.low):
                made.append(pl.col(column.name))
            else:
                made.append(pl.col(column.name).sum().cast(column.type.polars))
        return made

    def settled(self, frame: pl.DataFrame) -> pl.DataFrame:
        return with_pair(frame, self.sum, self.low) if self.is_double else frame

    def advanced(self, old: pl.DataFrame, gain: pl.DataFrame) -> list[pl.Series]:
        if not self.is_double:
            return [plus(old[column.name], gain[column.name]) for column in self.columns]
        count = plus(old[self.count], gain[self.count])
        pair = advance_pair(old, gain, count, self.sum, self.low)
        return [count, *pair, *(plus(old[name], gain[name]) for name in self.specials)]

    @property
    def is_pair(self) -> bool:
        return self.is_double

    def row_gain(self, values: Sequence[str], at: int, names: dict[str, object]) -> list[str]:
        value = values[0]
        lines = [f"if {value} is not None:", f"    group[{at}] += weight"]
        if self.is_double:
            return [
                *lines,
                f"    if -INFINITY < {value} < INFINITY: group[{at + 1}].append({value} * weight)",
                f"    elif {value} != {value}: group[{at + 3}] += weight",
                f"    elif {value} > 0: group[{at + 4}] += weight",
                f"    else: group[{at + 5}] += weight",
            ]
        if self.is_split:
            lines.append(f"    group[{at + 1}] += {value} // {self.split} * weight")
            lines.append(f"    group[{at + 2}] += {value} % {self.split} * weight")
        elif self.summed:
            lines.append(f"    group[{at + 1}] += {value} * weight")
        return lines

    def row_advance(self, old: Sequence[str], gained: Sequence[str]) -> list[str]:
        sums = super().row_advance(old, gained)
        if self.summed and self.sum_type == BIGINT:
            sums[1:] = [wrapped(source, BIGINT) for source in sums[1:]]
        return sums


def add_up(
    delta: pl.DataFrame,
    by: Sequence[str],
    rows: str,
    totals: Sequence[tuple[Linear, tuple[str, ...]]],
) -> pl.DataFrame:
    """One row per group of `by`: how many rows it gains, and the gain of each total.

    Each total comes with the columns of `delta` that hold its arguments.
    """
    made = [pl.col(WEIGHT).sum().alias(rows)]
    for total, places in totals:
        made += total.gained(*places)
    grouped = _group(delta, by, made)
    for total, _ in totals:
        grouped = total.settled(grouped)
    return grouped


def merge(
    parts: pl.DataFrame, key: str, carried: Sequence[str], totals: Sequence[Linear], rows: str
) -> pl.DataFrame:
    """Rows with the same `key` added up; the `carried` columns are the same in all of them."""
    if parts[key].n_unique() == parts.height:
        return parts
    made = [pl.col(name).first() for name in carried]
    made.append(pl.col(rows).sum())
    for total in totals:
        made += total.merged()
    grouped = parts.group_by(key).agg(made)
    for total in totals:
        grouped = total.settled(grouped)
    return grouped.select(parts.columns)


def advance(old: pl.DataFrame, gain: pl.DataFrame, totals: Iterable[Linear]) -> list[pl.Series]:
    """The columns of the totals after adding `gain` to `old`, row by row (NULL in old: nothing)."""
    return [column for total in totals for column in total.advanced(old, gain)]


def plus(old: pl.Series, gain: pl.Series) -> pl.Series:
    """old + gain where old may be NULL, of the type of `gain`."""
    if old.dtype == gain.dtype == pl.Int64:  # most are, and this is five times faster
        parts = [s.fill_null(0) if s.null_count() else s for s in (old, gain)]
        return pl.Series(gain.name, parts[0].to_numpy() + parts[1].to_numpy())
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
