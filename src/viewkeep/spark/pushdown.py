"""Filters on key columns as a range of key bytes.

Law: the range holds every row that passes the filters, and maybe more; Spark checks all of them
again. So a filter that cannot be used is no error, it only reads more.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from viewkeep.codec.keys import KEPT, KeyCodec, prefix_end
from viewkeep.errors import ViewkeepError


@dataclass(frozen=True)
class KeyRange:
    """start <= key < stop, where all keys begin with the values of `prefix`."""

    prefix: tuple[object, ...] = ()
    start: bytes = b""
    stop: bytes | None = None


@dataclass
class _Sought:
    """What the filters say of one column."""

    equal: list[object] = field(default_factory=list)
    low: list[object] = field(default_factory=list)
    high: list[object] = field(default_factory=list)


def key_range(codec: KeyCodec, names: tuple[str, ...], filters: Iterable[Filter]) -> KeyRange:
    """The narrowest range that equalities on the first key columns, and bounds on the one after
    them, allow."""
    sought = _collect(filters)
    prefix: list[object] = []
    for name in names:
        equal = sought[name].equal if name in sought else []
        if not equal or equal[0] is None:
            break
        prefix.append(equal[0])
    found = _encode(codec, tuple(prefix))
    while found is None and prefix:
        prefix.pop()
        found = _encode(codec, tuple(prefix))
    start = found or b""
    stop = prefix_end(start) if start else None
    place = len(prefix)
    if place < len(names) and names[place] in sought and not codec.descending[place]:
        column = sought[names[place]]
        lows = [_encode(codec, (*prefix, value)) for value in column.low]
        highs = [_encode(codec, (*prefix, value)) for value in column.high]
        start = max([start, *(low for low in lows if low is not None)])
        ends = [prefix_end(high) for high in highs if high is not None]
        stop = min([end for end in [stop, *ends] if end is not None], default=None)
    return KeyRange(tuple(prefix), start, stop)


def _collect(filters: Iterable[Filter]) -> Mapping[str, _Sought]:
    sought: dict[str, _Sought] = {}
    for item in filters:
        if not isinstance(
            item,
            EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
        ):
            continue
        column = sought.setdefault(item.attribute[0], _Sought())
        value = _plain(item.value)
        if isinstance(item, EqualTo | EqualNullSafe):
            column.equal.append(value)
        elif isinstance(item, GreaterThan | GreaterThanOrEqual):
            column.low.append(value)
        else:
            column.high.append(value)
    return sought


def _plain(value: object) -> object:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def _encode(codec: KeyCodec, values: tuple[object, ...]) -> bytes | None:
    """Key bytes of a prefix; None if it cannot serve as a bound."""
    try:
        encoded = codec.encode_one(values)
    except (ViewkeepError, TypeError, ValueError, ArithmeticError):
        return None
    return encoded if len(encoded) < KEPT else None
