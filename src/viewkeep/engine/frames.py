"""Frames as bytes, for their way from one task to another.

Arrow's format, but where it is slow or large. Byte strings of one length, as most keys and rows
are, go as they lie in memory: to write them is six times as fast, and they take no offsets of 8
bytes each. Of their bytes only those go in which some differ, mostly the low ones of integers.
Integers go in as few bytes as they need: weights are mostly 1 and -1.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

from viewkeep.codec.key_order import differing
from viewkeep.codec.packed import Packed
from viewkeep.codec.physical import binary_series, packed_series
from viewkeep.deferred import np, pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEW = 500  # rows of a frame that Arrow alone writes sooner


class _Strings(NamedTuple):
    """Byte strings of one length: the first of them, and where others differ the bytes of each."""

    rows: int
    first: bytes
    places: list[int]
    different: bytes


class Body(NamedTuple):
    """A frame: its columns in order; strings of one length by their column; the rest by Arrow."""

    rows: int
    names: list[str]
    strings: dict[str, _Strings]
    shrunk: list[str]  # columns of the rest that were of eight bytes
    rest: bytes

    @property
    def size(self) -> int:
        """The bytes of the frame, about."""
        return len(self.rest) + self.rows * sum(len(one.first) for one in self.strings.values())


def to_body(frame: pl.DataFrame) -> Body:
    """A frame as bytes."""
    if frame.height < _FEW:
        return Body(frame.height, frame.columns, {}, [], _to_ipc(frame))
    strings: dict[str, _Strings] = {}
    shrunk: list[str] = []
    rest: list[pl.Series] = []
    for column in frame:
        matrix = packed_series(column).matrix if _is_even(column) else None
        if matrix is not None:
            strings[column.name] = _strings(matrix)
        elif column.dtype == pl.Int64:
            shrunk.append(column.name)
            rest.append(column.shrink_dtype())
        else:
            rest.append(column)
    return Body(frame.height, frame.columns, strings, shrunk, _to_ipc(pl.DataFrame(rest)))


def from_body(body: Body) -> pl.DataFrame:
    """The frame that was written."""
    rest = pl.read_ipc_stream(io.BytesIO(body.rest))
    if not body.shrunk and not body.strings:
        return rest
    columns = {column.name: column for column in rest}
    for name in body.shrunk:
        columns[name] = columns[name].cast(pl.Int64)
    for name, strings in body.strings.items():
        columns[name] = binary_series(name, Packed.from_matrix(_matrix(strings)))
    return pl.DataFrame([columns[name] for name in body.names])


def _strings(matrix: NDArray[np.uint8]) -> _Strings:
    differ = differing(matrix)
    different = matrix if len(differ) == matrix.shape[1] else matrix[:, differ]
    return _Strings(len(matrix), matrix[0].tobytes(), differ.tolist(), different.tobytes())


def _matrix(strings: _Strings) -> NDArray[np.uint8]:
    count, first, places, data = strings
    different = np.frombuffer(data, np.uint8).reshape(count, len(places))
    if len(places) == len(first):
        return different
    rows = np.tile(np.frombuffer(first, np.uint8), (count, 1))
    rows[:, places] = different
    return rows


def _is_even(column: pl.Series) -> bool:
    """Whether a column holds byte strings of one length."""
    if column.dtype != pl.Binary or column.null_count():
        return False
    sizes = column.bin.size()
    return sizes.min() == sizes.max()


def _to_ipc(frame: pl.DataFrame) -> bytes:
    sink = io.BytesIO()
    # Strings in one piece are written 4 times as fast as polars' own views of them.
    frame.write_ipc_stream(sink, compat_level=pl.CompatLevel.oldest())
    return sink.getvalue()
