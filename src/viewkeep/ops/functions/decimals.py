"""Exact DECIMAL arithmetic through the unscaled 128-bit integers that hold it.

Law: results are exact, then rounded HALF_UP to the result's scale; what does not fit the result's
precision is NULL. Unscaled values of up to 38 digits stay in polars; where a step may need more
than 128 bits it runs on Python integers, row by row, since neither polars nor Arrow has a wider
integer: about 1 us a row.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal

from viewkeep.deferred import pl
from viewkeep.ops.functions.rowwise import each
from viewkeep.types import DataType

_LIMIT = 10**38
EXACT = Context(prec=400, rounding=ROUND_HALF_UP, Emin=-10_000, Emax=10_000)


def whole(value: int) -> pl.Expr:
    """A 128-bit integer constant."""
    return pl.lit(value, dtype=pl.Int128)


def negated(raw: pl.Expr) -> pl.Expr:
    """Minus 128-bit integers, by a subtraction: polars has no negation of them."""
    return whole(0) - raw


def unscaled(expr: pl.Expr) -> pl.Expr:
    """The unscaled integers of a DECIMAL expression."""
    return expr.to_physical()


def scaled(raw: pl.Expr, type_: DataType) -> pl.Expr:
    """The DECIMAL of unscaled integers; NULL where they have too many digits."""
    bound = 10**type_.precision
    fits = (raw < whole(bound)) & (raw > whole(-bound))
    return pl.when(fits).then(raw).reinterpret(dtype=type_.polars)


def rescaled(raw: pl.Expr, by: int) -> pl.Expr:
    """Unscaled integers moved `by` places of scale: HALF_UP when fewer, NULL past 38 digits."""
    if by == 0:
        return raw
    if by > 0:
        room = _LIMIT // 10**by if by <= 38 else 1
        fits = (raw < whole(room)) & (raw > whole(-room))
        return pl.when(fits).then(raw * whole(10 ** min(by, 38)))
    if -by > 38:
        return raw * whole(0)
    return half_up(raw, whole(10**-by))


def half_up(raw: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """raw / divisor rounded to the nearest integer, halves away from zero; NULL for a zero."""
    size, by = raw.abs(), divisor.abs()
    quotient = size // by
    rest = size - quotient * by
    rounded = quotient + (rest >= by - rest).cast(pl.Int128)
    return pl.when((raw < 0) != (divisor < 0)).then(negated(rounded)).otherwise(rounded)


def truncated(raw: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """raw / divisor towards zero; NULL for a zero divisor."""
    quotient = raw.abs() // divisor.abs()
    return pl.when((raw < 0) != (divisor < 0)).then(negated(quotient)).otherwise(quotient)


def add(a: pl.Expr, b: pl.Expr, at: DataType, bt: DataType, result: DataType) -> pl.Expr:
    """a + b."""
    scale = max(at.scale, bt.scale)
    if max(at.precision - at.scale, bt.precision - bt.scale) + scale < 38:
        total = rescaled(unscaled(a), scale - at.scale) + rescaled(unscaled(b), scale - bt.scale)
        return scaled(rescaled(total, result.scale - scale), result)
    return wide(a, b, result, EXACT.add)


def multiply(a: pl.Expr, b: pl.Expr, at: DataType, bt: DataType, result: DataType) -> pl.Expr:
    """a * b."""
    if at.precision + bt.precision <= 38:
        product = unscaled(a) * unscaled(b)
        return scaled(rescaled(product, result.scale - at.scale - bt.scale), result)
    return wide(a, b, result, EXACT.multiply)


def divide(a: pl.Expr, b: pl.Expr, at: DataType, bt: DataType, result: DataType) -> pl.Expr:
    """a / b; NULL when b is zero."""
    shift = result.scale - at.scale + bt.scale
    if shift >= 0 and at.precision + shift <= 38:
        return scaled(half_up(unscaled(a) * whole(10**shift), unscaled(b)), result)
    return wide(a, b, result, EXACT.divide)


def remainder(a: pl.Expr, b: pl.Expr, at: DataType, bt: DataType, result: DataType) -> pl.Expr:
    """a % b with the sign of a; NULL when b is zero."""
    scale = max(at.scale, bt.scale)
    if max(at.precision - at.scale, bt.precision - bt.scale) + scale <= 38:
        over = rescaled(unscaled(a), scale - at.scale)
        under = rescaled(unscaled(b), scale - bt.scale)
        rest = over - truncated(over, under) * under
        return scaled(rescaled(rest, result.scale - scale), result)
    return wide(a, b, result, EXACT.remainder)


def quotient(a: pl.Expr, b: pl.Expr, at: DataType, bt: DataType) -> pl.Expr:
    """The integer part of a / b as a 128-bit integer; NULL when b is zero."""
    scale = max(at.scale, bt.scale)
    if max(at.precision - at.scale, bt.precision - bt.scale) + scale <= 38:
        over = rescaled(unscaled(a), scale - at.scale)
        return truncated(over, rescaled(unscaled(b), scale - bt.scale))
    result = DataType("DECIMAL", 38, 0)
    return unscaled(wide(a, b, result, EXACT.divide_int))


def fitted(value: Decimal, type_: DataType) -> Decimal | None:
    """A decimal rounded HALF_UP to a type; None if it has too many digits for it."""
    rounded = value.quantize(Decimal(1).scaleb(-type_.scale), context=EXACT)
    # Not by the operators of Decimal, which round to the 28 digits of Python's own context.
    size = EXACT.scaleb(EXACT.abs(rounded), type_.scale)
    return rounded if size < 10**type_.precision else None


def wide(
    a: pl.Expr,
    b: pl.Expr,
    result: DataType,
    operation: Callable[[Decimal, Decimal], Decimal],
) -> pl.Expr:
    """An operation whose steps may pass 128 bits, on Python decimals row by row."""

    def one(x: Decimal, y: Decimal) -> Decimal | None:
        return None if divides and y == 0 else fitted(operation(x, y), result)

    divides = operation in (EXACT.divide, EXACT.divide_int, EXACT.remainder)
    return each(one, result.polars, a, b)
