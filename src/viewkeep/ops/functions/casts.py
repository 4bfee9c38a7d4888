"""CAST between any two types, and TRY_CAST, which is the same since no cast fails.

Law: a value that the target type cannot show is NULL; integers wrap around and doubles saturate, as
in Spark with ANSI mode off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal

from viewkeep.deferred import pl
from viewkeep.errors import TypeMismatch
from viewkeep.ops.functions import decimals, rowreads, texts
from viewkeep.ops.functions.arithmetic import ratio
from viewkeep.ops.functions.coercion import VOID
from viewkeep.ops.functions.function import Constants, Function, Signature, Site
from viewkeep.ops.functions.rowform import (
    RowSite,
    double_to_integer,
    rescaled,
    truncated,
    wrapped,
)
from viewkeep.ops.functions.rowwise import each
from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
)

_SCALA = Context(prec=34, rounding=ROUND_HALF_EVEN)
"""How Scala multiplies decimals, which Spark does where it makes a timestamp of one."""
_REFUSED = {
    (DATE, "number"),
    (DATE, BOOLEAN),
    (BOOLEAN, DATE),
    ("number", DATE),
    (DATE, BINARY),
    (TIMESTAMP, BINARY),
    (BOOLEAN, BINARY),
    ("number", BINARY),
    (BINARY, DATE),
    (BINARY, TIMESTAMP),
    (BINARY, BOOLEAN),
    (BINARY, "number"),
}


YEARS = {
    DATE: (-719_162, 2_932_896),
    TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""The first and the last value of the years 1 to 9999, as stored."""


def in_years(expr: pl.Expr, type_: DataType) -> pl.Expr:
    """Times of the years 1 to 9999, NULL for others; other types as they are.

    Beyond, Python has no such values and polars stops the process for some.
    """
    if type_ not in YEARS:
        return expr
    first, last = YEARS[type_]
    return pl.when(expr.to_physical().is_between(first, last)).then(expr)


def castable(given: DataType, target: DataType) -> bool:
    """Whether a cast has a meaning; where Spark's would give NULL for every value, it has none."""
    kinds = ("number" if t.is_numeric else t for t in (given, target))
    return tuple(kinds) not in _REFUSED


def cast(expr: pl.Expr, given: DataType, target: DataType) -> pl.Expr:
    """The values of `expr`, of type `given`, as type `target`."""
    if given == target:
        return expr
    if target.is_decimal:
        return _to_decimal(expr, given, target)
    return _CASTS[target](expr, given)


def _to_string(expr: pl.Expr, given: DataType) -> pl.Expr:
    if given == DOUBLE:
        return texts.of_doubles(expr)
    if given.is_decimal and given.scale > 6:
        return texts.of_small_decimals(expr)
    if given == BOOLEAN:
        return pl.when(expr).then(pl.lit("true")).when(~expr).then(pl.lit("false"))
    if given == DATE:
        return expr.dt.strftime("%Y-%m-%d")
    if given == TIMESTAMP:
        whole = expr.dt.strftime("%Y-%m-%d %H:%M:%S")
        fraction = expr.dt.strftime("%6f").str.strip_chars_end("0")
        return pl.when(fraction == "").then(whole).otherwise(whole + "." + fraction)
    if given == BINARY:
        return texts.of_bytes(expr)
    return expr.cast(pl.String)


