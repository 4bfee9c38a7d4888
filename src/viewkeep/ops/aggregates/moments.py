"""Variances, covariances and correlations from exact sums of products.

Law: with n rows, n * sum(xy) - sum(x) * sum(y) is n * n times the covariance. Each product is added
as two doubles whose sum it is exactly (Dekker), and sums are pairs, so about 32 digits are right:
deviations a hundred million times smaller than the mean keep all digits of a double.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, nan, sqrt
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from viewkeep.deferred import np, pl
from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.ops.aggregates.double_sums import advance_pair, with_pair
from viewkeep.ops.aggregates.function import AggregateFunction, Counted, Output
from viewkeep.ops.aggregates.totals import Linear, Total, plus
from viewkeep.types import BIGINT, DOUBLE, STRING, Column, DataType

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall

if TYPE_CHECKING:
    from numpy.typing import NDArray

Doubles: TypeAlias = "NDArray[np.float64]"
_Number = TypeVar("_Number", "pl.Expr", "Doubles", float)

HUGE = 2.0**400  # products of larger numbers, summed and squared, could leave the range
_SPLITTER = 2.0**27 + 1  # halves the digits of a double
_NOISE = 2.0**-90  # of the terms that it is a difference of, a smaller one is their rounding


@dataclass(frozen=True)
class Product(Linear):
    """The sum of products of two DOUBLE arguments, over rows where both are of moderate size.

    `count` says of how many rows; rows with a NULL, NaN, infinite or huge factor are left out.
    """

    left: Expr
    right: Expr
    distinct: bool

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    @property
    def _text(self) -> str:
        return f"({'distinct ' if self.distinct else ''}{self.left}, {self.right})"

    @property
    def count(self) -> str:
        return f"#products{self._text}"

    @property
    def high(self) -> str:
        return f"#product{self._text}"

    @property
    def low(self) -> str:
        return f"#low product{self._text}"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (Column(self.count, BIGINT), Column(self.high, DOUBLE), Column(self.low, DOUBLE))

    def gained(self, *places: str) -> list[pl.Expr]:
        left, right, weight = pl.col(places[0]), pl.col(places[-1]), pl.col(WEIGHT)
        moderate = (left.abs() < HUGE) & (right.abs() < HUGE)  # NaN is larger than any number
        product, rest = exact_product(left, right)
        return [
            weight.filter(moderate).sum().alias(self.count),
            (product * weight).filter(moderate).alias(self.high),
            (rest * weight).filter(moderate).alias(self.low),
        ]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self.count).sum(), pl.col(self.high), pl.col(self.low)]

    def settled(self, frame: pl.DataFrame) -> pl.DataFrame:
        return with_pair(frame, self.high, self.low)

    def advanced(self, old: pl.DataFrame, gain: pl.DataFrame) -> list[pl.Series]:
        count = plus(old[self.count], gain[self.count])
        return [count, *advance_pair(old, gain, count, self.high, self.low)]

    @property
    def is_pair(self) -> bool:
        return True

    def row_gain(self, values: Sequence[str], at: int, names: dict[str, object]) -> list[str]:
        value, other = values[0], values[-1]
        names["EXACT"] = exact_product
        return [
            f"if {value} is not None and {other} is not None "
            f"and -{HUGE} < {value} < {HUGE} and -{HUGE} < {other} < {HUGE}:",
            f"    group[{at}] += weight",
            f"    product, rest = EXACT({value}, {other})",
            f"    group[{at + 1}].append(product * weight)",
            f"    group[{at + 2}].append(rest * weight)",
        ]


class Moment(AggregateFunction):
    """VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP."""

    takes_distinct = True

    def result(self, given: DataType) -> DataType:
        if not given.is_numeric and given != STRING:
            raise self.refused(given)
        return DOUBLE

    def takes_double(self, given: DataType) -> bool:
        return True

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        return tuple(Counted(expr, call.is_distinct, summed=True) for expr in _both(call))

    def further(self, call: AggregateCall) -> tuple[Linear, ...]:
        x, y = _both(call)
        pairs = [(x, y), (x, x), (y, y)] if self.name == "corr" else [(x, y)]
        return tuple(Product(left, right, call.is_distinct) for left, right in pairs)

    def finish(self, state: pl.DataFrame, output: Output) -> pl.Series:
        return moment(state, self.name, output.totals).alias(output.name)

    def source(
        self, output: Output, columns: Mapping[str, str], names: dict[str, object]
    ) -> str | None:
        same = tuple(p.left == p.right for p in output.totals if isinstance(p, Product))
        name = f"{self.name.upper()}_{''.join('s' if one else 'p' for one in same)}"
        names[name] = partial(moment_of_one, self.name, same)
        held = (
            tuple(columns.get(column.name, "?") for column in part.columns)
            for part in output.totals
        )
        return f"{name}({', '.join('(' + ', '.join(cells) + ')' for cells in held)})"


class Comoment(Moment):
    """COVAR_POP, COVAR_SAMP, CORR: of two arguments, which are DOUBLEs already."""

    takes_distinct = False

    def takes_double(self, given: DataType) -> bool:
        return False


def _both(call: AggregateCall) -> tuple[Expr, Expr]:
    """The two arguments; one alone is both."""
    assert call.argument is not None
    return call.argument, call.by[0].expr if call.by else call.argument


def moment(state: pl.DataFrame, function: str, totals: Sequence[Linear]) -> pl.Series:
    """The values of a Moment, computed from its totals in `state`.

    These are the totals of both arguments (which may be one), then their product, then for `corr`
    the products of each with itself.
    """
    x, y, product, *squares = totals
    assert isinstance(x, Total)
    assert isinstance(y, Total)
    assert isinstance(product, Product)
    count = state[x.count].to_numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        spread = _spread(state, x, y, product)
        if function == "corr":
            first, second = squares
            assert isinstance(first, Product)
            assert isinstance(second, Product)
            widths = np.sqrt(_spread(state, x, x, first)) * np.sqrt(_spread(state, y, y, second))
            made = spread / widths
            missing = (count < 2) | (widths == 0)  # a division by zero is NULL
        else:
            sample = function.endswith("_samp")
            made = spread / (count * (count - 1 if sample else count))
            made = np.sqrt(made) if function.startswith("stddev") else made
            missing = count < (2 if sample else 1)
    return pl.Series(made).set(pl.Series(missing), None).cast(pl.Float64)


def moment_of_one(
    function: str,
    same: Sequence[bool],
    x: Sequence[float],
    y: Sequence[float],
    *products: Sequence[float],
) -> float | None:
    """`moment` of one group: the columns of the totals, `same` for products of one argument."""
    count = float(x[0])
    if count < (2 if function == "corr" or function.endswith("_samp") else 1):
        return None
    spreads = [
        _spread_of_one(one, other, product, alike)
        for one, other, product, alike in zip((x, x, y), (y, x, y), products, same, strict=False)
    ]
    if function == "corr":
        width = _root(spreads[1]) * _root(spreads[2])
        return None if width == 0 else spreads[0] / width
    made = spreads[0] / (count * (count - 1 if function.endswith("_samp") else count))
    return _root(made) if function.startswith("stddev") else made


def _spread_of_one(
    x: Sequence[float], y: Sequence[float], product: Sequence[float], same: bool
) -> float:
    """`_spread` of one group."""
    if any(count > 0 for count in (*x[3:], *y[3:])):
        return nan
    if product[0] < x[0]:
        return inf
    high, low = _times(product[1], product[2], float(x[0]), 0.0)
    minus_high, minus_low = _times(x[1], x[2], y[1], y[2])
    whole, rest = _plus(high, -minus_high)
    made = whole + (rest + (low - minus_low))
    if abs(made) <= _NOISE * (abs(high) + abs(minus_high)):
        return 0.0
    return 0.0 if same and made < 0.0 else made


def _root(value: float) -> float:
    return sqrt(value) if value >= 0 else nan


def _spread(state: pl.DataFrame, x: Total, y: Total, product: Product) -> Doubles:
    """n * sum(xy) - sum(x) * sum(y); NaN or infinite where a value was."""
    count = state[x.count].to_numpy().astype(np.float64)
    sums = [_pair(state, total.sum, total.low) for total in (x, y)]
    high, low = _times(*_pair(state, product.high, product.low), count, np.zeros_like(count))
    minus_high, minus_low = _times(*sums[0], *sums[1])
    whole, rest = _plus(high, -minus_high)
    made = whole + (rest + (low - minus_low))
    made = np.where(np.abs(made) <= _NOISE * (np.abs(high) + np.abs(minus_high)), 0.0, made)
    if product.left == product.right:
        made = np.maximum(made, 0.0)
    made = np.where(state[product.count].to_numpy() < state[x.count].to_numpy(), np.inf, made)
    specials = np.zeros(len(count), np.bool_)
    for total in (x, y):
        for name in total.specials:
            specials |= state[name].to_numpy() > 0
    return np.where(specials, np.nan, made)


def _pair(state: pl.DataFrame, high: str, low: str) -> tuple[Doubles, Doubles]:
    return state[high].to_numpy().astype(np.float64), state[low].to_numpy().astype(np.float64)


def exact_product(left: _Number, right: _Number) -> tuple[_Number, _Number]:
    """Dekker's product: the rounded product of two doubles, and what rounding took away."""
    product = left * right
    left_high = left * _SPLITTER - (left * _SPLITTER - left)
    right_high = right * _SPLITTER - (right * _SPLITTER - right)
    left_low, right_low = left - left_high, right - right_high
    rest = left_high * right_high - product
    rest = rest + left_high * right_low + left_low * right_high + left_low * right_low
    return product, rest


def _times(
    a_high: _Number, a_low: _Number, b_high: _Number, b_low: _Number
) -> tuple[_Number, _Number]:
    """The product of two pairs as a pair."""
    product, rest = exact_product(a_high, b_high)
    return _plus(product, rest + (a_high * b_low + a_low * b_high))


def _plus(a: _Number, b: _Number) -> tuple[_Number, _Number]:
    """Knuth's sum: the rounded sum of two doubles, and what rounding took away."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
