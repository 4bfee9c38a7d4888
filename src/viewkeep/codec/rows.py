"""Compact row bytes: the columns of one row, of which any can be read without the others.

Law: equal rows have equal bytes (NULL slots are zero, NaN and -0.0 canonical), one row at a time
or many at once; and `decode(encode(df))` equals df.

    ┌─────────┬──────────────┬─────────────┬──────────────────┐
    │ version │ NULL bitmap  │ fixed slots │ variable section │      all little-endian
    │ u16     │ ⌈n/8⌉ bytes  │ in order    │ bytes in order   │
    └─────────┴──────────────┴─────────────┴──────────────────┘
    NULL bitmap: bit (i mod 8) of byte (i div 8) is set if column i is NULL
    slot: BOOLEAN u8 · INT, DATE i32 · BIGINT, TIMESTAMP i64 · DOUBLE f64 · DECIMAL i128 unscaled ·
          STRING, BINARY, ARRAY u32: where the value ends within the variable section; it starts
          where the variable-width column before it ends

The version is that of the table's columns (`codec.tablerows`); rows of state have version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from viewkeep.codec.arrays import array_series, array_values
from viewkeep.codec.packed import (
    Packed,
    gather_ranges,
    scatter_ranges,
    starts_of,
    windows,
)
from viewkeep.codec.physical import (
    NUMPY,
    binary_series,
    check_dtype,
    decimal_halves,
    decimal_series,
    fixed_values,
    null_mask,
    packed_series,
    variable_series,
    variable_values,
)
from viewkeep.codec.rowsource import (
    MAX_VARIABLE,
    Generated,
    row_packer,
    row_struct,
    row_unpacker,
    unknown_version,
)
from viewkeep.codec.scalars import to_physical, to_python
from viewkeep.deferred import np, pl
from viewkeep.errors import Corrupt, InvalidRow
from viewkeep.types import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BULK = 8  # rows from which a column at a time is faster
FEW = 40  # rows up to which one at a time is faster: a call of numpy or polars costs as much as 10


class RowCodec:
    """Rows of these columns. A value: equal codecs read each other's rows."""

    def __init__(self, columns: Sequence[Column], version: int = 1):
        self.columns = tuple(columns)
        self.version = version
        self.names = tuple(column.name for column in self.columns)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RowCodec)
            and self.version == other.version
            and self.columns == other.columns
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.columns, self.version))

    def __reduce__(self) -> tuple[object, ...]:
        return (RowCodec, (self.columns, self.version))

    @cached_property
    def blank(self) -> bytes:
        """The row that one is made from which is written without some columns."""
        return self.encode_one([None] * len(self.columns))

    @property
    def width(self) -> int | None:
        """How many bytes each row has; None if that depends on its values."""
        return None if self._variable else self._width

    # -- many rows -----------------------------------------------------------------------------

    def encode(self, df: pl.DataFrame) -> list[bytes]:
        """The rows of a frame that has these columns with the polars dtypes of their types."""
        if not df.height:
            return []
        columns = self._checked(df)
        if df.height <= FEW:
            lists = [column.to_list() for column in columns]
            rows = zip(*lists, strict=True) if lists else [()] * df.height
            return [self.encode_one(row) for row in rows]
        return self._encode_arrays(columns, df.height).all_bytes()

    def encode_packed(self, df: pl.DataFrame) -> Packed:
        """The rows of a frame back to back, without a Python object for each."""
        return self._encode_arrays(self._checked(df), df.height)

    def encode_series(self, df: pl.DataFrame, name: str) -> pl.Series:
        """The rows of a frame as a BINARY column, without a Python object for each."""
        if df.height <= FEW:
            return pl.Series(name, self.encode(df), pl.Binary)
        return binary_series(name, self.encode_packed(df))

    def _checked(self, df: pl.DataFrame) -> list[pl.Series]:
        columns = []
        for column in self.columns:
            try:
                given = df.get_column(column.name)
            except pl.exceptions.ColumnNotFoundError as error:
                raise InvalidRow(f"column {column.name} is missing") from error
            columns.append(check_dtype(given, column.type, column.name))
        return columns

    def _encode_arrays(self, given: Sequence[pl.Series], count: int) -> Packed:
        fixed = np.zeros(count, self._dtype)
        fixed["version"] = self.version
        bits = np.zeros((count, self._bitmap), np.uint8)
        variable: list[tuple[NDArray[np.uint8], NDArray[np.int64]]] = []
        end = np.zeros(count, np.int64)
        for index, (column, series) in enumerate(zip(self.columns, given, strict=True)):
            nulls = null_mask(series)
            if nulls is not None:
                bits[:, index // 8] |= nulls.astype(np.uint8) << np.uint8(index % 8)
            slot = f"c{index}"
            if column.type.is_variable:
                if column.type.is_array:
                    data, spans = array_values(series, column.type.element)
                else:
                    data, spans = variable_values(series)
                variable.append((data, spans))
                end = end + spans
                fixed[slot] = end
            elif column.type.is_decimal:
                low, high = decimal_halves(series)
                fixed[slot]["low"], fixed[slot]["high"] = low, high
            else:
                fixed[slot] = fixed_values(series, column.type)
        if self._bitmap:
            fixed["nulls"] = bits if self._bitmap > 1 else bits[:, 0]
        rows = fixed.view(np.dtype((np.void, self._width)))
        if not variable:
            lengths = np.full(count, self._width, np.int64)
            return Packed(rows.view(np.uint8), starts_of(lengths), lengths)
        if int(end.max(initial=0)) > MAX_VARIABLE:
            raise InvalidRow("a row holds more than 4 GiB of STRING and BINARY values")
        return _join(rows, self._width, variable, end)

    def decode(
        self, rows: Packed | Sequence[bytes], names: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """The frame of these rows: all columns, or only `names` in that order."""
        if not isinstance(rows, Packed) and len(rows) <= FEW:
            return self._decode_few(rows, names)
        packed = rows if isinstance(rows, Packed) else Packed.from_list(rows)
        wanted = self.names if names is None else tuple(names)
        fixed = self._fixed_part(packed)
        columns: list[pl.Series] = []
        for name in wanted:
            index = self.names.index(name)
            type = self.columns[index].type
            nulls = self._nulls(fixed, index)
            slot = fixed[f"c{index}"]
            if type.is_variable:
                columns.append(self._decode_variable(packed, fixed, index, nulls))
            elif type.is_decimal:
                columns.append(decimal_series(name, slot["low"], slot["high"], nulls, type))
            else:
                series = pl.Series(name, np.ascontiguousarray(slot)).cast(type.polars)
                if nulls is not None:
                    mask = pl.Series(~nulls)
                    series = pl.select(pl.when(mask).then(series)).to_series().alias(name)
                columns.append(series)
        return pl.DataFrame(columns)

    def decode_series(self, rows: pl.Series) -> pl.DataFrame:
        """The frame of the rows of a BINARY column."""
        return self.decode(rows.to_list() if len(rows) <= FEW else packed_series(rows))

    def _decode_few(self, rows: Sequence[bytes], names: Sequence[str] | None) -> pl.DataFrame:
        wanted = self.names if names is None else tuple(names)
        indices = [self.names.index(name) for name in wanted]
        lists = zip(*(self.decode_one(row, indices) for row in rows), strict=True)
        cells = list(lists) or [()] * len(wanted)
        types = [self.columns[index].type.polars for index in indices]
        try:
            return pl.DataFrame(
                [
                    pl.Series(name, values, dtype)
                    for name, values, dtype in zip(wanted, cells, types, strict=True)
                ]
            )
        except (pl.exceptions.PolarsError, OverflowError, RuntimeError) as error:
            # For a DECIMAL beyond 128 bits polars raises a RuntimeError.
            raise Corrupt("a row holds a value that its type does not have") from error

    def merge(
        self, old: Sequence[bytes], new: Sequence[bytes], columns: tuple[int, ...]
    ) -> list[bytes]:
        """Rows that take these columns (by position) from `new` and the others from `old`."""
        chosen = set(columns)
        if len(old) < 16:
            # Below this the scalar path is faster than building frames.
            return [
                self._pack(*(b[i] if i in chosen else a[i] for i in range(len(self.columns))))
                for a, b in zip(map(self._unpack, old), map(self._unpack, new), strict=True)
            ]
        kept = [name for index, name in enumerate(self.names) if index not in chosen]
        taken = [name for index, name in enumerate(self.names) if index in chosen]
        parts = (self.decode(old, kept), self.decode(new, taken))
        return self.encode(pl.DataFrame([column for part in parts for column in part]))

    # -- one row -------------------------------------------------------------------------------

    def encode_one(self, values: Sequence[object]) -> bytes:
        """The row of these Python values; InvalidRow names the column that is to blame."""
        if len(values) != len(self.columns):
            raise InvalidRow(f"a row has {len(self.columns)} values, not {len(values)}")
        physical: list[Any] = []
        for value, convert, column in zip(values, self._to_physical, self.columns, strict=True):
            if value is None:
                physical.append(None)
                continue
            try:
                physical.append(convert(value))
            except ValueError as error:
                raise InvalidRow(f"column {column.name}: {error}") from error
        return self._pack(*physical)

    def decode_one(self, row: bytes, indices: Sequence[int] | None = None) -> tuple[Any, ...]:
        """The Python values of a row, or of its columns at these positions."""
        physical = self._unpack(row)
        try:
            if indices is None:
                if not self._converted:
                    return physical
                values = list(physical)
                for index, convert in self._converted:
                    if values[index] is not None:
                        values[index] = convert(values[index])
                return tuple(values)
            converters = self._to_python
            return tuple(
                [
                    physical[index]
                    if converters[index] is None or physical[index] is None
                    else converters[index](physical[index])  # type: ignore[misc]
                    for index in indices
                ]
            )
        except (ValueError, OverflowError) as error:
            raise Corrupt(f"a row holds a value outside its type: {error}") from error

    def decode_tuples(
        self, rows: Sequence[bytes], indices: Sequence[int] | None = None
    ) -> list[tuple[Any, ...]]:
        """`decode_one` of each row."""
        wanted = range(len(self.columns)) if indices is None else indices
        plain = not self._variable and not set(wanted) & set(self._decimals)
        if plain and wanted and len(rows) > _BULK and set(map(len, rows)) == {self._width}:
            fixed = np.frombuffer(b"".join(rows), self._dtype)
            if bool((fixed["version"] == self.version).all()):
                return list(zip(*(self._listed(fixed, i) for i in wanted), strict=True))
        return [self.decode_one(row, indices) for row in rows]

    def _listed(self, fixed: NDArray[np.void], index: int) -> list[Any]:
        """The Python values of a column of fixed width that needs no more than its slot."""
        values: list[Any] = fixed[f"c{index}"].tolist()
        convert = self._to_python[index]
        if convert is not None:
            try:
                values = [convert(value) for value in values]
            except (ValueError, OverflowError) as error:
                raise Corrupt(f"a row holds a value outside its type: {error}") from error
        nulls = self._nulls(fixed, index)
        if nulls is not None:
            for place in np.flatnonzero(nulls).tolist():
                values[place] = None
        return values

    # -- layout --------------------------------------------------------------------------------

    @cached_property
    def _bitmap(self) -> int:
        return (len(self.columns) + 7) // 8

    @cached_property
    def packer(self) -> Generated:
        """Packs the physical values of a row."""
        return row_packer(self.columns, self.version)

    @cached_property
    def unpacker(self) -> Generated:
        """Unpacks a row into physical values."""
        return row_unpacker(self.columns, self.version)

    @cached_property
    def _pack(self) -> Callable[..., bytes]:
        return self.packer.call

    @cached_property
    def _unpack(self) -> Callable[[bytes], tuple[Any, ...]]:
        return self.unpacker.call

    @cached_property
    def _width(self) -> int:
        return row_struct(self.columns).size

    @cached_property
    def _dtype(self) -> np.dtype[np.void]:
        fields: list[tuple[Any, ...]] = [("version", "<u2")]
        if self._bitmap:
            fields.append(("nulls", "u1", (self._bitmap,)) if self._bitmap > 1 else ("nulls", "u1"))
        for index, column in enumerate(self.columns):
            if column.type.is_variable:
                slot: Any = "<u4"
            elif column.type.is_decimal:
                slot = [("low", "<u8"), ("high", "<i8")]
            else:
                slot = NUMPY[column.type.name]
            fields.append((f"c{index}", slot))
        return np.dtype(fields)

    @cached_property
    def _variable(self) -> tuple[int, ...]:
        return tuple(i for i, column in enumerate(self.columns) if column.type.is_variable)

    @cached_property
    def _decimals(self) -> tuple[int, ...]:
        return tuple(i for i, column in enumerate(self.columns) if column.type.is_decimal)

    @cached_property
    def _to_physical(self) -> list[Callable[[Any], Any]]:
        return [to_physical(column.type) for column in self.columns]

    @cached_property
    def _to_python(self) -> list[Callable[[Any], Any] | None]:
        return [to_python(column.type) for column in self.columns]

    @cached_property
    def _converted(self) -> list[tuple[int, Callable[[Any], Any]]]:
        return [(i, convert) for i, convert in enumerate(self._to_python) if convert is not None]

    # -- vectorised parts ----------------------------------------------------------------------

    def _fixed_part(self, packed: Packed) -> NDArray[np.void]:
        """Version, bitmap and slots of every row as one structured array, checked."""
        if not len(packed):
            return np.empty(0, self._dtype)
        if int(packed.lengths.min()) < self._width:
            raise Corrupt("a row is absent or cut short")
        if int((packed.starts + packed.lengths).max()) > packed.buffer.size:
            raise Corrupt("a row reaches beyond its buffer")
        fixed = windows(packed.buffer, self._width)[packed.starts].view(self._dtype)
        versions = fixed["version"]
        if bool((versions != self.version).any()):
            found = int(versions[versions != self.version][0])
            raise unknown_version(found, self.version)
        ends = fixed[f"c{self._variable[-1]}"].astype(np.int64) if self._variable else 0
        if bool((packed.lengths != self._width + ends).any()):
            raise Corrupt("a row's length does not fit its columns")
        for first, second in pairwise(self._variable):
            if bool((fixed[f"c{first}"] > fixed[f"c{second}"]).any()):
                raise Corrupt("a row's variable section is out of order")
        return fixed

    def _nulls(self, fixed: NDArray[np.void], index: int) -> NDArray[np.bool_] | None:
        bitmap = fixed["nulls"] if self._bitmap == 1 else fixed["nulls"][:, index // 8]
        nulls = (bitmap & np.uint8(1 << index % 8)) != 0
        return nulls if bool(nulls.any()) else None

    def _decode_variable(
        self,
        packed: Packed,
        fixed: NDArray[np.void],
        index: int,
        nulls: NDArray[np.bool_] | None,
    ) -> pl.Series:
        column = self.columns[index]
        ends = fixed[f"c{index}"].astype(np.int64)
        place = self._variable.index(index)
        starts = (
            fixed[f"c{self._variable[place - 1]}"].astype(np.int64)
            if place
            else np.zeros(len(ends), np.int64)
        )
        spans = ends - starts
        data = gather_ranges(packed.buffer, packed.starts + self._width + starts, spans)
        if column.type.is_array:
            try:
                return array_series(column.name, data, spans, nulls, column.type.element)
            except ValueError as error:
                raise Corrupt(f"column {column.name}: {error}") from error
        try:
            return variable_series(column.name, data, spans, nulls, column.type)
        except ValueError as error:
            raise Corrupt(f"column {column.name} holds bytes that are not UTF-8") from error


def _join(
    rows: NDArray[np.void],
    width: int,
    variable: list[tuple[NDArray[np.uint8], NDArray[np.int64]]],
    end: NDArray[np.int64],
) -> Packed:
    """The fixed part of each row followed by its variable values."""
    lengths = end + width
    target = np.empty(int(lengths.sum()), np.uint8)
    starts = starts_of(lengths)
    windows(target, width)[starts] = rows
    at = starts + width
    for data, spans in variable:
        scatter_ranges(target, at, spans, data)
        at = at + spans
    return Packed(target, starts, lengths)
