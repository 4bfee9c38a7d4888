"""Dates: their parts, moves along the calendar, and the patterns that write and read times.

Law: the calendar is the proleptic Gregorian; a month move keeps the day, or takes the last day of a
shorter month; what is no date is NULL.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import MAXYEAR, MINYEAR, date
from itertools import pairwise

from viewkeep.deferred import pl
from viewkeep.errors import TypeMismatch
from viewkeep.ops.functions import casts, texts
from viewkeep.ops.functions.coercion import VOID, accepts
from viewkeep.ops.functions.function import Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowform import RowForm, RowSite, wrapped
from viewkeep.ops.functions.signatures import constant_text, fixed, mismatch
from viewkeep.types import DATE, INT, STRING, DataType

_FIRST_DAY = date(1970, 1, 1).toordinal()
_YEAR, _QUARTER, _MONTH = ("year", "yyyy", "yy"), ("quarter",), ("month", "mon", "mm")
_WRITTEN = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "DDD": "%j",
    "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p", "E": "%a", "EE": "%a",
    "EEE": "%a", "EEEE": "%A", "M": "%-m", "d": "%-d", "H": "%-H", "h": "%-I", "m": "%-M",
    "s": "%-S", "D": "%-j", "y": "%-Y",
}  # fmt: skip
"""Letters of a pattern, and what polars calls them."""
_READ = {
    "yyyy": r"[0-9]{4}", "y": r"[0-9]{1,9}", "MM": r"[0-9]{2}", "M": r"[0-9]{1,2}",
    "dd": r"[0-9]{2}", "d": r"[0-9]{1,2}", "HH": r"[0-9]{2}", "H": r"[0-9]{1,2}",
    "mm": r"[0-9]{2}", "m": r"[0-9]{1,2}", "ss": r"[0-9]{2}", "s": r"[0-9]{1,2}",
    "MMM": "(?i:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)",
}  # fmt: skip
_MONTHS = _READ["MMM"][4:-1].lower().split("|")
_TOKENS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z'\[\]{}#]+")


def months_added(day: pl.Expr, months: pl.Expr) -> pl.Expr:
    """A date moved by months, at most to the last day of the month."""
    count = day.dt.year().cast(pl.Int64) * 12 + (day.dt.month().cast(pl.Int64) - 1) + months
    first = texts.date_of(count // 12, count % 12 + 1, pl.lit(1))
    last = first.dt.month_end().dt.day().cast(pl.Int32)
    number = pl.min_horizontal(day.dt.day().cast(pl.Int32), last)
    kept = day.is_not_null() & months.is_not_null()
    return pl.when(kept).then((first.to_physical() + number - 1).cast(pl.Date))


def truncated(day: pl.Expr, unit: pl.Expr) -> pl.Expr:
    """The first day of the year, quarter, month or week of a date; NULL for another unit."""
    name = unit.str.to_lowercase()
    back = (day.dt.weekday().cast(pl.Int32) - 1).cast(pl.Int32)
    return (
        pl.when(name.is_in(list(_YEAR)))
        .then(pl.date(day.dt.year(), 1, 1))
        .when(name.is_in(list(_QUARTER)))
        .then(pl.date(day.dt.year(), day.dt.quarter() * 3 - 2, 1))
        .when(name.is_in(list(_MONTH)))
        .then(day.dt.month_start())
        .when(name == "week")
        .then((day.to_physical() - back).cast(pl.Date))
    )


def written(moment: pl.Expr, pattern: str) -> pl.Expr:
    """A date or timestamp as text, by a pattern of Java's letters."""
    return moment.dt.strftime("".join(_directive(pattern, token) for token in _tokens(pattern)))