def _to_integer(target: DataType) -> Callable[[pl.Expr, DataType], pl.Expr]:
    bits = 31 if target == INT else 63

    def convert(expr: pl.Expr, given: DataType) -> pl.Expr:
        if given == STRING:
            return texts.to_integer(expr, bits).cast(target.polars)
        if given == DOUBLE:
            # Java's (int) and (long): NaN is 0, and what is too large becomes the largest.
            bounded = expr.fill_nan(0.0).clip(-(2.0**bits), 2.0**bits)
            inside = bounded < 2.0**bits
            most = pl.lit(2**bits - 1, dtype=target.polars)
            small = pl.when(inside).then(bounded).otherwise(0.0).cast(target.polars)
            return pl.when(expr.is_not_null()).then(pl.when(inside).then(small).otherwise(most))
        if given.is_decimal:
            raw = decimals.unscaled(expr)
            whole = decimals.truncated(raw, decimals.whole(10**given.scale))
            return whole.cast(target.polars, wrap_numerical=True)
        if given == TIMESTAMP:
            return (expr.to_physical() // 1_000_000).cast(target.polars, strict=False)
        return expr.cast(target.polars, wrap_numerical=True)

    return convert


def _to_double(expr: pl.Expr, given: DataType) -> pl.Expr:
    if given == STRING:
        return texts.to_double(expr)
    if given.is_decimal:
        # Through text, because dividing the unscaled integer rounds twice.
        return expr.cast(pl.String).cast(pl.Float64)
    if given == TIMESTAMP:
        return ratio(expr.to_physical().cast(pl.Float64), pl.lit(1e6))
    return expr.cast(pl.Float64)


def _to_decimal(expr: pl.Expr, given: DataType, target: DataType) -> pl.Expr:
    if given.is_decimal:
        moved = decimals.rescaled(decimals.unscaled(expr), target.scale - given.scale)
        return decimals.scaled(moved, target)
    if given in (INT, BIGINT, BOOLEAN):
        moved = decimals.rescaled(expr.cast(pl.Int128), target.scale)
        return decimals.scaled(moved, target)
    if given == TIMESTAMP:
        moved = decimals.rescaled(expr.to_physical().cast(pl.Int128), target.scale - 6)
        return decimals.scaled(moved, target)
    return texts.to_decimal(expr, given, target)


def _to_boolean(expr: pl.Expr, given: DataType) -> pl.Expr:
    if given == STRING:
        return texts.to_boolean(expr)
    if given.is_decimal:
        return decimals.unscaled(expr) != 0
    if given == TIMESTAMP:
        return expr.to_physical() != 0
    return expr != 0


def _to_binary(expr: pl.Expr, given: DataType) -> pl.Expr:
    return expr.cast(pl.Binary)


def _to_date(expr: pl.Expr, given: DataType) -> pl.Expr:
    return texts.to_date(expr) if given == STRING else expr.dt.date()


def _to_timestamp(expr: pl.Expr, given: DataType) -> pl.Expr:
    if given == STRING:
        return texts.to_timestamp(expr)
    if given == DATE:
        return expr.cast(pl.Datetime("us"))
    if given.is_decimal:
        micros = _decimal_micros(expr, given)
    elif given == DOUBLE:
        fit = expr.is_finite()
        micros = _to_integer(BIGINT)(pl.when(fit).then(expr * 1e6), DOUBLE)
    elif given == BOOLEAN:
        micros = expr.cast(pl.Int64)  # as in Spark, TRUE is one microsecond, not one second
    else:
        product = expr.cast(pl.Int128) * decimals.whole(1_000_000)
        micros = product.clip(-(2**63), 2**63 - 1).cast(pl.Int64)
    return micros.cast(pl.Datetime("us"))


def _decimal_micros(expr: pl.Expr, given: DataType) -> pl.Expr:
    if given.precision <= _SCALA.prec - 6:
        product = decimals.unscaled(expr) * decimals.whole(1_000_000)
        whole = decimals.truncated(product, decimals.whole(10**given.scale))
        return whole.cast(pl.Int64, wrap_numerical=True)

    def one(value: Decimal) -> int:
        whole = int(_SCALA.multiply(value, Decimal(1_000_000)))
        return (whole + 2**63) % 2**64 - 2**63

    # By row: the product may pass 128 bits, and Spark cuts it to 34 digits.
    return each(one, pl.Int64(), expr)


def _row(site: RowSite) -> str | None:
    """The row form of a cast."""
    given, target = site.types[0], site.result
    if given == target:
        return site.first
    if given == STRING:
        return _row_read(site, target)
    if target.is_decimal:
        return _row_to_decimal(site, given)
    form = _ROW_CASTS.get(target)
    return form(site, given) if form else None


def _row_read(site: RowSite, target: DataType) -> str | None:
    text = site.first
    if target == BINARY:
        return text
    if target.is_decimal:
        scale = f"{target.precision}, {target.scale}"
        return f"{site.use(rowreads.read_decimal)}({text}, {scale})"
    if target.is_integer:
        return f"{site.use(rowreads.read_integer)}({text}, {32 if target == INT else 64})"
    helper = _READERS.get(target)
    return f"{site.use(helper)}({text})" if helper else None


_READERS: dict[DataType, Callable[[bytes], object]] = {
    DOUBLE: rowreads.read_double,
    BOOLEAN: rowreads.read_boolean,
    DATE: rowreads.read_date,
    TIMESTAMP: rowreads.read_timestamp,
}


def _row_to_string(site: RowSite, given: DataType) -> str | None:
    value = site.first
    if given.is_integer:
        return f'b"%d" % {value}'
    if given == BOOLEAN:
        return f'b"true" if {value} else b"false"'
    if given == DOUBLE:
        return f"{site.use(texts.java_double)}({value}).encode()"
    if given.is_decimal:
        return f"{site.use(texts.decimal_bytes)}({value}, {given.scale})"
    if given == DATE:
        return f"{site.use(texts.date_bytes)}({value})"
    if given == TIMESTAMP:
        return f"{site.use(texts.timestamp_bytes)}({value})"
    return f"{site.use(texts.utf8_or_none)}({value})"


def _row_to_integer(site: RowSite, given: DataType) -> str | None:
    value, target = site.first, site.result
    if given == BOOLEAN:
        return f"1 if {value} else 0"
    if given == DOUBLE:
        return f"{site.use(double_to_integer)}({value}, {32 if target == INT else 64})"
    if given.is_decimal:
        return wrapped(f"{site.use(truncated)}({value}, {10**given.scale})", target)
    if given == TIMESTAMP:
        seconds = f"{value} // 1000000"
        return seconds if target == BIGINT else f"{site.use(int_or_none)}({seconds})"
    return value if target == BIGINT else wrapped(value, target)


def int_or_none(value: int) -> int | None:
    """An integer that fits an INT, or NULL."""
    return value if -(2**31) <= value < 2**31 else None


def _row_to_double(site: RowSite, given: DataType) -> str:
    if given.is_decimal:
        return f"{site.first} / {10**given.scale}"  # Python rounds a ratio of integers once
    if given == TIMESTAMP:
        return f"{site.first} * 1.0 / 1e6"
    return f"{site.first} * 1.0"


def _row_to_decimal(site: RowSite, given: DataType) -> str | None:
    if given == DOUBLE:
        scale = f"{site.result.precision}, {site.result.scale}"
        return f"{site.use(rowreads.read_decimal)}({site.first}, {scale})"
    value = f"({site.first} * 1)" if given == BOOLEAN else site.first
    places = given.scale if given.is_decimal else 6 if given == TIMESTAMP else 0
    return rescaled(value, places - site.result.scale, site)


def _row_to_timestamp(site: RowSite, given: DataType) -> str | None:
    value = site.first
    if given == DATE:
        return f"{value} * 86400000000"
    if given == BOOLEAN:
        return f"{value} * 1"
    if given == DOUBLE:
        micros = f"{site.use(double_to_integer)}({value} * 1e6, 64)"
        return f"{micros} if abs({value}) < INFINITY else None"
    if given.is_integer:
        return f"{value} * 1000000"  # what is too large is in no year
    return None


_ROW_CASTS: dict[DataType, Callable[[RowSite, DataType], str | None]] = {
    STRING: _row_to_string,
    INT: _row_to_integer,
    BIGINT: _row_to_integer,
    DOUBLE: _row_to_double,
    BOOLEAN: lambda site, given: f"{site.first} != 0",
    DATE: lambda site, given: f"{site.first} // 86400000000",
    TIMESTAMP: _row_to_timestamp,
}
_CASTS: dict[DataType, Callable[[pl.Expr, DataType], pl.Expr]] = {
    STRING: _to_string,
    INT: _to_integer(INT),
    BIGINT: _to_integer(BIGINT),
    DOUBLE: _to_double,
    BOOLEAN: _to_boolean,
    BINARY: _to_binary,
    DATE: _to_date,
    TIMESTAMP: _to_timestamp,
}


def check(given: DataType, target: DataType) -> None:
    """Refuse a cast that has no meaning."""
    if given != VOID and not castable(given, target):
        raise TypeMismatch(f"a {given} cannot be cast to {target}")


def _resolve(given: Sequence[DataType], constants: Constants) -> Signature:
    raise TypeMismatch("a cast needs its target", hint="Write CAST(x AS type)")


def _build(site: Site) -> pl.Expr:
    return cast(site.first, site.types[0], site.result)


FUNCTIONS = (
    Function(
        "cast",
        _resolve,
        _build,
        "`CAST(x AS type)`, `TRY_CAST(x AS type)` and `x::type`; NULL where there is none.",
        "CAST('12' AS INT)",
        row=_row,
    ),
)
