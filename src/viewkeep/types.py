"""Column types and table schemas, and what each type is called in SQL, polars and Arrow.

A type is a value: equal types are interchangeable, and its text is its SQL name (`DECIMAL(10,2)`).
TIMESTAMP is an instant in UTC with microseconds; Python datetimes without a zone are taken as UTC.
DATE and TIMESTAMP hold the years 1 to 9999. ARRAY<T> is a type of results alone: a column of a view
may have it, but no column of a table, and nothing is ordered or told apart by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from viewkeep.deferred import pa, pl

_ARRAY = "ARRAY<"


@dataclass(frozen=True)
class DataType:
    """One of the nine column types, or ARRAY<T> of one of them, without NULLs.

    `precision` and `scale` are set for DECIMAL only.
    """

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.is_decimal else self.name

    @property
    def is_decimal(self) -> bool:
        return self.name == "DECIMAL"

    @property
    def is_integer(self) -> bool:
        return self.name in ("INT", "BIGINT")

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_decimal or self.name == "DOUBLE"

    @property
    def is_array(self) -> bool:
        return self.name.startswith(_ARRAY)

    @property
    def element(self) -> DataType:
        """Of an ARRAY, the type of its elements."""
        return DataType.parse(self.name[len(_ARRAY) : -1])

    @property
    def is_variable(self) -> bool:
        """Whether values have no fixed width in bytes."""
        return self.name in ("STRING", "BINARY") or self.is_array

    @property
    def polars(self) -> pl.DataType:
        if self.is_array:
            return pl.List(self.element.polars)
        return pl.Decimal(self.precision, self.scale) if self.is_decimal else _polars()[self.name]

    @property
    def arrow(self) -> pa.DataType:
        if self.is_array:
            return pa.large_list(self.element.arrow)
        if self.is_decimal:
            return pa.decimal128(self.precision, self.scale)
        return _arrow()[self.name]

    @staticmethod
    def parse(text: str) -> DataType:
        """The type whose text is `text`; the inverse of `str`."""
        match = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", text)
        if match:
            return decimal(int(match[1]), int(match[2]))
        if text.startswith(_ARRAY) and text.endswith(">"):
            return array(DataType.parse(text[len(_ARRAY) : -1]))
        if text not in _NAMES:
            raise ValueError(f"no such type: {text}")
        return DataType(text)


BOOLEAN = DataType("BOOLEAN")
INT = DataType("INT")
BIGINT = DataType("BIGINT")
DOUBLE = DataType("DOUBLE")
STRING = DataType("STRING")
BINARY = DataType("BINARY")
DATE = DataType("DATE")
TIMESTAMP = DataType("TIMESTAMP")

_NAMES = {type.name for type in (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP)}


@cache
def _polars() -> dict[str, pl.DataType]:
    """What polars calls the types; made at first use, as reading a row by its key needs none."""
    return {
        "BOOLEAN": pl.Boolean(),
        "INT": pl.Int32(),
        "BIGINT": pl.Int64(),
        "DOUBLE": pl.Float64(),
        "STRING": pl.String(),
        "BINARY": pl.Binary(),
        "DATE": pl.Date(),
        "TIMESTAMP": pl.Datetime("us"),
    }


@cache
def _arrow() -> dict[str, pa.DataType]:
    return {
        "BOOLEAN": pa.bool_(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "STRING": pa.large_string(),
        "BINARY": pa.large_binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us"),
    }


def decimal(precision: int, scale: int) -> DataType:
    """DECIMAL(precision, scale), with 1 <= precision <= 38 and 0 <= scale <= precision."""
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise ValueError(f"DECIMAL({precision},{scale}): needs 1 <= p <= 38 and 0 <= s <= p")
    return DataType("DECIMAL", precision, scale)


def array(element: DataType) -> DataType:
    """ARRAY<element>."""
    if element.is_array:
        raise ValueError("there are no arrays of arrays")
    return DataType(f"{_ARRAY}{element}>")


@dataclass(frozen=True)
class Column:
    """A named, typed column."""

    name: str
    type: DataType
    nullable: bool = True


@dataclass(frozen=True)
class Schema:
    """The columns of a table in order, and the names of its key columns in key order."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate column in {names}")
        if missing := set(self.key) - set(names):
            raise ValueError(f"key columns {sorted(missing)} are not columns")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.index(name)]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def spelt(self, name: str) -> str:
        """A name as columns have theirs: its case does not matter."""
        return name if name in self.names else str(name).lower()

    def index(self, name: str) -> int:
        return self.names.index(name)

    def types(self, names: Iterable[str]) -> tuple[DataType, ...]:
        return tuple(self[name].type for name in names)

    @property
    def polars(self) -> dict[str, pl.DataType]:
        return {column.name: column.type.polars for column in self.columns}

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(column.name, column.type.arrow) for column in self.columns])
