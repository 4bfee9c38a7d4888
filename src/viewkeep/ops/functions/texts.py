"""Numbers, truth values and times written as text, and read from it, as Spark does.

Law: reading is total: text that does not show a value of the type is NULL. Spaces and control
characters around the text do not matter.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from viewkeep.deferred import pl
from viewkeep.ops.functions import decimals
from viewkeep.ops.functions.rowwise import each
from viewkeep.types import DataType

_FIRST_DAY = date(1970, 1, 1).toordinal()
_FIRST_MOMENT = datetime(1970, 1, 1)
SPACES = "".join(map(chr, range(0x21)))
BLANKS = SPACES + "\x7f"
YES, NO = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
EXACT = decimals.EXACT
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
HEX = r"^[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?$"
DOUBLE_TEXT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?$"
SPECIAL = {
    "inf": "inf",
    "+inf": "inf",
    "infinity": "inf",
    "+infinity": "inf",
    "-inf": "-inf",
    "-infinity": "-inf",
    "nan": "NaN",
}
OFFSET = (
    r"([+-])(?:([0-9]{1,2})|([0-9]{2})([0-9]{2})([0-9]{2})?"
    r"|([0-9]{1,2}):(?:([0-9]{1,2})|([0-9]{2}):([0-9]{2})))$"
)
TIME = (
    r"^([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?"
    rf" *(Z|(?:UTC|GMT|UT)?(?:{OFFSET[:-1]})|UTC|GMT|UT)?)?)?)?)?)?$"
)
DATE = r"(?s)^([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?$"


def of_doubles(expr: pl.Expr) -> pl.Expr:
    """Doubles as Java writes them: 1.0, 1.0E10, 1.0E-4. By row: polars has no such format."""
    return each(java_double, pl.String(), expr)


def java_double(value: float) -> str:
    """One double as Java writes it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return str(value)
    # Java shows two digits or more, so where one would do it takes the two that are nearest.
    shown = Decimal(repr(value)).normalize()
    if len(shown.as_tuple().digits) == 1:
        shown = Decimal(f"{value:.1e}").normalize()
    sign, digits, exponent = shown.as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    point = len(figures) + exponent
    lead = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{lead}0.{'0' * -point}{figures}"
        padded = figures.ljust(point, "0")
        return f"{lead}{padded[:point]}.{padded[point:] or '0'}"
    return f"{lead}{figures[0]}.{figures[1:] or '0'}E{point - 1}"


def of_bytes(expr: pl.Expr) -> pl.Expr:
    """Bytes as UTF-8 text, NULL where they are not. By row: polars fails for all at such a one."""

    def one(value: bytes) -> str | None:
        known = utf8_or_none(value)
        return None if known is None else known.decode()

    return each(one, pl.String(), expr)


