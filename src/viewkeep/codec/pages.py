"""Pages: the bytes of many rows as one value, so that a store reads and writes them at once.

Law: `unpack(pack(rows, firsts))` are the rows, page by page.

    page = row row ...                              rows of one width
         = count u32 · length u32 ... · row ...     rows of several, little-endian
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from viewkeep.codec.packed import Packed, gather_ranges, starts_of, windows
from viewkeep.errors import Corrupt

_U32 = np.dtype("<u4")


def pack(rows: Packed, firsts: NDArray[np.int64], width: int | None) -> list[bytes]:
    """Pages of rows that lie back to back: one from each of these places on, up to the next.

    `width` is that of all rows, if they have one.
    """
    data = rows.buffer.tobytes()
    bounds = [*firsts.tolist(), len(rows)]
    ends = np.append(rows.starts, len(data))[bounds].tolist()
    bodies = [data[start:end] for start, end in pairwise(ends)]
    if width is not None:
        return bodies
    lengths = rows.lengths.astype(_U32).tobytes()
    return [
        (stop - start).to_bytes(4, "little") + lengths[4 * start : 4 * stop] + body
        for (start, stop), body in zip(pairwise(bounds), bodies, strict=True)
    ]


def unpack(pages: Sequence[bytes], width: int | None) -> tuple[Packed, NDArray[np.int64]]:
    """The rows of all pages one after another, and how many each page has."""
    buffer = np.frombuffer(b"".join(pages), np.uint8)
    sizes = np.fromiter(map(len, pages), np.int64, len(pages))
    if width is not None:
        if bool((sizes % width).any()):
            raise Corrupt("a page is cut short")
        lengths = np.full(buffer.size // width, width, np.int64)
        return Packed(buffer, starts_of(lengths), lengths), sizes // width
    if bool((sizes < 4).any()):
        raise Corrupt("a page is cut short")
    places = starts_of(sizes)
    counts = windows(buffer, 4)[places].view(_U32).astype(np.int64)
    if bool(((counts == 0) | (4 + 4 * counts > sizes)).any()):
        raise Corrupt("a page is cut short")
    lengths = gather_ranges(buffer, places + 4, 4 * counts).view(_U32).astype(np.int64)
    spans = np.add.reduceat(lengths, starts_of(counts)) if len(pages) else lengths
    if bool((4 + 4 * counts + spans != sizes).any()):
        raise Corrupt("a page is cut short")
    # Rows lie back to back but for the head of each page.
    starts = starts_of(lengths) + np.repeat(np.cumsum(4 + 4 * counts), counts)
    return Packed(buffer, starts, lengths), counts
