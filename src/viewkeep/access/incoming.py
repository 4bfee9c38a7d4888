"""Values from outside, brought into the types of a schema or refused by column and row.

Law: a conversion never loses anything. An integer column takes 3 and 3.0 but not 3.5; what does not
fit is an InvalidRow that names the column and the row, never a NULL or a rounded value.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any, cast

from viewkeep.codec.scalars import in_decimal, to_physical, to_python
from viewkeep.deferred import pa, pl
from viewkeep.errors import InvalidRow
from viewkeep.types import BIGINT, STRING, Column, DataType, Schema

_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # which BIGINT surely holds

TOO_FINE = re.compile(r"[.,]\d{6}\d*[1-9]")  # a time of more than microseconds
TRUE_WORDS, FALSE_WORDS = ("true", "t", "yes", "1"), ("false", "f", "no", "0")


def is_frame(rows: object) -> bool:
    """Whether `rows` is an Arrow table or batch, or a polars or pandas frame."""
    if isinstance(rows, (pa.Table, pa.RecordBatch, pl.DataFrame, pl.LazyFrame)):
        return True
    # By name, so that pandas is imported only where the caller has done so.
    return type(rows).__module__.startswith("pandas.") and type(rows).__name__ == "DataFrame"


def as_polars(rows: object) -> pl.DataFrame:
    """Any of the frames that `is_frame` knows, as a polars frame."""
    if isinstance(rows, pl.DataFrame):
        return rows
    if isinstance(rows, pl.LazyFrame):
        return rows.collect()
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return cast(pl.DataFrame, pl.from_arrow(rows))
    return pl.from_pandas(cast(Any, rows))


def conform(
    schema: Schema, frame: pl.DataFrame, *, table: str, first_row: int = 1, text: bool = False
) -> pl.DataFrame:
    """The frame with its columns in the types of `schema`; columns may be missing, not unknown.

    `first_row` is the number of the first row in messages. With `text`, strings are parsed, as
    those of a CSV file are.
    """
    check_columns(schema, frame.columns, table)
    own = [schema.spelt(name) for name in frame.columns]
    if len(set(own)) < len(own):
        raise InvalidRow(f"{table}: a column is there twice: {', '.join(frame.columns)}")
    frame = frame.rename(dict(zip(frame.columns, own, strict=True)))
    for name in schema.key:
        if name not in frame.columns:
            raise InvalidRow(f"{table}: key column {name} is missing")
    columns = [
        _convert(frame.get_column(column.name), column, table, first_row, text)
        for column in schema.columns
        if column.name in frame.columns
    ]
    return pl.DataFrame(columns)


def check_columns(schema: Schema, names: Sequence[str], table: str) -> None:
    """Refuse columns that the schema does not have, whatever the case of their names."""
    if unknown := [name for name in names if schema.spelt(name) not in schema]:
        raise InvalidRow(
            f"{table} has no column {unknown[0]}; its columns are {', '.join(schema.names)}"
        )


def parse_value(value: str, type: DataType, what: str) -> Any:
    """The value that a text stands for: a key on the command line, a field of a CSV file."""
    if type == STRING:
        return value
    if type == BIGINT and _PLAIN_NUMBER.fullmatch(value):
        return int(value)
    converted, bad = _cast(pl.Series([value]), type, text=True)
    if bad is not None and bad.any():
        raise InvalidRow(f"{what}: {value!r} is not a {type}")
    return converted[0]


def _convert(
    series: pl.Series, column: Column, table: str, first_row: int, text: bool
) -> pl.Series:
    converted, bad = _cast(series, column.type, text)
    if bad is None:
        raise InvalidRow(
            f"{table}: column {column.name} is {column.type} and takes no {series.dtype} values"
        )
    if bad.any():
        at = cast(int, bad.arg_max())
        raise InvalidRow(
            f"{table}, row {first_row + at}: column {column.name}: {_shown(series, at)} "
            f"is not {_advice(series, at, column)}"
        )
    return converted.alias(column.name)


def _advice(series: pl.Series, at: int, column: Column) -> str:
    """What a refused value is not, and for a float that is not exact what to do about it."""
    type = column.type
    value = series[at] if series.dtype.is_float() else None
    if value is None or not type.is_decimal or abs(value) >= 10 ** (type.precision - type.scale):
        return f"a {type}"
    return (
        f"exactly a {type}; give {in_decimal(value, type)}, or cast the column: "
        f'frame.with_columns(pl.col("{column.name}").round({type.scale})'
        f".cast(pl.Decimal({type.precision}, {type.scale})))"
    )


def _shown(series: pl.Series, at: int) -> str:
    """A value for a message; polars writes dates that Python has not."""
    if series.dtype.is_temporal():
        return str(series.slice(at, 1).cast(pl.String)[0])
    return repr(series[at])


def _cast(series: pl.Series, type: DataType, text: bool) -> tuple[pl.Series, pl.Series | None]:
    """The converted series and where it failed; None instead if the types do not go together."""
    source, target = series.dtype, type.polars
    if source == target or source == pl.Null:
        converted = series.cast(target)
        return converted, _beyond_calendar(converted)
    if text and source == pl.String and type.name != "STRING":
        converted = _parse(series, type)
        return converted, converted.is_null() & series.is_not_null()
    if not _compatible(source, type):
        return series, None
    if isinstance(source, pl.Datetime) and source.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if source.is_float() and type.is_decimal:
        converted = _exact_decimals(series, type)
    else:
        converted = series.cast(target, strict=False)
    bad = converted.is_null() & series.is_not_null()
    if source.is_float() and type.is_integer:
        bad |= (converted.cast(source) != series).fill_null(False)
    if source.is_integer() and type.name == "DOUBLE":
        # Back in the integers it is the same, or nothing if it left their range.
        bad |= converted.cast(source, strict=False).ne_missing(series)
    if isinstance(source, pl.Decimal) and (type.is_decimal or type.is_integer):
        bad |= (converted.cast(pl.Decimal(38, source.scale)) != series).fill_null(False)
    if isinstance(source, pl.Datetime) and type.name in ("DATE", "TIMESTAMP"):
        bad |= (converted.cast(series.dtype) != series).fill_null(False)
        bad |= _beyond_calendar(converted)
    return converted, bad


def _exact_decimals(series: pl.Series, type: DataType) -> pl.Series:
    """Floats that are exactly decimals of this type; NULL where one is not, such as 0.1.

    Which decimal such a float stands for is the caller's to say.
    """
    physical, python = to_physical(type), to_python(type)
    assert python is not None

    def exact(value: float | None) -> object:
        if value is None:
            return None
        try:
            return python(physical(value))
        except ValueError:
            return None

    return pl.Series([exact(value) for value in series.to_list()], dtype=type.polars)


def _beyond_calendar(series: pl.Series) -> pl.Series:
    """Where a date or timestamp is outside the years 1 to 9999, those of SQL and Python."""
    if series.dtype not in (pl.Date, pl.Datetime("us")):
        return pl.Series([False])
    day = series.cast(pl.Date)
    return ((day < dt.date.min) | (day > dt.date.max)).fill_null(False)


def _compatible(source: pl.DataType, type: DataType) -> bool:
    if type.is_integer:
        return source.is_integer() or source.is_float() or source.is_decimal()
    if type.name == "DOUBLE":
        return source.is_numeric()
    if type.is_decimal:
        return source.is_integer() or source.is_decimal() or source.is_float()
    if type.name == "STRING":
        return isinstance(source, (pl.Categorical, pl.Enum))
    return type.name in ("DATE", "TIMESTAMP") and isinstance(source, pl.Datetime)


def _parse(series: pl.Series, type: DataType) -> pl.Series:
    """Text to values; NULL where it does not parse."""
    series = series.str.strip_chars()
    if type.name == "BOOLEAN":
        lower = series.str.to_lowercase()
        known = lower.is_in([*TRUE_WORDS, *FALSE_WORDS]).fill_null(False)
        values = lower.is_in(list(TRUE_WORDS))
        return pl.select(pl.when(known).then(values)).to_series()
    if type.name == "BINARY":
        return series.str.decode("hex", strict=False)
    if type.name == "DATE":
        return series.str.to_date("%Y-%m-%d", strict=False)
    if type.name == "TIMESTAMP":
        # ISO 8601 has many spellings and polars takes one a column; Python's parser takes them all.
        return pl.Series([_instant(item) for item in series], dtype=pl.Datetime("us"))
    converted = series.cast(type.polars, strict=False)
    if type.name == "DOUBLE":
        # An integer is meant to the last digit; other numbers are the nearest DOUBLE.
        whole = series.cast(pl.Int64, strict=False)
        same = (converted.cast(pl.Int64, strict=False).eq_missing(whole)) | whole.is_null()
        return pl.select(pl.when(same).then(converted)).to_series()
    if type.is_decimal:
        # Digits beyond the scale would be rounded; compare with the text read at full width.
        wide = series.cast(pl.Decimal(38, min(38, type.scale + 6)), strict=False)
        same = (converted.cast(wide.dtype, strict=False) == wide).fill_null(False)
        return pl.select(pl.when(same).then(converted)).to_series()
    return converted


def _instant(text: str | None) -> dt.datetime | None:
    if text is None or TOO_FINE.search(text):
        return None
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