def utf8_or_none(value: bytes) -> bytes | None:
    """The bytes if they are UTF-8 text."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return None
    return value


def decimal_bytes(unscaled: int, scale: int) -> bytes:
    """A DECIMAL as text."""
    return str(decimals.EXACT.scaleb(Decimal(unscaled), -scale)).encode()


def date_bytes(days: int) -> bytes:
    """A DATE, in days since 1970, as text."""
    return date.fromordinal(days + _FIRST_DAY).isoformat().encode()


def timestamp_bytes(micros: int) -> bytes:
    """A TIMESTAMP, in microseconds since 1970, as text without zeros at the end of a fraction."""
    moment = _FIRST_MOMENT + timedelta(0, 0, micros)
    return moment.isoformat(" ").rstrip("0" if moment.microsecond else "").encode()


def of_small_decimals(expr: pl.Expr) -> pl.Expr:
    """Decimals with more than 6 places as text. By row: below 1E-6 Spark writes an exponent."""
    return each(str, pl.String(), expr)


def to_integer(expr: pl.Expr, bits: int) -> pl.Expr:
    """Text as 128-bit integers; a fraction is cut off, what does not fit the bits is NULL."""
    digits = _trimmed(expr).str.extract(r"^([+-]?[0-9]+)(?:\.[0-9]*)?$", 1)
    short = _trimmed(expr).str.extract(r"^([+-]?)\.[0-9]*$", 1)
    value = digits.str.strip_prefix("+").cast(pl.Int128, strict=False)
    value = pl.when(short.is_not_null()).then(decimals.whole(0)).otherwise(value)
    return pl.when((value < 2**bits) & (value >= -(2**bits))).then(value)


def to_double(expr: pl.Expr) -> pl.Expr:
    """Text as doubles, with Infinity and NaN in any case."""
    text = expr.str.strip_chars(SPACES)
    plain = pl.when(text.str.contains(DOUBLE_TEXT)).then(
        text.str.strip_chars_end("dDfF").str.strip_prefix("+")
    )
    special = text.str.to_lowercase().replace_strict(
        list(SPECIAL), list(SPECIAL.values()), default=None, return_dtype=pl.String
    )
    signed = pl.when(text.is_in(["+NaN", "-NaN"])).then(pl.lit("NaN"))
    shown = pl.coalesce(special, signed, plain).cast(pl.Float64, strict=False)
    # By row, but only where there is one: polars reads no hexadecimal doubles.
    hexadecimal = pl.when(text.str.contains(HEX)).then(text)
    return pl.coalesce(shown, each(of_hex, pl.Float64(), hexadecimal))


def of_hex(text: str) -> float:
    """A DOUBLE in hexadecimal digits."""
    try:
        return float.fromhex(re.sub("(?<=[0-9])[dDfF]$", "", text))
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")


def to_decimal(expr: pl.Expr, given: DataType, target: DataType) -> pl.Expr:
    """Text or doubles as decimals, HALF_UP. By row: polars rounds otherwise, without exponents."""

    def one(value: float | str) -> Decimal | None:
        return decimal_of(value, target.precision, target.scale)

    return each(one, target.polars, expr)


def decimal_of(value: float | str, precision: int, scale: int) -> Decimal | None:
    """One text or double as a decimal, HALF_UP; None if it shows none that fits."""
    if isinstance(value, str):
        value = value.strip(SPACES)
        if not _NUMBER.fullmatch(value):
            return None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
        if not number.is_finite() or abs(int(number.as_tuple().exponent)) > 2**31 - 1:
            return None  # past what Java reads
        if number == 0:
            return Decimal(0)
        type_ = DataType("DECIMAL", precision, scale)
        return decimals.fitted(number, type_) if number.adjusted() < 40 else None
    except InvalidOperation:
        return None


def to_boolean(expr: pl.Expr) -> pl.Expr:
    """t, true, y, yes, 1 and f, false, n, no, 0 in any case."""
    text = _trimmed(expr).str.to_lowercase()
    return pl.when(text.is_in(YES)).then(True).when(text.is_in(NO)).then(False)


def to_date(expr: pl.Expr) -> pl.Expr:
    """yyyy, yyyy-m, yyyy-m-d, the last followed by anything after a space or a T."""
    parts = _trimmed(expr).str.extract_groups(DATE)
    numbers = [parts.struct.field(str(i + 1)).cast(pl.Int32, strict=False) for i in range(3)]
    return date_of(numbers[0], numbers[1], numbers[2], absent=1)


def to_timestamp(expr: pl.Expr) -> pl.Expr:
    """A date, or a date and a time of day with up to 6 places, with Z or an offset or neither."""
    parts = _trimmed(expr).str.extract_groups(TIME)
    field = [parts.struct.field(str(i + 1)) for i in range(8)]
    number = [part.cast(pl.Int32, strict=False) for part in field]
    day = date_of(number[0], number[1], number[2], absent=1)
    hour, minute, second = (n.fill_null(0).cast(pl.Int64) for n in number[3:6])
    micros = field[6].str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    valid = (hour < 24) & (minute < 60) & (second < 60) & _offset_valid(field[7])
    seconds = hour * 3600 + minute * 60 + second - _offset(field[7])
    moment = day.cast(pl.Datetime("us")).to_physical() + seconds * 1_000_000 + micros
    return pl.when(valid).then(moment.cast(pl.Datetime("us")))


def date_of(year: pl.Expr, month: pl.Expr, day: pl.Expr, absent: int | None = None) -> pl.Expr:
    """The date of three integers; NULL where there is no such day. Missing parts are `absent`."""
    if absent is not None:
        month, day = month.fill_null(absent), day.fill_null(absent)
    valid = month.is_between(1, 12) & day.is_between(1, 31) & year.is_between(-200_000, 200_000)
    start = pl.date(
        pl.when(valid).then(year).otherwise(2000), pl.when(valid).then(month).otherwise(1), 1
    )
    made = start + pl.duration(days=pl.when(valid).then(day).otherwise(1) - 1)
    return pl.when(valid & (made.dt.month() == month)).then(made)


def _offset(zone: pl.Expr) -> pl.Expr:
    sign, hours, minutes, seconds = _offset_parts(zone)
    return sign * (hours * 3600 + minutes * 60 + seconds)


def _offset_valid(zone: pl.Expr) -> pl.Expr:
    _, _, minutes, seconds = _offset_parts(zone)
    return (_offset(zone).abs() <= 18 * 3600) & (minutes < 60) & (seconds < 60)


def _offset_parts(zone: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr, pl.Expr]:
    parts = zone.str.extract_groups(OFFSET)

    def number(*groups: int) -> pl.Expr:
        found = pl.coalesce(parts.struct.field(str(group)) for group in groups)
        return found.cast(pl.Int64, strict=False).fill_null(0)

    sign = pl.when(parts.struct.field("1") == "-").then(-1).otherwise(1)
    return sign, number(2, 3, 6), number(4, 7, 8), number(5, 9)


def _trimmed(expr: pl.Expr) -> pl.Expr:
    return expr.str.strip_chars(BLANKS)
