"""How much is held at once: rows are counted, and a wide row counts as several.

Law: whatever an epoch collects, sends, reads or writes in parts is bounded by an amount, never by a
number of rows alone. So a part of `n` takes at most `n * ROW_BYTES` bytes, however wide its rows
are, but for a single row that is wider than that. Amounts are a function of the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from viewkeep.deferred import np, pl
from viewkeep.stores.contract import ROW_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOGETHER = 10_000
"""The amount of an operator's changes that are handed on together, as one part."""

__all__ = ["ROW_BYTES", "TOGETHER", "amount", "amount_of", "parts", "row_amounts", "row_sizes"]

_SLOT = 16  # bytes of a text besides its letters


def amount(frame: pl.DataFrame) -> int:
    """The amount of a frame."""
    return amount_of(frame.height, int(frame.estimated_size()))


def amount_of(rows: int, size: int) -> int:
    """The amount of so many rows of so many bytes together."""
    return max(rows, size // ROW_BYTES)


def row_sizes(frame: pl.DataFrame) -> NDArray[np.float64]:
    """The bytes of each row."""
    even, sizes = 0.0, np.zeros(frame.height)
    for column in frame:
        if column.dtype in (pl.String, pl.Binary):
            text = column.dtype == pl.String
            lengths = column.str.len_bytes() if text else column.bin.size()
            sizes += lengths.fill_null(0).to_numpy()
            even += _SLOT
        else:
            even += column.estimated_size() / max(1, len(column))
    return sizes + even


def row_amounts(frame: pl.DataFrame) -> NDArray[np.int64]:
    """The amount of each row."""
    return np.maximum(1, row_sizes(frame) // ROW_BYTES).astype(np.int64)


def parts(amounts: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Consecutive rows of these amounts, in parts of at most `most` or of a single row."""
    ends = np.cumsum(amounts)
    start, done = 0, 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, done + most, "right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])
