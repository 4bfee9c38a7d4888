"""Aggregate: group rows from totals, and what depends on an order from ordered tables of values.

Law: state(new) = state(old) + gain, where the gain of a delta is summed where the delta arises; a
group exists while it has rows (the group of an Aggregate without keys: always). An output is a
function of the group's state row alone, stored in it, so a retraction is read, never recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from math import inf, nan

import polars as pl

from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr, Scalar
from viewkeep.ops.aggregates.bit_xor import BitXor
from viewkeep.ops.aggregates.moments import MOMENTS, moment
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, VALUE, Ordered, counted, every_group
from viewkeep.ops.aggregates.percentiles import Percentile
from viewkeep.ops.aggregates.totals import Linear, Total, add_up
from viewkeep.ops.evaluate import project
from viewkeep.types import BIGINT, Column, DataType, decimal

EXTREMES = ("min", "max", "min_by", "max_by")
PERCENTILES = ("percentile_cont", "percentile_disc")
COLLECTIONS = ("string_agg", "array_agg")
_MEAN = Context(prec=76, rounding=ROUND_HALF_UP)
_TOTALLED = ("sum", "avg", "bit_xor", "bool_and", "bool_or", *MOMENTS)


@dataclass(frozen=True)
class Output:
    """An aggregate asked for: what it is computed from and its column.

    `hidden` columns are kept besides, for the next epoch: what MIN_BY orders by, or the anchor of
    a percentile. `order` is set for functions that depend on one.
    """

    name: str
    function: str
    type: DataType
    distinct: bool = False
    totals: tuple[Linear, ...] = ()
    order: Ordered | None = None
    hidden: tuple[Column, ...] = ()
    parameters: tuple[Scalar, ...] = ()


@dataclass(frozen=True)
class Accumulators:
    """What is kept per group after its key: `rows`, the totals, then outputs not among them."""

    rows: str
    totals: tuple[Linear, ...]
    ordered: tuple[Ordered, ...]
    outputs: tuple[Output, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        kept = {self.rows: Column(self.rows, BIGINT)}
        for total in self.totals:
            kept |= {column.name: column for column in total.columns}
        for output in self.outputs:
            kept |= {column.name: column for column in output.hidden}
            kept.setdefault(output.name, Column(output.name, output.type))
        return tuple(kept.values())

    @cached_property
    def plain(self) -> tuple[Linear, ...]:
        """The totals over all rows; those over distinct values follow the ordered tables."""
        return tuple(total for total in self.totals if not total.distinct)

    def distinct(self, order: Ordered) -> tuple[Linear, ...]:
        """The totals over the distinct values of an ordered table."""
        found = (t for t in self.totals if t.distinct and t.told_apart_by == order.exprs)
        return tuple(found) if all(order.needed) and not any(order.descending) else ()

    def depending(self, functions: Iterable[str], order: Ordered) -> tuple[Output, ...]:
        """The outputs of these functions that read an ordered table."""
        return tuple(o for o in self.outputs if o.function in functions and o.order == order)

    @cached_property
    def totalled(self) -> tuple[Output, ...]:
        """The outputs that `finish` computes."""
        return tuple(output for output in self.outputs if output.function in _TOTALLED)

    @cached_property
    def arguments(self) -> tuple[Expr, ...]:
        plain = [argument for total in self.plain for argument in total.arguments]
        return tuple(dict.fromkeys([*plain, *(e for order in self.ordered for e in order.exprs)]))


@dataclass(frozen=True)
class Gains:
    """What a delta adds: per group, and per group and value for each ordered table."""

    groups: pl.DataFrame
    values: tuple[pl.DataFrame, ...]


def gains(
    delta: pl.DataFrame,
    keys: Sequence[tuple[str, Expr]],
    kept: Accumulators,
    apart: bool = False,
) -> Gains:
    """The gains of a delta, one row per group (and value): the map-side combine.

    With `apart`, one value may have several rows, for the receiver to add up.
    """
    places = {argument: f"#argument{i}" for i, argument in enumerate(kept.arguments)}
    wanted = [*keys, *((name, argument) for argument, name in places.items())]
    rows = project(delta, wanted, keep=(WEIGHT,))
    names = [name for name, _ in keys]
    totals = [(total, tuple(places[arg] for arg in total.arguments)) for total in kept.plain]
    groups = add_up(rows, names, kept.rows, totals)
    values = tuple(
        counted(rows, names, order, [places[expr] for expr in order.exprs], apart)
        for order in kept.ordered
    )
    return Gains(groups, values)


def distinct_gain(changes: pl.DataFrame, totals: Sequence[Linear], groups: int) -> pl.DataFrame:
    """What the totals over distinct values gain, one row per group in order.

    `changes` holds values that appeared (weight +1) in a group or left it (-1).
    """
    made = add_up(changes, [GROUP], "#rows", [(total, (VALUE,)) for total in totals])
    return every_group(made, groups)


def count_of(output: Output) -> str:
    """The column that says how many values a percentile is of."""
    total = output.totals[0]
    assert isinstance(total, Total)
    return total.count


def percentile_of(output: Output) -> Percentile:
    """The percentile that an output of PERCENTILES asks for."""
    fraction, descending = output.parameters
    assert isinstance(fraction, float)
    return Percentile(fraction, output.function == "percentile_cont", bool(descending))


def finish(state: pl.DataFrame, output: Output) -> pl.Series:
    """The values of an output that is made of totals, which are columns of `state`."""
    if output.function in MOMENTS:
        return moment(state, output.function, output.totals).alias(output.name)
    total = output.totals[0]
    assert isinstance(total, Total)
    other = output.totals[-1]
    if isinstance(other, BitXor):
        bits = pl.when(pl.col(total.count) > 0).then(pl.col(other.bits))
        return state.select(bits.alias(output.name)).to_series()
    if output.function in ("bool_and", "bool_or"):
        assert isinstance(other, Total)
        known, true = pl.col(total.count), pl.col(other.count)
        truth = pl.when(known > 0).then(
            true == known if output.function == "bool_and" else true > 0
        )
        return state.select(truth.alias(output.name)).to_series()
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
    sums, counts = state[total.sum].to_list(), state[total.count].to_list()
    made = [
        decimal_mean(value, count, output.type) if count and value is not None else None
        for value, count in zip(sums, counts, strict=True)
    ]
    return pl.Series(output.name, made, output.type.polars)


def decimal_mean(total: Decimal, count: int, type_: DataType) -> Decimal | None:
    """A sum of DECIMALs divided by their count, as a value of this type; NULL if it has no room."""
    unit = Decimal(1).scaleb(-type_.scale)
    mean = _MEAN.quantize(_MEAN.divide(total, Decimal(count)), unit)
    # copy_abs(), since abs() rounds to the 28 digits of Python's own context.
    return mean if mean.copy_abs() < Decimal(10) ** (type_.precision - type_.scale) else None


__all__ = [
    "COLLECTIONS",
    "EXTREMES",
    "GROUP",
    "PERCENTILES",
    "TIMES",
    "VALUE",
    "Accumulators",
    "Gains",
    "Output",
    "count_of",
    "decimal_mean",
    "distinct_gain",
    "finish",
    "gains",
    "percentile_of",
]
