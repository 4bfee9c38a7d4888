"""Pages: the bytes of many rows as one value, so that a store reads and writes them at once.

Law: `unpack(pack(rows, firsts))` are the rows, page by page, and `sizes` are those of the pages.

    page = row                                      rows of one width: a lone one
         = row · columns · bytes ...                several: the first of them, and of each those
                                                    bytes in which some of them differ
         = count u32 · length u32 ... · row ...     rows of several widths, little-endian

Rows that lie side by side in some order agree in most bytes: of numbers the low ones differ.
`columns` has a bit for each byte of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from viewkeep.codec.many import differing
from viewkeep.codec.packed import Packed, gather_ranges, list_rows, slice_out, starts_of, windows
from viewkeep.errors import Corrupt

_U32 = np.dtype("<u4")
Places = NDArray[np.int64]


def pack(rows: Packed, firsts: Places, width: int | None) -> list[bytes]:
    """Pages of rows that lie back to back: one from each of these places on, up to the next.

    `width` is that of all rows, if they have one.
    """
    if width is not None:
        return _pack_even(rows.buffer.reshape(-1, width), firsts)
    data = rows.buffer.tobytes()
    bounds = [*firsts.tolist(), len(rows)]
    ends = np.append(rows.starts, len(data))[bounds].tolist()
    lengths = rows.lengths.astype(_U32).tobytes()
    return [
        (stop - start).to_bytes(4, "little") + lengths[4 * start : 4 * stop] + data[begin:end]
        for (start, stop), (begin, end) in zip(pairwise(bounds), pairwise(ends), strict=True)
    ]


def sizes(rows: Packed, firsts: Places, width: int | None) -> Places:
    """How many bytes each of the pages has that `pack` makes."""
    counts = _counts(firsts, len(rows))
    if width is not None:
        return _even_sizes(_columns(rows.buffer.reshape(-1, width), firsts), counts)
    return 4 + 4 * counts + np.add.reduceat(rows.lengths, firsts)


def unpack(pages: Sequence[bytes], width: int | None) -> tuple[Packed, Places]:
    """The rows of all pages one after another, and how many each page has."""
    if width is not None:
        return _unpack_even(pages, width)
    buffer = np.frombuffer(b"".join(pages), np.uint8)
    sizes = np.fromiter(map(len, pages), np.int64, len(pages))
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


def _pack_even(matrix: NDArray[np.uint8], firsts: Places) -> list[bytes]:
    counts, columns = _counts(firsts, len(matrix)), _columns(matrix, firsts)
    made = list_rows(matrix[firsts])
    for mask, pages in _alike(list_rows(np.packbits(columns, axis=1))).items():
        different = np.flatnonzero(columns[pages[0]])
        if not len(different):
            continue  # lone rows
        rows = matrix
        if len(pages) < len(made):
            rows = matrix[_ranges(firsts[pages], counts[pages])]
        bodies = slice_out(rows[:, different].tobytes(), counts[pages] * len(different))
        for page, body in zip(pages, bodies, strict=True):
            made[page] += mask + body
    return made


def _unpack_even(pages: Sequence[bytes], width: int) -> tuple[Packed, Places]:
    head = _head(width)
    if any(len(page) < width or width < len(page) <= head for page in pages):
        raise Corrupt("a page is cut short")
    alike = _alike([page[width:head] for page in pages])
    counts = np.ones(len(pages), np.int64)
    found: list[tuple[list[int], NDArray[np.int64], NDArray[np.uint8]]] = []
    for mask, places in alike.items():
        if not mask:
            continue  # lone rows
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), count=width)
        different = np.flatnonzero(bits)
        bodies = [pages[place][head:] for place in places]
        if not len(different) or any(len(body) % len(different) for body in bodies):
            raise Corrupt("a page is cut short")
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(-1, len(different))
        counts[places] = [len(body) // len(different) for body in bodies]
        found.append((places, different, rows))
    heads = np.frombuffer(b"".join([page[:width] for page in pages]), np.uint8)
    matrix = np.repeat(heads.reshape(-1, width), counts, axis=0)
    starts = starts_of(counts)
    for places, different, rows in found:
        if len(places) == len(pages):
            matrix[:, different] = rows
        else:
            matrix[_ranges(starts[places], counts[places])[:, None], different] = rows
    return Packed.from_matrix(matrix), counts


def _head(width: int) -> int:
    """The bytes of a page before those in which its rows differ."""
    return width + (width + 7) // 8


def _counts(firsts: Places, rows: int) -> Places:
    return np.diff(np.append(firsts, rows))


def _alike(masks: list[bytes]) -> dict[bytes, list[int]]:
    """The pages of each mask."""
    found: dict[bytes, list[int]] = {}
    for page, mask in enumerate(masks):
        found.setdefault(mask, []).append(page)
    return found


def _ranges(starts: Places, counts: Places) -> Places:
    """The numbers of all ranges, one after another."""
    return np.repeat(starts - starts_of(counts), counts) + np.arange(int(counts.sum()))


def _columns(matrix: NDArray[np.uint8], firsts: Places) -> NDArray[np.bool_]:
    """For each page in which columns its rows differ; one at least if it has several rows."""
    found = np.zeros((len(firsts), matrix.shape[1]), np.bool_)
    for column in differing(matrix).tolist() if len(matrix) else ():
        cells = np.ascontiguousarray(matrix[:, column])
        differs = np.zeros(len(cells), np.bool_)
        differs[1:] = cells[1:] != cells[:-1]
        differs[firsts] = False
        found[:, column] = np.logical_or.reduceat(differs, firsts)
    found[:, -1] |= ~found.any(axis=1) & (_counts(firsts, len(matrix)) > 1)
    return found


def _even_sizes(columns: NDArray[np.bool_], counts: Places) -> Places:
    width = columns.shape[1]
    several: Places = _head(width) + counts * columns.sum(axis=1)
    return np.where(counts > 1, several, width)
