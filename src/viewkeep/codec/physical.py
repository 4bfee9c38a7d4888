"""Columns as plain numpy arrays: what polars holds, with NULL slots zero and floats canonical.

Law: two columns with equal values have equal arrays, so equal rows become equal bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewkeep.codec.packed import ABSENT_LENGTH, Packed, starts_of
from viewkeep.deferred import np, pa, pl
from viewkeep.errors import InvalidRow
from viewkeep.types import DataType

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMPY: dict[str, str] = {
    "BOOLEAN": "u1",
    "INT": "<i4",
    "DATE": "<i4",
    "BIGINT": "<i8",
    "TIMESTAMP": "<i8",
    "DOUBLE": "<f8",
}
WIDTHS: dict[str, int] = {
    "BOOLEAN": 1,
    "INT": 4,
    "DATE": 4,
    "BIGINT": 8,
    "TIMESTAMP": 8,
    "DOUBLE": 8,
    "DECIMAL": 16,
}


FEW = 100  # values up to which one at a time is faster than the fixed cost of arrays


def check_dtype(series: pl.Series, type: DataType, name: str) -> pl.Series:
    """The series if it has the polars dtype of `type` (an untyped all-NULL one is cast)."""
    if series.dtype == type.polars:
        return series
    if series.dtype == pl.Null:
        return series.cast(type.polars)
    raise InvalidRow(f"column {name}: {type} needs polars {type.polars}, not {series.dtype}")


def null_mask(series: pl.Series) -> NDArray[np.bool_] | None:
    """Where the series is NULL, or None if it is nowhere."""
    return series.is_null().to_numpy() if series.null_count() else None


def fixed_values(series: pl.Series, type: DataType) -> NDArray[np.generic]:
    """The values of a fixed-width column other than DECIMAL, in the numpy dtype of its slot."""
    if type.name == "BOOLEAN":
        return _filled(series, False).cast(pl.UInt8).to_numpy()
    if type.name == "DOUBLE":
        # Adding zero turns -0.0 into 0.0; all NaNs become the one with no payload.
        values = _filled(series, 0.0).to_numpy() + 0.0
        values[np.isnan(values)] = np.nan
        return values
    if not series.dtype.is_integer():  # by a cast: `to_physical` is a query
        series = series.cast(pl.Int32 if series.dtype == pl.Date else pl.Int64)
    return _filled(series, 0).to_numpy()


def _filled(series: pl.Series, value: bool | float | str | bytes) -> pl.Series:
    return series.fill_null(value) if series.null_count() else series


def decimal_halves(series: pl.Series) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The unscaled i128 values of a DECIMAL column as low (unsigned) and high (signed) words."""
    array = series.rechunk().to_arrow()
    words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    nulls = null_mask(series)
    if nulls is not None:
        words = np.where(nulls[:, None], np.uint64(0), words)
    return words[:, 0], words[:, 1].copy().view(np.int64)


def decimal_series(
    name: str,
    low: NDArray[np.uint64],
    high: NDArray[np.int64],
    nulls: NDArray[np.bool_] | None,
    type: DataType,
) -> pl.Series:
    """The DECIMAL column of these i128 words; the inverse of `decimal_halves`."""
    words = np.empty((len(low), 2), np.uint64)
    words[:, 0] = low
    words[:, 1] = high.astype(np.int64, copy=False).view(np.uint64)
    buffers = [validity(nulls), pa.py_buffer(words)]
    array = pa.Array.from_buffers(type.arrow, len(low), buffers)
    return pl.Series(name, array, type.polars)


def variable_values(series: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a STRING or BINARY column back to back, and the length of each value."""
    series = _filled(series, "" if series.dtype == pl.String else b"")
    array = series.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offset_buffer, data_buffer = array.buffers()
    count = len(array)
    if not count or data_buffer is None:
        return np.empty(0, np.uint8), np.zeros(count, np.int64)
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return data, np.diff(offsets)


def variable_series(
    name: str,
    data: NDArray[np.uint8],
    spans: NDArray[np.int64],
    nulls: NDArray[np.bool_] | None,
    type: DataType,
) -> pl.Series:
    """The STRING or BINARY column of these bytes; raises ValueError if a STRING is not UTF-8."""
    offsets = np.zeros(len(spans) + 1, np.int64)
    np.cumsum(spans, out=offsets[1:])
    buffers = [validity(nulls), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    array = pa.Array.from_buffers(type.arrow, len(spans), buffers)
    array.validate(full=True)
    return pl.Series(name, array, type.polars)


def binary_series(name: str, packed: Packed) -> pl.Series:
    """A BINARY column of byte strings, all of them present."""
    offsets = np.zeros(len(packed) + 1, np.int64)
    np.cumsum(packed.lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(packed.compact()))]
    return pl.Series(name, pa.Array.from_buffers(pa.large_binary(), len(packed), buffers))


def packed_series(series: pl.Series) -> Packed:
    """The values of a BINARY column, absent where NULL."""
    data, lengths = variable_values(series)
    nulls = null_mask(series)
    starts = starts_of(lengths)
    if nulls is not None:
        lengths = np.where(nulls, ABSENT_LENGTH, lengths)
    return Packed(data, starts, lengths)


def validity(nulls: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Arrow's validity bitmap of a NULL mask."""
    if nulls is None:
        return None
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))
