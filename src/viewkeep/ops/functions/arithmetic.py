"""+ - * / % DIV and unary minus, with Spark's result types.

Law: integers wrap around, decimals are exact or NULL, and a division by zero is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from viewkeep.deferred import np, pl
from viewkeep.ops.functions import decimals
from viewkeep.ops.functions.coercion import VOID, adjusted, decimal_of
from viewkeep.ops.functions.function import Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowform import (
    RowForm,
    RowSite,
    double_rest,
    half_up,
    rescaled,
    truncated,
    wrapped,
)
from viewkeep.ops.functions.rowwise import aligned, batches
from viewkeep.ops.functions.signatures import mismatch, numeric
from viewkeep.types import BIGINT, DOUBLE, STRING, DataType

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sum_type(a: DataType, b: DataType) -> DataType:
    """The type of a + b and a - b of two DECIMALs."""
    scale = max(a.scale, b.scale)
    return adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def product_type(a: DataType, b: DataType) -> DataType:
    """The type of a * b of two DECIMALs."""
    return adjusted(a.precision + b.precision + 1, a.scale + b.scale)


def ratio_type(a: DataType, b: DataType) -> DataType:
    """The type of a / b of two DECIMALs."""
    scale = max(6, a.scale + b.precision + 1)
    return adjusted(a.precision - a.scale + b.scale + scale, scale)


def rest_type(a: DataType, b: DataType) -> DataType:
    """The type of a % b of two DECIMALs."""
    scale = max(a.scale, b.scale)
    return adjusted(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


_DECIMAL_TYPES = {
    "add": sum_type,
    "subtract": sum_type,
    "multiply": product_type,
    "divide": ratio_type,
    "remainder": rest_type,
}


def binary(name: str) -> Resolve:
    """The typing rule of a binary operator."""

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 2 or not all(t.is_numeric or t in (STRING, VOID) for t in given):
            raise mismatch(name, given, "two numbers")
        a, b = (DOUBLE if t == STRING else t for t in given)
        a, b = (b if a == VOID else a), (a if b == VOID else b)
        if VOID in (a, b) or DOUBLE in (a, b) or (name == "divide" and given[0] == VOID):
            return (DOUBLE, DOUBLE), DOUBLE
        if a.is_decimal or b.is_decimal:
            # Spark gives an integer literal the few digits it has, a column those of its type.
            a = decimal_of(a, constants.get(0) if b.is_decimal else None)
            b = decimal_of(b, constants.get(1) if given[0].is_decimal else None)
            return (a, b), _DECIMAL_TYPES[name](a, b)
        if name == "divide":
            return (DOUBLE, DOUBLE), DOUBLE
        widest = BIGINT if BIGINT in (a, b) else a
        return (widest, widest), widest

    return resolve


def _int_divide(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) != 2 or not all(t.is_integer or t.is_decimal or t == VOID for t in given):
        raise mismatch("DIV", given, "two integers or decimals; CAST the others first")
    if any(t.is_decimal for t in given):
        return (decimal_of(given[0]), decimal_of(given[1])), BIGINT
    return (BIGINT, BIGINT), BIGINT


def _pair(site: Site) -> tuple[DataType, DataType]:
    first, second = site.types
    return first, second


def _add(site: Site) -> pl.Expr:
    a, b = site.args
    return decimals.add(a, b, *_pair(site), site.result) if site.result.is_decimal else a + b


def _subtract(site: Site) -> pl.Expr:
    a, b = site.args
    if not site.result.is_decimal:
        return a - b
    negated = decimals.scaled(decimals.negated(decimals.unscaled(b)), site.types[1])
    return decimals.add(a, negated, *_pair(site), site.result)


def _multiply(site: Site) -> pl.Expr:
    a, b = site.args
    return decimals.multiply(a, b, *_pair(site), site.result) if site.result.is_decimal else a * b


def _divide(site: Site) -> pl.Expr:
    a, b = site.args
    if site.result.is_decimal:
        return decimals.divide(a, b, *_pair(site), site.result)
    return ratio(a, b)


def ratio(over: pl.Expr, under: pl.Expr) -> pl.Expr:
    """A ratio of DOUBLEs, NULL when the divisor is 0.

    By numpy: where all divisors of several rows are one constant, polars multiplies by its inverse,
    so the last bit would depend on how many rows there are.
    """
    return batches(_float_ratio, pl.Float64(), over, under)


def _float_ratio(columns: Sequence[pl.Series]) -> pl.Series:
    over, under = aligned(columns)
    with np.errstate(all="ignore"):
        made = over.fill_null(0.0).to_numpy() / under.fill_null(1.0).to_numpy()
    return _defined(over, under, made)


def _defined(over: pl.Series, under: pl.Series, made: NDArray[np.float64]) -> pl.Series:
    """The values where the dividend is known and the divisor is neither NULL nor 0."""
    defined = (over.is_not_null() & (under != 0)).fill_null(False)
    return pl.Series(over.name, made).set(~defined, None)


def _remainder(site: Site) -> pl.Expr:
    a, b = site.args
    if site.result.is_decimal:
        return decimals.remainder(a, b, *_pair(site), site.result)
    if site.result == DOUBLE:
        return batches(_float_rest, pl.Float64(), a, b)
    return a - _towards_zero(a, b) * b


def _float_rest(columns: Sequence[pl.Series]) -> pl.Series:
    # polars' % takes the sign of the divisor; numpy's fmod is that of C, which is Java's too.
    over, under = aligned(columns)
    with np.errstate(invalid="ignore"):
        rest = np.fmod(over.fill_null(0.0).to_numpy(), under.fill_null(1.0).to_numpy())
    return _defined(over, under, rest)


def _towards_zero(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    floor = a // b
    inexact = floor * b != a
    return pl.when(inexact & ((a < 0) != (b < 0))).then(floor + 1).otherwise(floor)


def _quotient(site: Site) -> pl.Expr:
    a, b = site.args
    if site.types[0].is_decimal:
        return decimals.quotient(a, b, *_pair(site)).cast(pl.Int64, wrap_numerical=True)
    return _towards_zero(a, b)


def _negate(site: Site) -> pl.Expr:
    if site.result.is_decimal:
        return decimals.scaled(decimals.negated(decimals.unscaled(site.first)), site.result)
    if site.result == DOUBLE:
        return -site.first
    return pl.lit(0, dtype=site.result.polars) - site.first


def _row(sign: str) -> RowForm:
    """The row form of + - *, which are exact before the result is made to fit its type."""

    def form(site: RowSite) -> str:
        a, b = site.args
        if site.result == DOUBLE:
            return f"{a} {sign} {b}"
        if not site.result.is_decimal:
            return wrapped(f"{a} {sign} {b}", site.result)
        at, bt = site.types
        if sign == "*":
            return rescaled(f"{a} * {b}", at.scale + bt.scale - site.result.scale, site)
        a, b, scale = _aligned(site)
        return rescaled(f"{a} {sign} {b}", scale - site.result.scale, site)

    return form


def _aligned(site: RowSite) -> tuple[str, str, int]:
    """Sources of two unscaled DECIMALs at the larger of their scales, and that scale."""
    scale = max(type_.scale for type_ in site.types)
    a, b = (
        arg if type_.scale == scale else f"{arg} * {10 ** (scale - type_.scale)}"
        for arg, type_ in zip(site.args, site.types, strict=True)
    )
    return a, b, scale


def _row_divide(site: RowSite) -> str:
    a, b = site.args
    if not site.result.is_decimal:
        return f"{a} / {b} if {b} else None"
    shift = site.result.scale - site.types[0].scale + site.types[1].scale
    over, under = (f"{a} * {10**shift}", b) if shift >= 0 else (a, f"{b} * {10**-shift}")
    ratio = rescaled(f"{site.use(half_up)}({over}, {under})", 0, site)
    return f"{ratio} if {b} else None"


def _row_remainder(site: RowSite) -> str:
    a, b = site.args
    if site.result == DOUBLE:
        return f"{site.use(double_rest)}({a}, {b}) if {b} else None"
    if not site.result.is_decimal:
        rest = f"{a} - {site.use(truncated)}({a}, {b}) * {b}"
        return f"{rest} if {b} else None"
    over, under, scale = _aligned(site)
    rest = f"{over} - {site.use(truncated)}({over}, {under}) * {under}"
    return f"{rescaled(rest, scale - site.result.scale, site)} if {b} else None"


def _row_quotient(site: RowSite) -> str:
    a, b = site.args
    if site.types[0].is_decimal:
        over, under, _ = _aligned(site)
        return f"{site.use(decimal_quotient)}({over}, {under}) if {b} else None"
    return f"{wrapped(f'{site.use(truncated)}({a}, {b})', BIGINT)} if {b} else None"


def decimal_quotient(over: int, under: int) -> int | None:
    """The whole part of a ratio, which wraps as a BIGINT; None past the digits of a DECIMAL."""
    cut = truncated(over, under)
    return (cut + 2**63) % 2**64 - 2**63 if abs(cut) < 10**38 else None


def _row_negate(site: RowSite) -> str:
    negated = f"-{site.first}"
    return wrapped(negated, site.result) if site.result.is_integer else negated


FUNCTIONS = (
    Function("add", binary("add"), _add, "The sum `a + b`.", "1 + 2", row=_row("+")),
    Function(
        "subtract",
        binary("subtract"),
        _subtract,
        "The difference `a - b`.",
        "3 - 1.5",
        row=_row("-"),
    ),
    Function(
        "multiply", binary("multiply"), _multiply, "The product `a * b`.", "2 * 3", row=_row("*")
    ),
    Function(
        "divide",
        binary("divide"),
        _divide,
        "The ratio `a / b`: DECIMAL of decimals, else DOUBLE; NULL when b is 0.",
        "7 / 2",
        row=_row_divide,
    ),
    Function(
        "remainder",
        binary("remainder"),
        _remainder,
        "The rest `a % b` with the sign of a; NULL when b is 0.",
        "-7 % 3",
        ("mod",),
        row=_row_remainder,
    ),
    Function(
        "int_divide",
        _int_divide,
        _quotient,
        "`a DIV b`, cut towards zero; a BIGINT.",
        "-7 DIV 2",
        row=_row_quotient,
    ),
    Function(
        "negate",
        numeric("negate", lambda t: t),
        _negate,
        "`-a`.",
        "-(3)",
        ("negative",),
        row=_row_negate,
    ),
)
