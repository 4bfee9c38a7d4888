"""Rows as frames and frames as rows: where a step of an epoch changes lanes.

Law: going there and back changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.deferred import pl
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine.rows.delta import Row
from viewkeep.types import Column, DataType


def frame_of(rows: Sequence[Row], columns: Sequence[Column]) -> pl.DataFrame:
    """Rows whose values are of these columns, with their keys and weights."""
    made = columns_of([values for _, values, _ in rows], columns)
    keys = pl.Series(KEY, [key for key, _, _ in rows], pl.Binary)
    return pl.DataFrame([*made, keys, pl.Series(WEIGHT, [w for *_, w in rows], pl.Int64)])


def rows_of(frame: pl.DataFrame, columns: Sequence[Column]) -> list[Row]:
    """The rows of a frame with keys and weights; columns that it lacks are NULL."""
    keys = frame[KEY].to_list() if KEY in frame.columns else [b""] * frame.height
    return list(zip(keys, tuples_of(frame, columns), frame[WEIGHT].to_list(), strict=True))


def columns_of(values: Sequence[Sequence[Any]], columns: Sequence[Column]) -> list[pl.Series]:
    """Physical values, row by row, as polars columns."""
    made = []
    for place, column in enumerate(columns):
        back = to_python(column.type)
        cells = (row[place] for row in values)
        if back is not None:
            cells = (None if cell is None else back(cell) for cell in cells)
        made.append(pl.Series(column.name, list(cells), column.type.polars))
    return made


def tuples_of(frame: pl.DataFrame, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """The rows of a frame as physical values."""
    cells = [
        _physical(frame[column.name].to_list(), column.type)
        if column.name in frame.columns
        else [None] * frame.height
        for column in columns
    ]
    return list(zip(*cells, strict=True)) if cells else [()] * frame.height


def _physical(values: Iterable[Any], type_: DataType) -> list[Any]:
    physical = to_physical(type_)
    return [None if value is None else physical(value) for value in values]
