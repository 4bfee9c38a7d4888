"""Measures of many rows: count, sum, min and max, computed column by column as chunks are read.

Law: the measures of chunks, added up, are those of all rows at once: NULLs do not count; sums of
integers and decimals are exact, however large; NaN is the greatest DOUBLE. Without rows a count is
0 and the others are NULL (None).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from viewkeep.deferred import np, pl
from viewkeep.errors import InvalidRow, TypeMismatch, UnknownName
from viewkeep.types import DataType, Schema

_SHAPE = re.compile(r"\s*(count|sum|min|max)\s*\(\s*(.+?)\s*\)\s*", re.IGNORECASE | re.DOTALL)
_EXACT = Context(prec=100)
_SAFE_DIGITS = 30  # decimals of up to so many digits do not overflow in a sum of one chunk


@dataclass(frozen=True)
class Measure:
    """One measure: its function, and the column it is of; None for count(*)."""

    text: str
    function: str
    column: str | None
    type: DataType | None


def measures_of(
    wanted: Sequence[str], schema: Schema, shown: Sequence[str], what: str
) -> tuple[Measure, ...]:
    """The measures that texts like `count(*)` and `sum(votes)` ask for."""
    if not wanted:
        raise InvalidRow("no measure is asked for; give some, like count(*) or sum(votes)")
    return tuple(_measure(text, schema, shown, what) for text in wanted)


def _measure(text: str, schema: Schema, shown: Sequence[str], what: str) -> Measure:
    found = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRow(
            f"{text!r} is no measure; there are count(*), count(c), sum(c), min(c) and max(c)"
        )
    function, column = found[1].lower(), schema.spelt(found[2])
    if column == "*":
        if function != "count":
            raise InvalidRow(f"{text!r} needs a column; only count takes *")
        return Measure(text, function, None, None)
    if column not in shown:
        raise UnknownName(f"{what} has no column {column}", hint=f"It has: {', '.join(shown)}")
    type = schema[column].type
    summed = type.is_decimal or type.name in ("INT", "BIGINT", "DOUBLE")
    if (function == "sum" and not summed) or (function != "count" and type.is_array):
        raise TypeMismatch(f"{function} is not defined for {column}, which is {type}")
    return Measure(text, function, column, type)


@dataclass
class Measured:
    """Measures while rows come in."""

    measures: tuple[Measure, ...]
    rows: int = 0
    _counts: dict[str, int] = field(default_factory=dict)
    _sums: dict[str, list[Any]] = field(default_factory=dict)
    _best: dict[tuple[str, str], Any] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns that must be read."""
        return list(dict.fromkeys(m.column for m in self.measures if m.column is not None))

    def add(self, rows: int, frame: pl.DataFrame | None) -> None:
        """Take in some rows; `frame` has their `columns`, and may be None if there are none."""
        self.rows += rows
        if frame is None:
            return
        for column in self.columns:
            given = frame.get_column(column)
            self._counts[column] = self._counts.get(column, 0) + len(given) - given.null_count()
        for measure in self.measures:
            if measure.column is None or measure.type is None or measure.function == "count":
                continue
            series = frame.get_column(measure.column).drop_nulls()
            if not len(series):
                continue
            if measure.function == "sum":
                self._sums.setdefault(measure.column, []).append(_sum(series, measure.type))
            else:
                place = (measure.function, measure.column)
                best = _extreme(series, measure.function)
                self._best[place] = (
                    _better(self._best[place], best, measure.function)
                    if place in self._best
                    else best
                )

    def results(self) -> dict[str, Any]:
        """The value of each measure, under the text that asked for it."""
        return {measure.text: self._result(measure) for measure in self.measures}

    def _result(self, measure: Measure) -> Any:
        column = measure.column
        if column is None:
            return self.rows
        if measure.function == "count":
            return self._counts.get(column, 0)
        if measure.function != "sum":
            return self._best.get((measure.function, column))
        parts = self._sums.get(column)
        if not parts:
            return None
        if isinstance(parts[0], float):
            return _float_sum(parts)
        if isinstance(parts[0], Decimal):
            return _decimal_sum(parts)
        return sum(parts)


def _sum(series: pl.Series, type: DataType) -> int | float | Decimal:
    if type.is_decimal:
        if type.precision <= _SAFE_DIGITS:
            return Decimal(series.sum())
        return _decimal_sum(series.to_list())  # in Python: a sum of two may need a 39th digit
    if type.name == "DOUBLE":
        return float(series.sum())
    values = series.to_numpy().astype(np.int64)
    # In two halves, so that no chunk overflows.
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _decimal_sum(values: Sequence[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value)
    return total


def _float_sum(parts: Sequence[float]) -> float:
    if all(map(math.isfinite, parts)):
        return math.fsum(parts)
    return float(sum(parts))


def _extreme(series: pl.Series, function: str) -> Any:
    if series.dtype == pl.Float64:
        numbers = series.drop_nans()
        if not len(numbers) or (function == "max" and len(numbers) < len(series)):
            return math.nan
        series = numbers
    return series.max() if function == "max" else series.min()


def _better(a: Any, b: Any, function: str) -> Any:
    """The greater or smaller of two values; NaN is the greatest."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, float) and math.isnan(one):
            return one if function == "max" else other
    return max(a, b) if function == "max" else min(a, b)