def read(text: pl.Expr, pattern: str) -> tuple[pl.Expr, pl.Expr]:
    """The date and the microseconds of the day that text shows by a pattern; NULL if none."""
    names: list[str] = []
    source = ""
    tokens = _tokens(pattern)
    for token, after in pairwise(tokens):
        if _is_number(token) and _is_number(after) and not (_is_fixed(token) and _is_fixed(after)):
            raise _unknown(pattern, token + after)
    for token in tokens:
        if not token[0].isalpha():
            source += re.escape(_plain(token))
        elif set(token) == {"S"}:
            names.append("S")
            source += f"([0-9]{{1,{len(token)}}})"
        elif token in _READ:
            names.append("b" if token == "MMM" else token[0])
            source += f"({_READ[token]})"
        else:
            raise _unknown(pattern, token)
    if not names:
        raise _unknown(pattern, pattern)
    groups = text.str.extract_groups(f"^(?:{source})$")
    parts = {name: groups.struct.field(str(i + 1)) for i, name in enumerate(names)}

    def number(name: str, absent: int) -> pl.Expr:
        if name not in parts:
            return pl.lit(absent, dtype=pl.Int64)
        return parts[name].cast(pl.Int64, strict=False)

    month = number("M", 1)
    if "b" in parts:
        month = (
            parts["b"]
            .str.to_lowercase()
            .replace_strict(_MONTHS, list(range(1, 13)), default=None, return_dtype=pl.Int64)
        )
    shown = parts[names[0]].is_not_null()
    day = texts.date_of(number("y", 1970), month, number("d", 1))
    hour, minute, second = number("H", 0), number("m", 0), number("s", 0)
    fraction = pl.lit(0, dtype=pl.Int64)
    if "S" in parts:
        digits = parts["S"].str.slice(0, 6).str.pad_end(6, "0")
        fraction = digits.cast(pl.Int64, strict=False)
    valid = shown & (hour < 24) & (minute < 60) & (second < 60)
    seconds = hour * 3600 + minute * 60 + second
    return pl.when(valid).then(day), seconds * 1_000_000 + fraction


def _is_number(token: str) -> bool:
    return token[0].isalpha() and token not in ("MMM", "MMMM")


def _is_fixed(token: str) -> bool:
    # Java tells numbers without a mark between them apart by their widths alone.
    return token in ("yyyy", "MM", "dd", "HH", "mm", "ss")


def _tokens(pattern: str) -> list[str]:
    found = [match.group() for match in _TOKENS.finditer(pattern)]
    if "".join(found) != pattern:
        raise _unknown(pattern, pattern)
    return found


def _plain(token: str) -> str:
    if not token.startswith("'"):
        return token
    return token[1:-1].replace("''", "'") or "'"


def _directive(pattern: str, token: str) -> str:
    if not token[0].isalpha():
        return _plain(token).replace("%", "%%")
    if set(token) == {"S"} and len(token) in (3, 6, 9):
        return f"%{len(token)}f"
    if token not in _WRITTEN:
        raise _unknown(pattern, token)
    return _WRITTEN[token]


def _unknown(pattern: str, token: str) -> TypeMismatch:
    return TypeMismatch(
        f"the time pattern {pattern!r} has no meaning at {token!r}",
        hint="Known letters: yyyy MM MMM dd HH mm ss SSS E d H; text goes between quotes",
    )


def checked(name: str, constants: Constants, position: int, use: Callable[[str], object]) -> str:
    """The pattern constant at `position`, refused here if its kernel would refuse it."""
    pattern = constant_text(name, constants, position, "pattern")
    use(pattern)
    return pattern


def _to_date_type(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) not in (1, 2) or not accepts(given[0], DATE):
        raise mismatch("to_date", given, "a text and, if wanted, a constant pattern")
    if len(given) == 1:
        return (STRING if given[0] == VOID else given[0],), DATE
    checked("to_date", constants, 1, lambda pattern: read(pl.col("text"), pattern))
    return (STRING if given[0] in (STRING, VOID) else DATE, STRING), DATE


def _to_date(site: Site) -> pl.Expr:
    if len(site.args) == 2 and site.types[0] == STRING:
        return read(site.first, str(site.constants[1]))[0]
    return casts.cast(site.first, site.types[0], DATE)


def _days_type(name: str) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 2 or not accepts(given[0], DATE) or given[1] not in (INT, VOID):
            raise mismatch(name, given, "a date and an INT")
        return (DATE, INT), DATE

    return resolve


def _add_days(sign: int) -> Callable[[Site], pl.Expr]:
    def build(site: Site) -> pl.Expr:
        return (site.first.to_physical() + site.args[1] * sign).cast(pl.Date)

    return build


def _row_add_days(sign: str) -> RowForm:
    def form(site: RowSite) -> str:
        # Days are 32 bits wide in the kernel, and so is their sum.
        return wrapped(f"{site.args[0]} {sign} {site.args[1]}", INT)

    return form


def day_of(days: int) -> date:
    """The date of a number of days since 1970."""
    return date.fromordinal(days + _FIRST_DAY)


def month_added(days: int, months: int) -> int | None:
    """A date moved by months, at most to the last day of the month; None beyond the calendar."""
    start = day_of(days)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    if not MINYEAR <= year <= MAXYEAR:
        return None
    last = monthrange(year, month + 1)[1]
    return date(year, month + 1, min(start.day, last)).toordinal() - _FIRST_DAY


def month_end(days: int) -> int:
    """The last day of a date's month."""
    start = day_of(days)
    return days - start.day + monthrange(start.year, start.month)[1]


