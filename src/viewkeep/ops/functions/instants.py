"""Timestamps: their parts, units of time since 1970, and intervals.

Law: all is in UTC and counts whole microseconds; divisions go towards the past, also before 1970,
except that of unix_timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeep.deferred import pl
from viewkeep.ops.functions import calendar, casts, decimals
from viewkeep.ops.functions.coercion import VOID, accepts
from viewkeep.ops.functions.function import Constants, Function, Signature, Site
from viewkeep.ops.functions.rowform import RowSite
from viewkeep.ops.functions.signatures import constant_int, fixed, mismatch
from viewkeep.types import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP, DataType

_DEFAULT = "yyyy-MM-dd HH:mm:ss"
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_UNITS = {
    ("day", "dd"): _DAY,
    ("hour",): 3_600 * _SECOND,
    ("minute",): 60 * _SECOND,
    ("second",): _SECOND,
    ("millisecond",): 1_000,
    ("microsecond",): 1,
}
"""The names of the units of even length, and their microseconds."""


def _instant(micros: pl.Expr) -> pl.Expr:
    return micros.cast(pl.Int64, strict=False).cast(pl.Datetime("us"))


def _micros(moment: pl.Expr) -> pl.Expr:
    return moment.to_physical()


def _floored(moment: pl.Expr, unit: int) -> pl.Expr:
    return _instant(_micros(moment) // unit * unit)


def _truncated(site: Site) -> pl.Expr:
    unit, moment = site.args
    whole = calendar.truncated(moment.dt.date(), unit).cast(pl.Datetime("us"))
    name = unit.str.to_lowercase()
    for names, micros in _UNITS.items():
        whole = pl.when(name.is_in(list(names))).then(_floored(moment, micros)).otherwise(whole)
    return whole


def _read(text: pl.Expr, pattern: str) -> pl.Expr:
    day, micros = calendar.read(text, pattern)
    return _instant(_micros(day.cast(pl.Datetime("us"))) + micros)


def _reader(name: str, result: DataType) -> Callable[[Sequence[DataType], Constants], Signature]:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) not in (1, 2) or not accepts(given[0], TIMESTAMP):
            raise mismatch(name, given, "a timestamp, or a text with a constant pattern")
        if given[0] not in (STRING, VOID):
            return (TIMESTAMP, STRING)[: len(given)], result
        if len(given) == 2:
            calendar.checked(name, constants, 1, lambda pattern: _read(pl.col("text"), pattern))
        return (STRING, STRING)[: len(given)], result

    return resolve


def _to_timestamp(site: Site) -> pl.Expr:
    if len(site.args) == 2 and site.types[0] == STRING:
        return _read(site.first, str(site.constants[1]))
    return casts.cast(site.first, site.types[0], TIMESTAMP)


def _unix_timestamp(site: Site) -> pl.Expr:
    moment = site.first
    if site.types[0] == STRING:
        moment = _read(moment, str(site.constants.get(1, _DEFAULT)))
    # Towards zero, unlike unix_seconds, since that is how Java divides.
    micros = _micros(moment)
    return pl.when(micros < 0).then(-(-micros // _SECOND)).otherwise(micros // _SECOND)


def _writer(
    name: str, first: DataType, optional: bool
) -> Callable[[Sequence[DataType], Constants], Signature]:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        fits = len(given) == 2 or (optional and len(given) == 1)
        if not fits or not accepts(given[0], first):
            raise mismatch(name, given, f"a {first} and a constant pattern")
        if len(given) == 2:
            calendar.checked(
                name, constants, 1, lambda pattern: calendar.written(pl.col("moment"), pattern)
            )
        return (first, STRING)[: len(given)], STRING

    return resolve


def _from_unixtime(site: Site) -> pl.Expr:
    moment = casts.in_years(_instant(site.first * _SECOND), TIMESTAMP)
    return calendar.written(moment, str(site.constants.get(1, _DEFAULT)))


def _seconds_type(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) != 1 or not (given[0].is_numeric or given[0] == VOID) or given[0].scale > 6:
        raise mismatch("timestamp_seconds", given, "one number, a DECIMAL with at most 6 places")
    return (BIGINT if given[0] == VOID else given[0],), TIMESTAMP


def _seconds(site: Site) -> pl.Expr:
    given = site.types[0]
    if given == DOUBLE:
        return casts.cast(site.first, DOUBLE, TIMESTAMP)
    raw = decimals.unscaled(site.first) if given.is_decimal else site.first.cast(pl.Int128)
    return _after_1970(raw, 10 ** (6 - given.scale))


def _after_1970(count: pl.Expr, unit: int) -> pl.Expr:
    """The timestamp of a 128-bit number of units; NULL where there is none."""
    fits = count.is_between(-(2**63 // unit), (2**63 - 1) // unit)
    return _instant(pl.when(fits).then(count) * decimals.whole(unit))


def _interval_type(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) != 4 or not accepts(given[0], TIMESTAMP):
        raise mismatch("add_interval", given, "a date or timestamp, months, days, microseconds")
    micros = constant_int("add_interval", constants, 3, "number of microseconds")
    moved = DATE if given[0] == DATE and micros == 0 else TIMESTAMP
    return (moved, INT, INT, BIGINT), moved


def _add_interval(site: Site) -> pl.Expr:
    moment, months, days, micros = site.args
    if site.result == DATE:
        return (calendar.months_added(moment, months).to_physical() + days).cast(pl.Date)
    day = moment.dt.date()
    moved = calendar.months_added(day, months).cast(pl.Datetime("us"))
    within = _micros(moment) - _micros(day.cast(pl.Datetime("us")))
    # In 128 bits, so that what is too far is NULL and does not come round.
    added = days.cast(pl.Int128) * decimals.whole(_DAY) + micros.cast(pl.Int128)
    return _instant((_micros(moved) + within).cast(pl.Int128) + added)


def _row_truncated(site: RowSite) -> str | None:
    unit = site.constants.get(0)
    if not isinstance(unit, str):
        return None
    micros = next((m for names, m in _UNITS.items() if unit.lower() in names), None)
    if micros is not None:
        return f"{site.args[1]} // {micros} * {micros}"
    start = f"{site.use(calendar.unit_start)}({site.args[1]} // {_DAY}, {unit.lower()!r})"
    return f"None if (start := {start}) is None else start * {_DAY}"


def _row_add_interval(site: RowSite) -> str:
    moment, months, days, micros = site.args
    if site.result == DATE:
        moved = f"{site.use(calendar.month_added)}({moment}, {months})"
        return f"None if (moved := {moved}) is None else moved + {days}"
    moved = f"{site.use(calendar.month_added)}({moment} // {_DAY}, {months})"
    within = f"{moment} % {_DAY} + {days} * {_DAY} + {micros}"
    return f"None if (moved := {moved}) is None else moved * {_DAY} + {within}"


def _part(name: str, kernel: Callable[[pl.Expr], pl.Expr], row: str, doc: str) -> Function:
    return Function(
        name,
        fixed(name, TIMESTAMP, result=INT),
        lambda s: kernel(s.first).cast(pl.Int32),
        doc,
        f"{name}(TIMESTAMP '2024-02-29 12:34:56')",
        row=lambda s: f"{s.first} {row}",
    )


def _since(name: str, unit: int, doc: str) -> Function:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 1 or given[0] not in (TIMESTAMP, VOID):
            raise mismatch(name, given, "a TIMESTAMP; CAST others to it first")
        return (TIMESTAMP,), BIGINT

    return Function(
        name,
        resolve,
        lambda s: _micros(s.first) // unit,
        doc,
        f"{name}(TIMESTAMP '2024-02-29 12:34:56')",
        row=lambda s: f"{s.first} // {unit}",
    )


def _after(name: str, unit: int, doc: str) -> Function:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 1 or not (given[0].is_integer or given[0] == VOID):
            raise mismatch(name, given, "an INT or BIGINT")
        return (BIGINT,), TIMESTAMP

    return Function(
        name,
        resolve,
        lambda s: _after_1970(s.first.cast(pl.Int128), unit),
        doc,
        f"{name}(1)",
        row=lambda s: f"{s.first} * {unit}",  # what is too large is in no year
    )


FUNCTIONS: tuple[Function, ...] = (
    _part("hour", lambda t: t.dt.hour(), "// 3600000000 % 24", "The hour of the day."),
    _part("minute", lambda t: t.dt.minute(), "// 60000000 % 60", "The minute of the hour."),
    _part("second", lambda t: t.dt.second(), "// 1000000 % 60", "The second of the minute, whole."),
    Function(
        "date_trunc",
        fixed("date_trunc", STRING, TIMESTAMP, result=TIMESTAMP),
        _truncated,
        "The start of the year, quarter, month, week, day, hour, minute, second and so on.",
        "date_trunc('hour', TIMESTAMP '2024-02-29 12:34:56')",
        row=_row_truncated,
    ),
    Function(
        "to_timestamp",
        _reader("to_timestamp", TIMESTAMP),
        _to_timestamp,
        "The timestamp that a text shows, by a pattern if one is given.",
        "to_timestamp('29/02/2024 12:30', 'dd/MM/yyyy HH:mm')",
    ),
    Function(
        "unix_timestamp",
        _reader("unix_timestamp", BIGINT),
        _unix_timestamp,
        "The whole seconds since 1970 of a timestamp, or of a text by a pattern.",
        "unix_timestamp(TIMESTAMP '2024-02-29 12:34:56')",
        ("to_unix_timestamp",),
    ),
    _since("unix_seconds", _SECOND, "The whole seconds since 1970."),
    _since("unix_millis", 1_000, "The whole milliseconds since 1970."),
    _since("unix_micros", 1, "The microseconds since 1970."),
    Function(
        "timestamp_seconds",
        _seconds_type,
        _seconds,
        "The timestamp a number of seconds after 1970 began.",
        "timestamp_seconds(1.5)",
    ),
    _after("timestamp_millis", 1_000, "The timestamp so many milliseconds after 1970 began."),
    _after("timestamp_micros", 1, "The timestamp so many microseconds after 1970 began."),
    Function(
        "from_unixtime",
        _writer("from_unixtime", BIGINT, True),
        _from_unixtime,
        "Seconds since 1970 as text, by a pattern if one is given.",
        "from_unixtime(0, 'yyyy')",
    ),
    Function(
        "date_format",
        _writer("date_format", TIMESTAMP, False),
        lambda s: calendar.written(s.first, str(s.constants[1])),
        "A timestamp as text by a pattern.",
        "date_format(DATE '2024-02-29', 'd MMM yyyy')",
    ),
    Function(
        "add_interval",
        _interval_type,
        _add_interval,
        "A date or timestamp moved by months, then days, then microseconds: `+ INTERVAL`.",
        "DATE '2024-01-31' + INTERVAL 1 MONTH",
        row=_row_add_interval,
    ),
)
