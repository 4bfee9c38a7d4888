"""INSERT of many rows of constants, read without making a syntax tree of each value.

Law: the values are those that analysis makes of the same text. A text that is not plainly a head
and rows of plain constants, or that has a value which its column does not take as it stands, is
given up: then analysis reads it, or says what is wrong.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from viewkeep.types import Column, DataType

SHORTEST = 16_384  # characters: shorter texts are parsed, and remembered by their templates
_HEAD = re.compile(r"\s*+INSERT\b[\w\s,()`]{1,9999}?\bVALUES\s*+(?=\()", re.IGNORECASE | re.ASCII)
# A value with what stands around it: where a row begins, and how it goes on after the value.
# Nothing is tried twice: what was taken is not given back. A match lets no other thread run, so it
# takes bounded steps, but for runs of one kind of character, which are fast.
_VALUE = re.compile(
    r"\s*+(\(\s*+)?+"
    r"(?:(-?\d++)(?![.eE])|(-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+)"
    r"|(?:(DATE|TIMESTAMP)\s*+)?+'([^'\\]*+(?:''[^'\\]*+){0,65536}+)'|(NULL|TRUE|FALSE))"
    r"\s*+(?:(,)|\)\s*+(?:,|(;?+\s*+\Z)))",
    re.IGNORECASE | re.ASCII,
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?", re.ASCII)
_DIGITS = 18  # which a BIGINT always has room for
_LONGEST_FLOAT = 400
_WORDS = {"NULL": None, "TRUE": True, "FALSE": False}


class PlainRows(NamedTuple):
    """An INSERT with its first row alone, as text, and the values of all rows."""

    head: str
    rows: list[list[Any]]


class _Given(Exception):
    """The text is for analysis."""


def split_rows(text: str, most: int | None = None) -> PlainRows | None:
    """The rows of an INSERT, at most one more than `most`; None if the text is for analysis.

    A value is None, a bool, a str, an int, a Decimal or float for a number with a point or an e,
    or a date or datetime for a DATE '...' or TIMESTAMP '...'.
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    rows: list[list[Any]] = []
    row: list[Any] = []
    at, begins, first = head.end(), True, 0
    match = _VALUE.match
    while (found := match(text, at)) is not None:
        opened, whole, number, kind, string, word, comma, last = found.groups()
        if (opened is not None) != begins:
            return None
        at = found.end()
        if whole is not None:
            if len(whole) > _DIGITS:
                return None
            row.append(int(whole))
        elif kind is not None:
            moment = _moment(kind, string)
            if moment is None:
                return None
            row.append(moment)
        elif string is not None:
            row.append(string.replace("''", "'") if "'" in string else string)
        elif word is not None:
            row.append(_WORDS[word.upper()])
        elif "e" in number or "E" in number:
            if len(number) > _LONGEST_FLOAT:
                return None
            row.append(float(number))
        elif len(number) > _DIGITS:
            return None
        else:
            row.append(Decimal(number))
        begins = comma is None
        if begins:
            rows.append(row)
            row = []
            first = first or at
            if last is not None or len(rows) - 1 == most:
                one = text[: first if len(rows) > 1 else at].rstrip(" \t\r\n;,")
                return PlainRows(one, rows)
    return None


def _moment(kind: str, text: str) -> dt.date | None:
    """What DATE '...' or TIMESTAMP '...' stands for; None if analysis has to say."""
    try:
        return _date(text) if kind.upper() == "DATE" else _timestamp(text)  # type: ignore[no-any-return]
    except (_Given, ValueError):
        return None


def stored_rows(
    rows: Sequence[list[Any]], columns: Sequence[Column]
) -> tuple[tuple[Any, ...], ...] | None:
    """The rows as the columns store them; None if analysis has to look at one of them."""
    if set(map(len, rows)) != {len(columns)}:
        return None
    try:
        stored = [
            list(map(_taker(column.type), values))
            for column, values in zip(columns, zip(*rows, strict=True), strict=True)
        ]
    except (_Given, ValueError):
        return None
    return tuple(zip(*stored, strict=True))


def _taker(type_: DataType) -> Callable[[Any], Any]:
    """How a column takes a value as it stands."""
    if type_.is_decimal:
        return lambda value: _decimal(value, type_)
    take = _TAKERS.get(type_.name)
    if take is None:
        raise _Given
    return take


def _only(kind: type) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        raise _Given

    return take


def _int(value: Any) -> Any:
    if value is None or (type(value) is int and -(2**31) <= value < 2**31):
        return value
    raise _Given


def _double(value: Any) -> Any:
    kind = type(value)
    if value is None:
        return None
    if kind is Decimal or kind is float or (kind is int and float(value) == value):
        number = float(value) + 0.0
        if number - number == 0:
            return number
    raise _Given


def _decimal(value: Any, type_: DataType) -> Any:
    if value is None:
        return None
    number = Decimal(value) if type(value) is int else value
    if type(number) is not Decimal or -int(number.as_tuple().exponent) > type_.scale:
        raise _Given
    if number and number.adjusted() >= type_.precision - type_.scale:
        raise _Given
    return number


def _date(value: Any) -> Any:
    if value is None or type(value) is dt.date:
        return value
    if type(value) is str and _DAY.fullmatch(value):
        return dt.date.fromisoformat(value)
    raise _Given


def _timestamp(value: Any) -> Any:
    if value is None or type(value) is dt.datetime:
        return value
    if type(value) is str and _INSTANT.fullmatch(value):
        return dt.datetime.fromisoformat(value)
    raise _Given


_TAKERS: dict[str, Callable[[Any], Any]] = {
    "BOOLEAN": _only(bool),
    "INT": _int,
    "BIGINT": _only(int),
    "DOUBLE": _double,
    "STRING": _only(str),
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}
