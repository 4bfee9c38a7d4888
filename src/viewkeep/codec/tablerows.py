"""Rows of base tables, whose columns may change: each row is read as the version it was written in.

Law: no row is ever rewritten because its table's columns change. A column has a number that no
other column of its table ever has; a *layout* says which of them, in which types, the rows of one
version hold. A row of an older layout reads as a row of these columns: a column that it lacks has
the value that was said when the column was added, one that became wider is widened, and others are
passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from viewkeep.codec.packed import Packed
from viewkeep.codec.rows import RowCodec
from viewkeep.codec.rowsource import Generated, unknown_version
from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.deferred import np, pl
from viewkeep.errors import Conflict, Corrupt
from viewkeep.types import Column, DataType

_VERSION_BYTES = 2


@dataclass(frozen=True)
class StoredColumn:
    """A column of a layout: its number within the table, and its type then."""

    number: int
    type: DataType


@dataclass(frozen=True)
class RowLayout:
    """What rows of one version hold, in order."""

    version: int
    columns: tuple[StoredColumn, ...]


@dataclass(frozen=True)
class TableHistory:
    """The layouts of a table, the newest last, and what values come from nowhere else.

    `columns` has the number of each column that the table has, by its name. `missing` are the
    values of columns, by number, in rows that are older than they; `defaults` those of new rows
    that are written without them.
    """

    columns: tuple[tuple[str, int], ...]
    layouts: tuple[RowLayout, ...]
    missing: tuple[tuple[int, Any], ...] = ()
    defaults: tuple[tuple[int, Any], ...] = ()

    @staticmethod
    def first(columns: Sequence[Column]) -> TableHistory:
        """That of a table as it was created."""
        numbered = tuple((column.name, number) for number, column in enumerate(columns))
        stored = tuple(StoredColumn(number, c.type) for number, c in enumerate(columns))
        return TableHistory(numbered, (RowLayout(1, stored),))

    @property
    def version(self) -> int:
        """The version that rows are written in now."""
        return self.layouts[-1].version

    @property
    def next_number(self) -> int:
        """A number that no column has ever had."""
        return 1 + max(c.number for layout in self.layouts for c in layout.columns)

    @cached_property
    def by_version(self) -> Mapping[int, RowLayout]:
        return {layout.version: layout for layout in self.layouts}


Newer: TypeAlias = Callable[[], TableHistory | None]


class TableRowCodec(RowCodec):
    """Rows of a table, of any version, as rows of these columns.

    `numbers` are those of the columns. Rows are written in the newest version if these are its
    columns. `newer` gives what the table's history has become, for readers that do not follow the
    catalog as they read; without it, a row of an unknown version is damaged.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        numbers: Sequence[int],
        history: TableHistory,
        newer: Newer | None = None,
    ):
        stored = tuple(
            StoredColumn(number, column.type)
            for number, column in zip(numbers, columns, strict=True)
        )
        self._is_newest = stored == history.layouts[-1].columns
        # No row has version 0: who reads other columns than those of a version never writes.
        super().__init__(columns, history.version if self._is_newest else 0)
        self.numbers, self.history, self._newer = tuple(numbers), history, newer
        self._layouts: dict[int, _Layout] = {}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TableRowCodec)
            and super().__eq__(other)
            and (self.numbers, self.history) == (other.numbers, other.history)
        )

    def __hash__(self) -> int:
        return super().__hash__()

    def __reduce__(self) -> tuple[object, ...]:
        return (TableRowCodec, (self.columns, self.numbers, self.history))

    @cached_property
    def blank(self) -> bytes:
        defaults = dict(self.history.defaults)
        return self.encode_one([defaults.get(number) for number in self.numbers])

    def decode(
        self, rows: Packed | Sequence[bytes], names: Sequence[str] | None = None
    ) -> pl.DataFrame:
        if self._is_newest:
            try:
                return super().decode(rows, names)
            except Corrupt:  # or of another version
                if set(_versions(rows).tolist()) <= {self.version}:
                    raise
        wanted = list(self.names if names is None else names)
        versions = _versions(rows)
        parts, places = list[pl.DataFrame](), list[Any]()
        for version in np.unique(versions).tolist():
            chosen = np.flatnonzero(versions == version)
            parts.append(self._layout(version).decode(_chosen(rows, chosen), wanted))
            places.append(chosen)
        if not parts:
            return pl.DataFrame(schema={name: self._type(name).polars for name in wanted})
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(places))
        return pl.concat(parts)[order]

    def merge(
        self, old: Sequence[bytes], new: Sequence[bytes], columns: tuple[int, ...]
    ) -> list[bytes]:
        if any(_version(row) > self.version for row in old):
            raise Conflict("the table's columns were changed just now; write again")
        return super().merge(old, new, columns)

    @cached_property
    def unpacker(self) -> Generated:
        plain = super().unpacker

        def unpack(row: bytes) -> tuple[Any, ...]:
            return self._layout(_version(row)).unpack(row)

        def unpack_newest(row: bytes) -> tuple[Any, ...]:
            try:
                return plain.call(row)  # type: ignore[no-any-return]
            except Corrupt:  # or of another version
                if _version(row) == self.version:
                    raise
            return unpack(row)

        return Generated(plain.source, unpack_newest if self._is_newest else unpack)

    def _type(self, name: str) -> DataType:
        return self.columns[self.names.index(name)].type

    def _layout(self, version: int) -> _Layout:
        known = self._layouts.get(version)
        if known is None:
            layout = self.history.by_version.get(version)
            if layout is None and self._newer is not None and (newer := self._newer()) is not None:
                layout = newer.by_version.get(version)
            if layout is None:
                raise unknown_version(version, self.version)
            known = self._layouts[version] = _Layout(self, layout)
        return known


