"""Pages: the bytes of many rows as one value, so that a store reads and writes them at once.

Law: `unpack(pack(rows, firsts))` are the rows, page by page, `rows_of` those of one page, and
`sizes` how large the pages are.

    page = row                                      rows of one width: a lone one
         = row · columns · bytes ...                several: the first of them, and of each those
                                                    bytes in which some of them differ
         = count u32 · length u32 ... · row ...     rows of several widths, little-endian

Rows that lie side by side in some order agree in most bytes: of numbers the low ones differ.
`columns` has a bit for each byte of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from viewkeep.codec.key_order import differing
from viewkeep.codec.packed import Packed, gather_ranges, list_rows, slice_out, starts_of, windows
from viewkeep.deferred import np
from viewkeep.errors import Corrupt

if TYPE_CHECKING:
    from numpy.typing import NDArray

_U32 = "<u4"
Places: TypeAlias = "NDArray[np.int64]"


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


def pack_one(rows: Sequence[bytes], width: int | None) -> bytes:
    """One page of these rows, as `pack` makes it."""
    data = b"".join(rows)
    if width is None:
        lengths = np.fromiter(map(len, rows), _U32, len(rows)).tobytes()
        return len(rows).to_bytes(4, "little") + lengths + data
    if len(rows) == 1:
        return data
    matrix = np.frombuffer(data, np.uint8).reshape(-1, width)
    differs = (matrix[1:] != matrix[0]).any(axis=0)
    if not differs.any():
        differs[-1] = True
    return rows[0] + np.packbits(differs).tobytes() + matrix[:, differs].tobytes()


def sizes(rows: Packed, firsts: Places, width: int | None) -> Places:
    """How many bytes each of the pages has that `pack` makes."""
    counts = _counts(firsts, len(rows))
    if width is not None:
        return _even_sizes(_columns(rows.buffer.reshape(-1, width), firsts), counts)
    return 4 + 4 * counts + np.add.reduceat(rows.lengths, firsts)


def unpack(pages: Sequence[bytes], width: int | None) -> tuple[Packed, Places]:
    """The rows of all pages one after another, and how many each page has."""
    buffer = np.frombuffer(b"".join(pages), np.uint8)
    sizes = np.fromiter(map(len, pages), np.int64, len(pages))
    if width is not None:
        matrix, counts = _unpack_even(buffer, sizes, width)
        return Packed.from_matrix(matrix), counts
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


def rows_of(page: bytes, width: int | None) -> list[bytes]:
    """The rows of one page; few of them in a ninth of the time that `unpack` and a list take."""
    if width is None:
        return unpack([page], None)[0].all_bytes()
    head = _head(width)
    if len(page) == width:
        return [page]
    if len(page) <= head:
        raise Corrupt("a page is cut short")
    different = _different(page[width:head], width)
    if not len(different) or (len(page) - head) % len(different):
        raise Corrupt("a page is cut short")
    whole = np.frombuffer(page, np.uint8)
    rows = whole[head:].reshape(-1, len(different))
    matrix = np.repeat(whole[None, :width], len(rows), axis=0)
    matrix[:, different] = rows
    return list_rows(matrix)


def _pack_even(matrix: NDArray[np.uint8], firsts: Places) -> list[bytes]:
    width = matrix.shape[1]
    counts, columns = _counts(firsts, len(matrix)), _columns(matrix, firsts)
    sizes = _even_sizes(columns, counts)
    starts, several = starts_of(sizes), np.flatnonzero(counts > 1)
    made = np.empty(int(sizes.sum()), np.uint8)
    _put(made, starts, matrix[firsts])
    masks = np.packbits(columns[several], axis=1)
    _put(made, starts[several] + width, masks)
    for some in _alike(masks):
        pages = several[some]
        different = np.flatnonzero(columns[pages[0]])
        rows = matrix
        if len(pages) < len(firsts):
            rows = matrix[_ranges(firsts[pages], counts[pages])]
        places = _ranges(starts[pages] + _head(width), counts[pages], len(different))
        _put(made, places, rows[:, different])
    return slice_out(made.tobytes(), sizes)


def _unpack_even(
    buffer: NDArray[np.uint8], sizes: Places, width: int
) -> tuple[NDArray[np.uint8], Places]:
    head, starts = _head(width), starts_of(sizes)
    several = np.flatnonzero(sizes > width)
    if bool((sizes < width).any() or (sizes[several] <= head).any()):
        raise Corrupt("a page is cut short")
    counts = np.ones(len(sizes), np.int64)
    bodies: list[tuple[Places, Places, NDArray[np.uint8]]] = []
    masks = _get(buffer, starts[several] + width, head - width)
    for some in _alike(masks):
        pages = several[some]
        different = _different(masks[some[0]].tobytes(), width)
        spans = sizes[pages] - head
        if not len(different) or bool((spans % len(different)).any()):
            raise Corrupt("a page is cut short")
        counts[pages] = spans // len(different)
        places = _ranges(starts[pages] + head, counts[pages], len(different))
        bodies.append((pages, different, _get(buffer, places, len(different))))
    matrix = np.repeat(_get(buffer, starts, width), counts, axis=0)
    firsts = starts_of(counts)
    for pages, different, rows in bodies:
        if len(pages) == len(sizes):
            matrix[:, different] = rows
        else:
            matrix[_ranges(firsts[pages], counts[pages])[:, None], different] = rows
    return matrix, counts


@lru_cache(1_000)
def _different(mask: bytes, width: int) -> Places:
    """The columns of a mask."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), count=width))


def _head(width: int) -> int:
    """The bytes of a page before those in which its rows differ."""
    return width + (width + 7) // 8


def _counts(firsts: Places, rows: int) -> Places:
    return np.diff(np.append(firsts, rows))


def _alike(masks: NDArray[np.uint8]) -> list[Places]:
    """The places of each different mask."""
    if len(masks) and bool((masks == masks[0]).all()):
        return [np.arange(len(masks))]
    found: dict[bytes, list[int]] = {}
    for place, mask in enumerate(list_rows(masks)):
        found.setdefault(mask, []).append(place)
    return [np.array(places) for places in found.values()]


def _ranges(starts: Places, counts: Places, step: int = 1) -> Places:
    """So many numbers from each start on, one after another."""
    shifts = np.repeat(starts - step * starts_of(counts), counts)
    return shifts + step * np.arange(len(shifts))


def _put(buffer: NDArray[np.uint8], places: Places, rows: NDArray[np.uint8]) -> None:
    """Write rows of bytes to these places."""
    if len(rows):
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))
        windows(buffer, rows.shape[1])[places] = whole.reshape(-1)


def _get(buffer: NDArray[np.uint8], places: Places, width: int) -> NDArray[np.uint8]:
    """The rows of so many bytes at these places."""
    return windows(buffer, width)[places].view(np.uint8).reshape(-1, width)


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
