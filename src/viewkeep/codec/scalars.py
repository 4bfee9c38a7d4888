"""One Python value to and from the physical value of its column type.

Law: for every value a column can hold, `to_python(type)(to_physical(type)(value))` equals it, with
NaN and -0.0 canonical, DECIMAL at the scale of its type and TIMESTAMP as a naive UTC datetime.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from viewkeep.codec.arrays import pack_array, unpack_array
from viewkeep.types import DataType

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
# Wide enough for 38 digits at any scale; the default context would round at 28.
_EXACT = Context(prec=80)
_NAN = float("nan")


def to_physical(type: DataType) -> Callable[[Any], Any]:
    """The function from a Python value to an int, float or bytes; ValueError says what is wrong."""
    if type.is_decimal:
        return lambda value: _unscaled(value, type)
    if type.is_array:
        element = type.element
        physical = to_physical(element)
        return lambda values: pack_array(_listed(values), element, physical)
    return _TO_PHYSICAL[type.name]


def to_python(type: DataType) -> Callable[[Any], Any] | None:
    """The function back, or None where the physical value is the Python value already."""
    if type.is_decimal:
        exponent = -type.scale
        return lambda unscaled: _EXACT.scaleb(Decimal(unscaled), exponent)
    if type.is_array:
        element = type.element
        python = to_python(element)
        return lambda data: unpack_array(data, element, python)
    return _TO_PYTHON.get(type.name)


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _wrong(value, "a list")
    return value


def _unscaled(value: object, type: DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, (Decimal, int, float)):
        raise _wrong(value, "a Decimal, an int, or a float that is exact")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value} is not finite")
    # Compare magnitudes first: expanding 1E+999999 would not end.
    if number and number.adjusted() >= type.precision - type.scale:
        raise ValueError(f"{value} does not fit {type}")
    try:
        scaled = _EXACT.scaleb(number, type.scale)
    except InvalidOperation as error:
        raise ValueError(f"{value} does not fit {type}") from error
    if scaled != scaled.to_integral_value(context=_EXACT):
        if isinstance(value, float):
            raise ValueError(
                f"the float {value} is not exactly a {type}; give {in_decimal(value, type)}"
            )
        raise ValueError(f"{value} has more decimal places than {type}")
    return int(scaled)


def in_decimal(value: float, type: DataType) -> str:
    """How to write the decimal that a float is meant to be."""
    return f"Decimal('{value:.{type.scale}f}')"


def _boolean(value: object) -> int:
    if value is True or value is False:
        return 1 if value else 0
    if type(value).__module__ == "numpy" and type(value).__name__ == "bool":
        return 1 if value else 0
    raise _wrong(value, "a bool")


def _integer(bits: int) -> Callable[[object], int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def check(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool):
                raise _wrong(value, "an int")
            try:
                value = operator.index(value)
            except TypeError:
                raise _wrong(value, "an int") from None
        if not low <= value <= high:
            raise ValueError(f"{value} does not fit {bits} bits")
        return int(value)

    return check


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (float, int)):
        raise _wrong(value, "a float")
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"{value} does not fit a DOUBLE") from error
    if isinstance(value, int) and number != value:
        raise ValueError(
            f"{value} is no DOUBLE; the nearest is {number:.0f}: give it as a float if that will do"
        )
    return number + 0.0 if number == number else _NAN


def _string(value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong(value, "a str")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{value!r} is not valid Unicode") from error


def _binary(value: object) -> bytes:
    if type(value) is bytes:
        return value
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong(value, "bytes")
    return bytes(value)


def _date(value: object) -> int:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _wrong(value, "a date")
    return value.toordinal() - _EPOCH_DAY


def _timestamp(value: object) -> int:
    if not isinstance(value, datetime):
        raise _wrong(value, "a datetime")
    if getattr(value, "nanosecond", 0):  # of pandas
        raise ValueError(f"{value} is finer than microseconds; round it first")
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MICROSECOND


def _wrong(value: object, needed: str) -> ValueError:
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return ValueError(f"needs {needed}, not {shown} ({type(value).__name__})")


_TO_PHYSICAL: dict[str, Callable[[Any], Any]] = {
    "BOOLEAN": _boolean,
    "INT": _integer(32),
    "BIGINT": _integer(64),
    "DOUBLE": _double,
    "STRING": _string,
    "BINARY": _binary,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}
_TO_PYTHON: dict[str, Callable[[Any], Any]] = {
    "BOOLEAN": bool,
    "STRING": lambda data: data.decode(),
    "DATE": lambda days: date.fromordinal(days + _EPOCH_DAY),
    "TIMESTAMP": lambda micros: _EPOCH + timedelta(0, 0, micros),
}