class _Layout:
    """Reads rows of one version as rows of other columns."""

    def __init__(self, codec: TableRowCodec, layout: RowLayout):
        here = dict(zip(codec.numbers, codec.names, strict=True))
        names = [here.get(stored.number, f"#{stored.number}") for stored in layout.columns]
        columns = [Column(n, stored.type) for n, stored in zip(names, layout.columns, strict=True)]
        self._codec = RowCodec(columns, layout.version)
        self._types = {column.name: column.type for column in codec.columns}
        place = {stored.number: index for index, stored in enumerate(layout.columns)}
        missing = dict(codec.history.missing)
        lacks = [c for n, c in zip(codec.numbers, codec.columns, strict=True) if n not in place]
        values = [missing.get(number) for number in codec.numbers if number not in place]
        self._constants = RowCodec(lacks).decode([RowCodec(lacks).encode_one(values)])
        self._cells = [
            _reader(
                place.get(number),
                None if number not in place else layout.columns[place[number]].type,
                column.type,
                missing.get(number),
            )
            for number, column in zip(codec.numbers, codec.columns, strict=True)
        ]

    def unpack(self, row: bytes) -> tuple[Any, ...]:
        """The physical values of a row."""
        values = self._codec.unpacker.call(row)
        return tuple([cell(values) for cell in self._cells])

    def decode(self, rows: Packed | Sequence[bytes], names: Sequence[str]) -> pl.DataFrame:
        """The frame of some rows."""
        there = [name for name in names if name not in self._constants.columns]
        frame = self._codec.decode(rows, there)
        return pl.DataFrame(
            [
                frame[name].cast(self._types[name].polars)
                if name in there
                else self._constants[name].new_from_index(0, len(rows))
                for name in names
            ]
        )


def is_wider(old: DataType, new: DataType) -> bool:
    """Whether every value of a type is one of another, so that a column may change to it."""
    if old == new:
        return True
    if new.is_decimal:
        digits = {"INT": 10, "BIGINT": 19}.get(old.name, old.precision - old.scale)
        return (old.is_integer or old.is_decimal) and (
            digits <= new.precision - new.scale and old.scale <= new.scale
        )
    return (old.name, new.name) in (("INT", "BIGINT"), ("INT", "DOUBLE"), ("DATE", "TIMESTAMP"))


def widened(value: Any, old: DataType, new: DataType) -> Any:
    """A Python value of a type as one of a wider type."""
    if value is None:
        return None
    python = to_python(new)
    physical = _widening(old, new)(to_physical(old)(value))
    return physical if python is None else python(physical)


def _widening(old: DataType, new: DataType) -> Callable[[Any], Any]:
    """From a physical value of a type to one of a wider type."""
    if new.is_decimal:
        factor = 10 ** (new.scale - old.scale)
        return lambda value: value * factor
    if new.name == "DOUBLE":
        return float
    if new.name == "TIMESTAMP" and old.name == "DATE":
        return lambda days: days * 86_400_000_000
    return lambda value: value


def _reader(
    place: int | None, old: DataType | None, new: DataType, missing: Any
) -> Callable[[tuple[Any, ...]], Any]:
    """What gives the physical value of a column, from those of a row."""
    if place is None or old is None:
        constant = None if missing is None else to_physical(new)(missing)
        return lambda values: constant
    if old == new:
        return lambda values: values[place]
    widen = _widening(old, new)
    return lambda values: None if values[place] is None else widen(values[place])


def _version(row: bytes) -> int:
    if len(row) < _VERSION_BYTES:
        raise Corrupt(f"a row of {len(row)} bytes is cut short")
    return int.from_bytes(row[:_VERSION_BYTES], "little")


def _versions(rows: Packed | Sequence[bytes]) -> Any:
    """The version of each row."""
    if not isinstance(rows, Packed):
        return np.array([_version(row) for row in rows], np.int64)
    if len(rows) and int(rows.lengths.min()) < _VERSION_BYTES:
        raise Corrupt("a row is absent or cut short")
    low = rows.buffer[rows.starts].astype(np.int64)
    return low | rows.buffer[rows.starts + 1].astype(np.int64) << 8


def _chosen(rows: Packed | Sequence[bytes], places: Any) -> Packed | list[bytes]:
    if isinstance(rows, Packed):
        return rows.take(places)
    return [rows[place] for place in places.tolist()]
