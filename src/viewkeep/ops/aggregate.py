"""Aggregate: group rows from totals, and MIN, MAX and DISTINCT from an ordered table of values.

Law: state(new) = state(old) + gain, where the gain of a delta is summed where the delta arises; a
group exists while it has rows (the group of an Aggregate without keys: always). An output is a
function of the group's state row alone, stored in it, so a retraction is read, never recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from math import inf, nan

import polars as pl

from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.ops.evaluate import project
from viewkeep.ops.totals import Total, add_up
from viewkeep.types import BIGINT, Column, DataType, decimal

VALUE = "#value"  # a value of an ordered argument
TIMES = "#times"  # how many rows of the group hold it
GROUP = "#group"  # a group's position in the frame of changed groups


@dataclass(frozen=True)
class Output:
    """An aggregate asked for: what it is computed from and its column."""

    name: str
    function: str
    type: DataType
    argument: Expr | None
    total: Total | None


@dataclass(frozen=True)
class Accumulators:
    """What is kept per group after its key: `rows`, the totals, then outputs not among them."""

    rows: str
    totals: tuple[Total, ...]
    ordered: tuple[Expr, ...]
    outputs: tuple[Output, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        kept = {self.rows: Column(self.rows, BIGINT)}
        for total in self.totals:
            kept |= {column.name: column for column in total.columns}
        for output in self.outputs:
            kept.setdefault(output.name, Column(output.name, output.type))
        return tuple(kept.values())

    @cached_property
    def plain(self) -> tuple[Total, ...]:
        """The totals over all rows; those over distinct values follow the ordered tables."""
        return tuple(total for total in self.totals if not total.distinct)

    @cached_property
    def arguments(self) -> tuple[Expr, ...]:
        plain = [total.argument for total in self.plain]
        return tuple(dict.fromkeys([*plain, *self.ordered]))


@dataclass(frozen=True)
class Gains:
    """What a delta adds: per group, and per group and value for each ordered argument."""

    groups: pl.DataFrame
    values: tuple[pl.DataFrame, ...]


def gains(delta: pl.DataFrame, keys: Sequence[tuple[str, Expr]], kept: Accumulators) -> Gains:
    """The gains of a delta, one row per group (and value): the map-side combine."""
    places = {argument: f"#argument{i}" for i, argument in enumerate(kept.arguments)}
    wanted = [*keys, *((name, argument) for argument, name in places.items())]
    rows = project(delta, wanted, keep=(WEIGHT,))
    names = [name for name, _ in keys]
    totals = [(total, places[total.argument]) for total in kept.plain]
    groups = add_up(rows, names, kept.rows, totals)
    values = tuple(
        rows.filter(pl.col(places[argument]).is_not_null())
        .group_by(*names, pl.col(places[argument]).alias(VALUE))
        .agg(pl.col(WEIGHT).sum().alias(TIMES))
        for argument in kept.ordered
    )
    return Gains(groups, values)


def distinct_gain(changes: pl.DataFrame, totals: Sequence[Total], groups: int) -> pl.DataFrame:
    """What the totals over distinct values gain, one row per group in order.

    `changes` holds values that appeared (weight +1) in a group or left it (-1).
    """
    made = add_up(changes, [GROUP], "#rows", [(total, VALUE) for total in totals])
    every = pl.DataFrame({GROUP: pl.int_range(groups, dtype=pl.Int64, eager=True)})
    return every.join(made, on=GROUP, how="left", maintain_order="left")


def best(candidates: pl.DataFrame, groups: int, largest: bool) -> pl.Series:
    """The least (or largest) candidate value of each group in order; NULL where there is none."""
    ranked = candidates.filter(pl.col(VALUE).is_not_null()).sort(GROUP, VALUE)
    chosen = ranked.unique(GROUP, keep="last" if largest else "first", maintain_order=True)
    every = pl.DataFrame({GROUP: pl.int_range(groups, dtype=pl.Int64, eager=True)})
    return every.join(chosen, on=GROUP, how="left", maintain_order="left")[VALUE]


def finish(state: pl.DataFrame, output: Output) -> pl.Series:
    """The values of a SUM or AVG, computed from the totals in `state`."""
    total = output.total
    assert total is not None
    if output.type.is_decimal and total.is_split:
        state = state.with_columns(_joined(state, total))
    if output.type.is_decimal and output.function == "avg":
        return _decimal_average(state, output, total)
    value = pl.col(total.sum)
    if total.is_split and not output.type.is_decimal:
        value = value.cast(pl.Int128) * total.split + pl.col(total.low).cast(pl.Int128)
        if output.function == "sum":
            value = pl.col(total.sum) * total.split + pl.col(total.low)  # wraps, as in Spark
    if total.is_double:
        value = _with_specials(total)
    count = pl.col(total.count)
    if output.function == "avg":
        value = value.cast(pl.Float64) / count
    value = value.cast(output.type.polars, strict=False)
    return state.select(pl.when(count > 0).then(value).alias(output.name)).to_series()


def _with_specials(total: Total) -> pl.Expr:
    nans, above, below = (pl.col(name) > 0 for name in total.specials)
    return (
        pl.when(nans | (above & below))
        .then(pl.lit(nan))
        .when(above)
        .then(pl.lit(inf))
        .when(below)
        .then(pl.lit(-inf))
        .otherwise(pl.col(total.sum))
    )


def _joined(state: pl.DataFrame, total: Total) -> pl.Series:
    """The sums of wide decimals from their two parts; NULL where they have more than 38 digits."""
    # 128 bits do not hold them, so they are Python's integers: 1 us a changed group.
    kind = total.argument.type
    context = Context(prec=76)
    made: list[Decimal | None] = []
    for high, low in zip(state[total.sum].to_list(), state[total.low].to_list(), strict=True):
        whole = int(high) * total.split + int(low)
        fits = abs(whole) < 10**38
        made.append(Decimal(whole).scaleb(-kind.scale, context) if fits else None)
    return pl.Series(total.sum, made, decimal(38, kind.scale).polars)


def _decimal_average(state: pl.DataFrame, output: Output, total: Total) -> pl.Series:
    # polars has no decimal division that rounds half up at a chosen scale: 1 us a changed group.
    unit = Decimal(1).scaleb(-output.type.scale)
    context = Context(prec=76, rounding=ROUND_HALF_UP)
    limit = Decimal(10) ** (output.type.precision - output.type.scale)
    made: list[Decimal | None] = []
    for value, count in zip(state[total.sum].to_list(), state[total.count].to_list(), strict=True):
        if not count or value is None:
            made.append(None)
            continue
        mean = context.quantize(context.divide(value, Decimal(count)), unit)
        made.append(mean if abs(mean) < limit else None)
    return pl.Series(output.name, made, output.type.polars)
