"""SUM and AVG, from totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from math import inf, nan
from typing import TYPE_CHECKING

from viewkeep.deferred import pl
from viewkeep.ops.aggregates.function import AggregateFunction, Counted, Output
from viewkeep.ops.aggregates.totals import Total
from viewkeep.ops.functions.coercion import bounded
from viewkeep.ops.functions.rowform import wrapped
from viewkeep.types import BIGINT, DOUBLE, STRING, DataType, decimal

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall

_MEAN = Context(prec=76, rounding=ROUND_HALF_UP)
_WIDE = Context(prec=76)


class Sum(AggregateFunction):
    """SUM: exact for integers and DECIMALs; integers wrap at 64 bits, as in Spark."""

    takes_distinct = True

    def result(self, given: DataType) -> DataType:
        if given.is_decimal:
            return bounded(given.precision + 10, given.scale)
        if given.is_integer:
            return BIGINT
        if given.is_numeric or given == STRING:
            return DOUBLE
        raise self.refused(given)

    def takes_double(self, given: DataType) -> bool:
        return given == STRING

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        assert call.argument is not None
        return (Counted(call.argument, call.is_distinct, summed=True),)

    def finish(self, state: pl.DataFrame, output: Output) -> pl.Series:
        total = _total(output)
        if output.type.is_decimal and total.is_split:
            state = state.with_columns(_joined(state, total))
        value = pl.col(total.sum)
        if total.is_split and not output.type.is_decimal:
            value = pl.col(total.sum) * total.split + pl.col(total.low)  # wraps, as in Spark
        if total.is_double:
            value = _with_specials(total)
        return _where_counted(state, value, total, output)

    def source(
        self, output: Output, columns: Mapping[str, str], names: dict[str, object]
    ) -> str | None:
        total = _total(output)
        count, value = columns.get(total.count, "?"), _sum_source(total, columns)
        if output.type.is_decimal:
            if output.type.scale != total.argument.type.scale:
                return None
            bound = 10 ** min(38, output.type.precision)
            return f"{value} if {count} > 0 and -{bound} < {value} < {bound} else None"
        if total.is_split:
            value = wrapped(value, BIGINT)
        return f"{value} if {count} > 0 else None"


class Average(AggregateFunction):
    """AVG: a DOUBLE, or of DECIMALs a DECIMAL of four more digits, rounded half up."""

    takes_distinct = True

    def result(self, given: DataType) -> DataType:
        if given.is_decimal:
            return bounded(given.precision + 4, given.scale + 4)
        if given.is_numeric or given == STRING:
            return DOUBLE
        raise self.refused(given)

    def takes_double(self, given: DataType) -> bool:
        return given == STRING

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        assert call.argument is not None
        return (Counted(call.argument, call.is_distinct, summed=True, averaged=True),)

    def finish(self, state: pl.DataFrame, output: Output) -> pl.Series:
        total = _total(output)
        if output.type.is_decimal:
            if total.is_split:
                state = state.with_columns(_joined(state, total))
            return _decimal_average(state, output, total)
        value = pl.col(total.sum)
        if total.is_split:
            value = value.cast(pl.Int128) * total.split + pl.col(total.low).cast(pl.Int128)
        if total.is_double:
            value = _with_specials(total)
        value = value.cast(pl.Float64) / pl.col(total.count)
        return _where_counted(state, value, total, output)

    def source(
        self, output: Output, columns: Mapping[str, str], names: dict[str, object]
    ) -> str | None:
        total, kind = _total(output), output.type
        count, value = columns.get(total.count, "?"), _sum_source(total, columns)
        if kind.is_decimal:
            scale = total.argument.type.scale
            name = f"MEAN_{scale}_{kind.precision}_{kind.scale}"
            names[name] = _mean(scale, kind)
            return f"{name}({value}, {count}, {total.is_split})"
        return f"float({value}) / {count} + 0.0 if {count} > 0 else None"


def _total(output: Output) -> Total:
    total = output.totals[0]
    assert isinstance(total, Total)
    return total


def _where_counted(state: pl.DataFrame, value: pl.Expr, total: Total, output: Output) -> pl.Series:
    value = value.cast(output.type.polars, strict=False)
    return state.select(pl.when(pl.col(total.count) > 0).then(value).alias(output.name)).to_series()


def _sum_source(total: Total, columns: Mapping[str, str]) -> str:
    """The source of a sum: of a DOUBLE with what NaN and the infinities make of it."""
    value = columns.get(total.sum, "?")
    if total.is_split:
        return f"({value} * {total.split} + {columns.get(total.low, '?')})"
    if not total.is_double:
        return value
    nans, above, below = (columns.get(name, "?") for name in total.specials)
    return (
        f"(NAN if {nans} > 0 or {above} > 0 and {below} > 0 else INFINITY if {above} > 0 "
        f"else -INFINITY if {below} > 0 else {value} + 0.0)"
    )


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


def _mean(scale: int, kind: DataType) -> Callable[[int, int, bool], int | None]:
    """The mean of DECIMALs from the sum of their unscaled values."""

    def mean(total: int, count: int, split: bool) -> int | None:
        if not count or (split and abs(total) >= 10**38):
            return None
        made = decimal_mean(Decimal(total).scaleb(-scale, _WIDE), count, kind)
        return None if made is None else int(made.scaleb(kind.scale, _WIDE))

    return mean
