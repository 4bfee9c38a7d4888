"""INTERVAL constants as months, days and microseconds, the three that calendars keep apart."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.sql.parse.syntax import text_of

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_DAYS = {"WEEK": 7, "DAY": 1}
_MICROSECONDS = {
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def parts_of(tree: exp.Interval) -> tuple[int, int, int]:
    """Months, days and microseconds of `INTERVAL n unit`."""
    unit = tree.args.get("unit")
    name = "" if unit is None else unit.name.upper().removesuffix("S")
    amount = tree.this
    negative = isinstance(amount, exp.Neg)
    number = amount.this if negative else amount
    try:
        count = Fraction(number.name) * (-1 if negative else 1)
    except (ValueError, AttributeError, ZeroDivisionError):
        count, name = Fraction(0), ""
    for place, units in enumerate((_MONTHS, _DAYS, _MICROSECONDS)):
        exact = count * units.get(name, 0)
        if name in units and exact.denominator == 1:
            if abs(exact) >= 1 << (63 if units is _MICROSECONDS else 31):
                raise TypeMismatch("the interval is too long", fragment=text_of(tree))
            parts = [0, 0, 0]
            parts[place] = int(exact)
            return parts[0], parts[1], parts[2]
    raise Unsupported(
        "an interval is a whole number of one unit",
        fragment=text_of(tree),
        hint="Write it as INTERVAL 3 DAYS, and add several intervals one after the other",
    )
