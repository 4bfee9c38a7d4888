"""Text read as numbers, truth values and times, one at a time: what row forms of casts call.

Law: each gives, as a physical value, what the kernel of the same name in `texts` gives; None where
text does not show a value of the type.
"""

from __future__ import annotations

import re
from datetime import date

from viewkeep.ops.functions import texts

_FIRST_DAY = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
_INTEGER = re.compile(r"([+-]?[0-9]+)(?:\.[0-9]*)?")
_FRACTION = re.compile(r"[+-]?\.[0-9]*")
_DOUBLE, _HEX, _DATE, _TIME, _OFFSET = (
    re.compile(pattern.replace("$", r"\Z"))  # where Rust's $ stands: at the very end
    for pattern in (texts.DOUBLE_TEXT, texts.HEX, texts.DATE, texts.TIME, texts.OFFSET)
)


def read_integer(text: bytes, bits: int) -> int | None:
    """An integer of so many bits; a fraction is cut off."""
    shown = text.decode().strip(texts.BLANKS)
    found = _INTEGER.fullmatch(shown)
    if found is None:
        return 0 if _FRACTION.fullmatch(shown) else None
    digits = found[1]
    value = int(digits) if len(digits) < 60 else _long(digits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _long(digits: str) -> int:
    """An integer of many digits, which Python would refuse past some thousands."""
    sign, figures = (-1 if digits[0] == "-" else 1), digits.lstrip("+-").lstrip("0")
    return sign * (int(figures or "0") if len(figures) < 60 else 1 << 200)


def read_double(text: bytes) -> float | None:
    """A DOUBLE, with Infinity and NaN in any case, and hexadecimal ones."""
    shown = text.decode().strip(texts.SPACES)
    if _DOUBLE.fullmatch(shown):
        return float(shown.rstrip("dDfF"))
    special = texts.SPECIAL.get(shown.lower())
    if special is None and shown in ("+NaN", "-NaN"):
        special = "NaN"
    if special is not None:
        return float(special)
    return texts.of_hex(shown) if _HEX.fullmatch(shown) else None


def read_decimal(value: bytes | float, precision: int, scale: int) -> int | None:
    """A DECIMAL of text or of a DOUBLE, HALF_UP."""
    given = value.decode() if isinstance(value, bytes) else value
    number = texts.decimal_of(given, precision, scale)
    return None if number is None else int(number.scaleb(scale, texts.EXACT))


def read_boolean(text: bytes) -> bool | None:
    """t, true, y, yes, 1 and f, false, n, no, 0 in any case."""
    shown = text.decode().strip(texts.BLANKS).lower()
    return True if shown in texts.YES else False if shown in texts.NO else None


def read_date(text: bytes) -> int | None:
    """yyyy, yyyy-m, yyyy-m-d, the last followed by anything after a space or a T."""
    found = _DATE.fullmatch(text.decode().strip(texts.BLANKS))
    return None if found is None else _days(found[1], found[2], found[3])


def read_timestamp(text: bytes) -> int | None:
    """A date, or a date and a time of day with up to 6 places, with Z or an offset or neither."""
    found = _TIME.fullmatch(text.decode().strip(texts.BLANKS))
    if found is None:
        return None
    days = _days(found[1], found[2], found[3])
    hour, minute, second = (int(part or 0) for part in found.group(4, 5, 6))
    offset = _seconds_off(found[8])
    if days is None or offset is None or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = hour * 3600 + minute * 60 + second - offset
    return days * _DAY + seconds * 1_000_000 + int((found[7] or "")[:6].ljust(6, "0"))


def _days(year: str, month: str | None, day: str | None) -> int | None:
    try:
        return date(int(year), int(month or 1), int(day or 1)).toordinal() - _FIRST_DAY
    except ValueError:
        return None


def _seconds_off(zone: str | None) -> int | None:
    """The offset of a zone in seconds; None if there is no such one."""
    found = _OFFSET.search(zone) if zone else None
    if found is None:
        return 0
    sign, *parts = found.group(1, 2, 3, 4, 5, 6, 7, 8, 9)
    short, hours, minutes, seconds, colon_hours, colon_minutes, both_minutes, both_seconds = (
        int(part or 0) for part in parts
    )
    minute, second = minutes + colon_minutes + both_minutes, seconds + both_seconds
    total = (short + hours + colon_hours) * 3600 + minute * 60 + second
    if total > 18 * 3600 or minute > 59 or second > 59:
        return None
    return -total if sign == "-" else total