def unit_start(days: int, unit: str) -> int | None:
    """The first day of the year, quarter, month or week of a date; None for another unit."""
    if unit == "week":
        return days - day_of(days).weekday()
    start = day_of(days)
    if unit in _YEAR:
        start = start.replace(month=1, day=1)
    elif unit in _QUARTER:
        start = start.replace(month=(start.month - 1) // 3 * 3 + 1, day=1)
    elif unit in _MONTH:
        start = start.replace(day=1)
    else:
        return None
    return start.toordinal() - _FIRST_DAY


def _row_trunc(site: RowSite) -> str | None:
    unit = site.constants.get(1)
    if not isinstance(unit, str):
        return None
    return f"{site.use(unit_start)}({site.first}, {unit.lower()!r})"


def _row_part(source: str) -> RowForm:
    return lambda site: source.format(f"{site.use(day_of)}({site.first})")


def _part(
    name: str, kernel: Callable[[pl.Expr], pl.Expr], row: str, doc: str, *aliases: str
) -> Function:
    return Function(
        name,
        fixed(name, DATE, result=INT),
        lambda s: kernel(s.first).cast(pl.Int32),
        doc,
        f"{name}(DATE '2024-02-29')",
        aliases,
        _row_part(row),
    )


FUNCTIONS: tuple[Function, ...] = (
    _part("year", lambda d: d.dt.year(), "{}.year", "The year."),
    _part(
        "quarter",
        lambda d: d.dt.quarter(),
        "({}.month + 2) // 3",
        "The quarter of the year, 1 to 4.",
    ),
    _part("month", lambda d: d.dt.month(), "{}.month", "The month, 1 to 12."),
    _part("day", lambda d: d.dt.day(), "{}.day", "The day of the month.", "dayofmonth"),
    _part(
        "dayofweek",
        lambda d: d.dt.weekday() % 7 + 1,
        "{}.isoweekday() % 7 + 1",
        "1 for Sunday to 7 for Saturday.",
    ),
    _part("weekday", lambda d: d.dt.weekday() - 1, "{}.weekday()", "0 for Monday to 6 for Sunday."),
    _part(
        "dayofyear", lambda d: d.dt.ordinal_day(), "{}.timetuple().tm_yday", "The day of the year."
    ),
    _part(
        "weekofyear",
        lambda d: d.dt.week(),
        "{}.isocalendar().week",
        "The ISO week; the first has 4 days or more.",
    ),
    Function(
        "date_add",
        _days_type("date_add"),
        _add_days(1),
        "The date a number of days later.",
        "date_add(DATE '2024-02-28', 2)",
        ("dateadd",),
        row=_row_add_days("+"),
    ),
    Function(
        "date_sub",
        _days_type("date_sub"),
        _add_days(-1),
        "The date a number of days earlier.",
        "date_sub(DATE '2024-03-01', 1)",
        row=_row_add_days("-"),
    ),
    Function(
        "datediff",
        fixed("datediff", DATE, DATE, result=INT),
        lambda s: s.args[0].to_physical() - s.args[1].to_physical(),
        "The days from the second date to the first.",
        "datediff(DATE '2024-03-01', DATE '2024-02-01')",
        ("date_diff",),
        row=lambda s: wrapped(f"{s.args[0]} - {s.args[1]}", INT),
    ),
    Function(
        "add_months",
        fixed("add_months", DATE, INT, result=DATE),
        lambda s: months_added(s.args[0], s.args[1]),
        "The date a number of months later, at most the last day of its month.",
        "add_months(DATE '2024-01-31', 1)",
        row=lambda s: f"{s.use(month_added)}({s.args[0]}, {s.args[1]})",
    ),
    Function(
        "last_day",
        fixed("last_day", DATE, result=DATE),
        lambda s: s.first.dt.month_end(),
        "The last day of the month.",
        "last_day(DATE '2024-02-01')",
        row=lambda s: f"{s.use(month_end)}({s.first})",
    ),
    Function(
        "trunc",
        fixed("trunc", DATE, STRING, result=DATE),
        lambda s: truncated(s.args[0], s.args[1]),
        "The first day of the `year`, `quarter`, `month` or `week`.",
        "trunc(DATE '2024-02-29', 'month')",
        row=_row_trunc,
    ),
    Function(
        "make_date",
        fixed("make_date", INT, INT, INT, result=DATE),
        lambda s: texts.date_of(s.args[0], s.args[1], s.args[2]),
        "The date of a year, a month and a day; NULL if there is none.",
        "make_date(2024, 2, 29)",
    ),
    Function(
        "to_date",
        _to_date_type,
        _to_date,
        "The date that a text shows, by a pattern if one is given.",
        "to_date('29/02/2024', 'dd/MM/yyyy')",
    ),
)
