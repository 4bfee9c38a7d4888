"""Rounding, roots, powers, logarithms and angles.

Law: rounding is HALF_UP on the decimal digits that a number shows; a logarithm of what has none is
NULL; other functions of doubles give NaN where they have no value, as Java does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal

from viewkeep.deferred import pl
from viewkeep.ops.functions import casts, decimals
from viewkeep.ops.functions.arithmetic import ratio
from viewkeep.ops.functions.coercion import VOID, bounded
from viewkeep.ops.functions.function import Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowform import (
    RowForm,
    RowSite,
    double_to_integer,
    half_up,
    rescaled,
    wrapped,
)
from viewkeep.ops.functions.rowwise import each
from viewkeep.ops.functions.signatures import constant_int, fixed, mismatch, numeric
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType


def _round_type(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) not in (1, 2) or not (given[0].is_numeric or given[0] in (STRING, VOID)):
        raise mismatch("round", given, "a number and, if wanted, a constant number of places")
    places = constant_int("round", constants, 1, "number of places") if len(given) == 2 else 0
    type_ = given[0] if given[0].is_numeric else DOUBLE
    result = type_
    if type_.is_decimal:
        digits = type_.precision - type_.scale + 1
        if places < 0:
            result = bounded(max(digits, 1 - places), 0)
        else:
            scale = min(type_.scale, places)
            result = bounded(digits + scale, scale)
    return (type_, INT)[: len(given)], result


def _round(site: Site) -> pl.Expr:
    places = site.constants.get(1, 0)
    assert isinstance(places, int)
    if site.result == DOUBLE:
        return _round_doubles(site.first, places)
    if site.result.is_decimal:
        raw, scale = decimals.unscaled(site.first), site.types[0].scale
        kept = decimals.rescaled(raw, min(places, scale) - scale)
        return decimals.scaled(decimals.rescaled(kept, max(-places, 0)), site.result)
    if places >= 0:
        return site.first
    if places < -20:
        return site.first * 0
    unit = decimals.whole(10**-places)
    moved = decimals.half_up(site.first.cast(pl.Int128), unit) * unit
    return moved.cast(site.result.polars, wrap_numerical=True)


def _round_doubles(expr: pl.Expr, places: int) -> pl.Expr:
    if places == 0:
        cut = expr.abs().floor() * expr.sign()
        away = ((expr - cut).abs() >= 0.5) & expr.is_finite()
        return cut + pl.when(away).then(expr.sign()).otherwise(0.0) + 0.0

    def one(value: float) -> float:
        if not math.isfinite(value) or places > 323:
            return value
        if places < -309:
            return 0.0
        unit = Decimal(1).scaleb(-places)
        shown = Decimal(repr(value))
        return float(shown.quantize(unit, ROUND_HALF_UP, decimals.EXACT)) + 0.0

    # By row: the digits that count are those of the shortest text of the double.
    return each(one, pl.Float64(), expr)


def _whole_type(type_: DataType) -> DataType:
    if not type_.is_decimal:
        return BIGINT
    return bounded(type_.precision - type_.scale + 1, 0) if type_.scale else type_


def _to_whole(up: bool) -> Callable[[Site], pl.Expr]:
    def build(site: Site) -> pl.Expr:
        type_ = site.types[0]
        if type_ == DOUBLE:
            cut = site.first.ceil() if up else site.first.floor()
            return casts.cast(cut, DOUBLE, BIGINT)
        if not type_.is_decimal:
            return site.first.cast(pl.Int64)
        raw = decimals.unscaled(site.first)
        cut = decimals.truncated(raw, decimals.whole(10**type_.scale))
        rest = raw - cut * decimals.whole(10**type_.scale)
        step = (rest > 0).cast(pl.Int128) if up else decimals.negated((rest < 0).cast(pl.Int128))
        return decimals.scaled(cut + step, site.result)

    return build


def _abs(site: Site) -> pl.Expr:
    if site.result.is_decimal:
        return decimals.scaled(decimals.unscaled(site.first).abs(), site.result)
    return site.first.abs()


def _power(site: Site) -> pl.Expr:
    base, exponent = site.args
    # Java has no value for 1 to the power of what is not finite; C has 1.
    undefined = (base.abs() == 1) & ~exponent.is_finite()
    return pl.when(undefined).then(math.nan).otherwise(base.pow(exponent))


def _positive(expr: pl.Expr) -> pl.Expr:
    return pl.when(expr > 0).then(expr)


def _log(site: Site) -> pl.Expr:
    if len(site.args) == 1:
        return _positive(site.first).log()
    base, value = site.args
    return ratio(_positive(value).log(), _positive(base).log())


def _unsigned_zero(expr: pl.Expr) -> pl.Expr:
    # Not by adding 0.0, which polars leaves out.
    return pl.when(expr == 0).then(0.0).otherwise(expr)


def _doubles(name: str, count: int) -> Resolve:
    return fixed(name, *(DOUBLE,) * count, result=DOUBLE)


def _of_double(
    name: str,
    kernel: Callable[[pl.Expr], pl.Expr],
    doc: str,
    example: str,
    *aliases: str,
    row: RowForm | None = None,
) -> Function:
    return Function(
        name, _doubles(name, 1), lambda s: kernel(s.first), doc, f"{name}({example})", aliases, row
    )


def _row_abs(site: RowSite) -> str:
    size = f"abs({site.first})"
    return wrapped(size, site.result) if site.result.is_integer else size


def _row_round(site: RowSite) -> str | None:
    places, type_ = site.constants.get(1, 0), site.types[0]
    assert isinstance(places, int)
    if type_ == DOUBLE:
        return None
    if type_.is_decimal:
        kept = min(places, type_.scale)
        rounded = f"{site.use(half_up)}({site.first}, {10 ** (type_.scale - kept)})"
        return rescaled(rounded, min(places, 0), site)
    if places >= 0:
        return site.first
    unit = 10 ** min(-places, 21)
    return wrapped(f"{site.use(half_up)}({site.first}, {unit}) * {unit}", site.result)


def _row_to_whole(up: bool) -> RowForm:
    def form(site: RowSite) -> str:
        type_, value = site.types[0], site.first
        if type_ == DOUBLE:
            helper = site.use(double_ceiling if up else double_floor)
            return f"{helper}({value})"
        if not type_.is_decimal:
            return value
        unit = 10**type_.scale
        return rescaled(f"-(-{value} // {unit})" if up else f"{value} // {unit}", 0, site)

    return form


def double_floor(value: float) -> int:
    """The greatest whole number not above a DOUBLE, as a BIGINT."""
    return math.floor(value) if abs(value) < 2**53 else double_to_integer(value, 64)


def double_ceiling(value: float) -> int:
    """The least whole number not below a DOUBLE, as a BIGINT."""
    return math.ceil(value) if abs(value) < 2**53 else double_to_integer(value, 64)


def _row_sign(site: RowSite) -> str:
    value = site.first
    return f"1.0 if {value} > 0 else -1.0 if {value} < 0 else {value}"


def _row_root(site: RowSite) -> str:
    return f"{site.use(math.sqrt)}({site.first}) if {site.first} >= 0 else NAN"


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "abs",
        numeric("abs", lambda t: t),
        _abs,
        "The size without the sign.",
        "abs(-3)",
        row=_row_abs,
    ),
    _of_double("sign", lambda x: x.sign(), "-1.0, 0.0 or 1.0.", "-3", "signum", row=_row_sign),
    Function(
        "round",
        _round_type,
        _round,
        "Rounded HALF_UP to a number of places, which may be negative.",
        "round(2.675, 2)",
        row=_row_round,
    ),
    Function(
        "ceil",
        numeric("ceil", _whole_type),
        _to_whole(True),
        "The least whole number not below it.",
        "ceil(2.1)",
        ("ceiling",),
        row=_row_to_whole(True),
    ),
    Function(
        "floor",
        numeric("floor", _whole_type),
        _to_whole(False),
        "The greatest whole number not above it.",
        "floor(-2.1)",
        row=_row_to_whole(False),
    ),
    _of_double("sqrt", lambda x: x.sqrt(), "The square root.", "4", row=_row_root),
    _of_double("cbrt", lambda x: x.cbrt(), "The cube root.", "27"),
    Function("power", _doubles("power", 2), _power, "a to the power b.", "power(2, 3)", ("pow",)),
    _of_double("exp", lambda x: x.exp(), "e to the power x.", "1"),
    _of_double("ln", lambda x: _positive(x).log(), "The natural logarithm.", "10"),
    _of_double("log10", lambda x: _positive(x).log10(), "The decimal logarithm.", "100"),
    _of_double("log2", lambda x: _positive(x).log(2), "The binary logarithm.", "8"),
    Function(
        "log",
        lambda given, constants: _doubles("log", 1 if len(given) == 1 else 2)(given, constants),
        _log,
        "`log(x)` is the natural logarithm, `log(base, x)` that to a base.",
        "log(2, 8)",
    ),
    _of_double("sin", lambda x: x.sin(), "The sine.", "1"),
    _of_double("cos", lambda x: x.cos(), "The cosine.", "1"),
    _of_double("tan", lambda x: x.tan(), "The tangent.", "1"),
    _of_double("asin", lambda x: x.arcsin(), "The angle of a sine.", "0.5"),
    _of_double("acos", lambda x: x.arccos(), "The angle of a cosine.", "0.5"),
    _of_double("atan", lambda x: x.arctan(), "The angle of a tangent.", "0.5"),
    Function(
        "atan2",
        _doubles("atan2", 2),
        lambda s: pl.arctan2(_unsigned_zero(s.args[0]), _unsigned_zero(s.args[1])),
        "The angle of the point (x, y), given as `atan2(y, x)`.",
        "atan2(1, 1)",
    ),
    _of_double("sinh", lambda x: x.sinh(), "The hyperbolic sine.", "1"),
    _of_double("cosh", lambda x: x.cosh(), "The hyperbolic cosine.", "1"),
    _of_double("tanh", lambda x: x.tanh(), "The hyperbolic tangent.", "1"),
    _of_double("degrees", lambda x: x.degrees(), "An angle in degrees.", "3"),
    _of_double("radians", lambda x: x.radians(), "An angle in radians.", "180"),
    Function(
        "pi",
        fixed("pi", result=DOUBLE),
        lambda s: pl.lit(math.pi),
        "The number pi.",
        "pi()",
        row=lambda s: repr(math.pi),
    ),
    Function(
        "e",
        fixed("e", result=DOUBLE),
        lambda s: pl.lit(math.e),
        "The number e.",
        "e()",
        row=lambda s: repr(math.e),
    ),
    Function(
        "isnan",
        fixed("isnan", DOUBLE, result=BOOLEAN),
        lambda s: s.first.is_nan().fill_null(False),
        "Whether it is NaN; FALSE for NULL.",
        "isnan(1.5)",
        row=lambda s: f"{s.is_known(0)} and {s.first} != {s.first}",
        sees_nulls=True,
    ),
    Function(
        "nanvl",
        _doubles("nanvl", 2),
        lambda s: pl.when(s.first.is_nan()).then(s.args[1]).otherwise(s.first),
        "The second if the first is NaN, else the first.",
        "nanvl(1.5, 2)",
        row=lambda s: f"{s.args[1]} if {s.first} != {s.first} else {s.first}",
        sees_nulls=True,
    ),
)
