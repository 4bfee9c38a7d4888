"""Values of ARRAY columns as bytes: the elements, none of which is NULL, back to back.

Law: equal arrays have equal bytes, one at a time or many at once.

    fixed-width elements     their slots as in a row, one after another
    STRING, BINARY elements  u32 count · u32 end of each element within the bytes · the bytes
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from viewkeep.codec.packed import gather_ranges, scatter_ranges, starts_of
from viewkeep.codec.physical import (
    NUMPY,
    WIDTHS,
    decimal_halves,
    decimal_series,
    fixed_values,
    variable_series,
    variable_values,
)
from viewkeep.deferred import np, pa, pl
from viewkeep.types import DataType

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORMATS = {"BOOLEAN": "B", "INT": "i", "DATE": "i", "BIGINT": "q", "TIMESTAMP": "q", "DOUBLE": "d"}


def array_values(
    series: pl.Series, element: DataType
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of an ARRAY column back to back, and the length of each value."""
    counts = series.list.len().fill_null(0).to_numpy().astype(np.int64)
    items = series.filter(series.list.len().fill_null(0) > 0).explode()
    if element.is_variable:
        return _variable_bytes(items, counts, series.is_not_null().to_numpy())
    if element.is_decimal:
        low, high = decimal_halves(items)
        data = np.column_stack([low, high.view(np.uint64)]).astype("<u8").view(np.uint8).ravel()
    else:
        data = np.ascontiguousarray(fixed_values(items, element).astype(NUMPY[element.name]))
        data = data.view(np.uint8)
    return data, counts * WIDTHS[element.name]


def _variable_bytes(
    items: pl.Series, counts: NDArray[np.int64], there: NDArray[np.bool_]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    data, lengths = variable_values(items)
    ends = np.cumsum(lengths)
    firsts = starts_of(counts)
    before = np.concatenate([[0], ends])
    bases, tops = before[firsts], before[firsts + counts]
    spans = np.where(there, 4 + 4 * counts + (tops - bases), 0)
    target = np.empty(int(spans.sum()), np.uint8)
    starts = starts_of(spans)
    four = np.full(int(there.sum()), 4, np.int64)
    scatter_ranges(target, starts[there], four, counts[there].astype("<u4").view(np.uint8))
    inner = (ends - np.repeat(bases, counts)).astype("<u4").view(np.uint8)
    scatter_ranges(target, starts + 4, 4 * counts, inner)
    scatter_ranges(target, starts + 4 + 4 * counts, tops - bases, data)
    return target, spans


def array_series(
    name: str,
    data: NDArray[np.uint8],
    spans: NDArray[np.int64],
    nulls: NDArray[np.bool_] | None,
    element: DataType,
) -> pl.Series:
    """The ARRAY column of these bytes; raises ValueError if they are none."""
    if element.is_variable:
        items, counts = _variable_items(data, spans, nulls, element)
    else:
        width = WIDTHS[element.name]
        counts = spans // width
        if bool((counts * width != spans).any()):
            raise ValueError("an array ends within an element")
        items = _fixed_items(np.ascontiguousarray(data), element)
    offsets = np.zeros(len(spans) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    values = items.to_arrow(compat_level=pl.CompatLevel.oldest())
    mask = None if nulls is None else pa.array(nulls)
    made = pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=mask)
    return pl.Series(name, made, pl.List(element.polars))


def _fixed_items(data: NDArray[np.uint8], element: DataType) -> pl.Series:
    if element.is_decimal:
        words = data.view("<u8").reshape(-1, 2)
        return decimal_series("", words[:, 0], words[:, 1].copy().view(np.int64), None, element)
    return pl.Series("", data.view(NUMPY[element.name])).cast(element.polars)


def _variable_items(
    data: NDArray[np.uint8],
    spans: NDArray[np.int64],
    nulls: NDArray[np.bool_] | None,
    element: DataType,
) -> tuple[pl.Series, NDArray[np.int64]]:
    starts = starts_of(spans)
    there = np.ones(len(spans), np.bool_) if nulls is None else ~nulls
    if bool((spans[there] < 4).any()):
        raise ValueError("an array is cut short")
    counts = np.zeros(len(spans), np.int64)
    counts[there] = _numbers(data, starts[there], np.full(int(there.sum()), 4, np.int64))
    heads = np.where(there, 4 + 4 * counts, 0)
    if bool((heads > spans).any()):
        raise ValueError("an array is cut short")
    ends = _numbers(data, starts + 4, 4 * counts)
    body = gather_ranges(data, starts + heads, spans - heads)
    firsts = starts_of(counts)
    lengths = np.diff(ends, prepend=0)
    filled = counts > 0
    lengths[firsts[filled]] = ends[firsts[filled]]
    if bool((lengths < 0).any()) or int(lengths.sum()) != body.size:
        raise ValueError("the elements of an array are out of order")
    return variable_series("", body, lengths, None, element), counts


def _numbers(
    data: NDArray[np.uint8], starts: NDArray[np.int64], spans: NDArray[np.int64]
) -> NDArray[np.int64]:
    kept = spans > 0
    part = np.ascontiguousarray(gather_ranges(data, starts[kept], spans[kept]))
    return part.view("<u4").astype(np.int64)


def pack_array(
    values: Sequence[object], element: DataType, physical: Callable[[Any], Any]
) -> bytes:
    """The bytes of one array of Python values."""
    made = [physical(value) for value in values]
    if element.is_variable:
        ends = np.cumsum([len(item) for item in made], dtype=np.int64).tolist()
        return struct.pack(f"<{1 + len(made)}I", len(made), *ends) + b"".join(made)
    if element.is_decimal:
        return b"".join(item.to_bytes(16, "little", signed=True) for item in made)
    return struct.pack(f"<{len(made)}{_FORMATS[element.name]}", *made)


def unpack_array(
    data: bytes, element: DataType, python: Callable[[Any], Any] | None
) -> list[object]:
    """The Python values of one array; raises ValueError if the bytes are none."""
    items: list[Any]
    try:
        if element.is_variable:
            (count,) = struct.unpack_from("<I", data)
            ends = struct.unpack_from(f"<{count}I", data, 4)
            body = data[4 + 4 * count :]
            items = [body[a:b] for a, b in zip((0, *ends), ends, strict=False)]
        elif element.is_decimal:
            places = range(0, len(data), 16)
            items = [int.from_bytes(data[at : at + 16], "little", signed=True) for at in places]
        else:
            count = len(data) // WIDTHS[element.name]
            items = list(struct.unpack(f"<{count}{_FORMATS[element.name]}", data))
    except struct.error as error:
        raise ValueError("an array is cut short") from error
    return items if python is None else [python(item) for item in items]
