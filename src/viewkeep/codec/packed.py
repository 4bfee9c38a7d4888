"""Many byte strings in one buffer, so that keys and rows move without one Python object each.

Law: `Packed.from_list(items).to_list() == items`, and no operation changes the shared buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, cast

from viewkeep.deferred import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABSENT_LENGTH = -1


@dataclass(frozen=True, eq=False)
class Packed:
    """n byte strings: string i is `buffer[starts[i] : starts[i] + lengths[i]]`.

    A length of -1 stands for None. Strings may lie in any order, with gaps, or share bytes.
    """

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @staticmethod
    def from_list(items: Sequence[bytes | None]) -> Packed:
        """Pack a list; the strings lie back to back."""
        try:
            data = b"".join(items)  # type: ignore[arg-type]
            lengths = np.fromiter(map(len, items), np.int64, len(items))  # type: ignore[arg-type]
            spans = lengths
        except TypeError:
            data = b"".join(item for item in items if item is not None)
            lengths = np.fromiter(
                (ABSENT_LENGTH if item is None else len(item) for item in items),
                np.int64,
                len(items),
            )
            spans = np.maximum(lengths, 0)
        return Packed(np.frombuffer(data, np.uint8), starts_of(spans), lengths)

    def to_list(self) -> list[bytes | None]:
        """The strings as Python bytes, None where absent."""
        matrix = self.matrix
        if matrix is not None:
            return cast(list[bytes | None], list_rows(matrix))
        if self.buffer.size > 2 * int(self.spans.sum()):
            # A small part of a large buffer: copy that part only.
            return Packed(self.compact(), starts_of(self.spans), self.lengths).to_list()
        data = self.buffer.tobytes()
        pairs = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        if self.all_present:
            return [data[start:end] for start, end in pairs]
        return [data[start:end] if end >= start else None for start, end in pairs]

    def all_bytes(self) -> list[bytes]:
        """`to_list` of strings that are all there."""
        return cast(list[bytes], self.to_list())

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_list())

    def __getitem__(self, part: slice) -> Packed:
        return Packed(self.buffer, self.starts[part], self.lengths[part])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_present(self) -> NDArray[np.bool_]:
        """Which strings are there (not None)."""
        return self.lengths >= 0

    @property
    def all_present(self) -> bool:
        """Whether no string is absent."""
        return not len(self) or int(self.lengths.min()) >= 0

    @property
    def spans(self) -> NDArray[np.int64]:
        """Lengths with 0 for absent strings."""
        return self.lengths if self.all_present else np.maximum(self.lengths, 0)

    @property
    def matrix(self) -> NDArray[np.uint8] | None:
        """The strings as the rows of a matrix, if all are there and of one length, not 0."""
        width = int(self.lengths[0]) if len(self) else 0
        if width <= 0 or not bool((self.lengths == width).all()):
            return None
        if bool((np.diff(self.starts) == width).all()):
            first = int(self.starts[0])
            return self.buffer[first : first + len(self) * width].reshape(-1, width)
        return windows(self.buffer, width)[self.starts].view(np.uint8).reshape(-1, width)

    @staticmethod
    def from_matrix(rows: NDArray[np.uint8]) -> Packed:
        """The rows of a matrix as strings."""
        count, width = rows.shape
        starts = np.arange(count, dtype=np.int64) * width
        return Packed(np.ascontiguousarray(rows).reshape(-1), starts, np.full(count, width))

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Packed:
        """The strings at these indices, or where this mask holds; the buffer is shared."""
        return Packed(self.buffer, self.starts[chosen], self.lengths[chosen])

    def compact(self) -> NDArray[np.uint8]:
        """The bytes of all strings back to back, in order."""
        return gather_ranges(self.buffer, self.starts, self.spans)

    @staticmethod
    def concat(parts: Sequence[Packed]) -> Packed:
        """The strings of all parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Packed.from_list([])
        sizes = np.array([part.buffer.size for part in parts], np.int64)
        shifts = starts_of(sizes)
        return Packed(
            np.concatenate([part.buffer for part in parts]),
            np.concatenate([part.starts + at for part, at in zip(parts, shifts, strict=True)]),
            np.concatenate([part.lengths for part in parts]),
        )

    @staticmethod
    def absent(count: int) -> Packed:
        """`count` absent strings."""
        return Packed.from_list(list(repeat(None, count)))


def starts_of(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of these spans starts when they lie back to back."""
    ends = np.cumsum(spans, dtype=np.int64)
    return ends - spans


def gather_ranges(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], spans: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """The ranges `buffer[start : start + span]` copied back to back."""
    count = len(starts)
    if not count:
        return np.empty(0, np.uint8)
    width = int(spans[0])
    if width and bool((spans == width).all()):
        return windows(buffer, width)[starts].view(np.uint8)
    targets = starts_of(spans)
    total = int(targets[-1] + spans[-1])
    if total == int(starts[-1] + spans[-1] - starts[0]) and bool(
        (starts[1:] == starts[:-1] + spans[:-1]).all()
    ):
        return buffer[int(starts[0]) : int(starts[0]) + total]
    return buffer[np.repeat(starts - targets, spans) + np.arange(total, dtype=np.int64)]


def scatter_ranges(
    target: NDArray[np.uint8],
    starts: NDArray[np.int64],
    spans: NDArray[np.int64],
    source: NDArray[np.uint8],
) -> None:
    """Write the back-to-back ranges of `source` to `target[start : start + span]`."""
    if source.size:
        shift = np.repeat(starts - starts_of(spans), spans)
        target[shift + np.arange(source.size, dtype=np.int64)] = source


def windows(buffer: NDArray[np.uint8], width: int) -> NDArray[np.void]:
    """All overlapping windows of `width` bytes, so one index reads or writes `width` bytes at once.

    This is what makes gathering and scattering rows a memory copy per row instead of per byte.
    """
    count = max(buffer.size - width + 1, 0)
    return np.ndarray((count,), np.dtype((np.void, width)), buffer=buffer, strides=(1,))


def longest(strings: Sequence[bytes] | Packed) -> int:
    """The length of the longest string; 0 if there is none."""
    if isinstance(strings, Packed):
        return int(strings.lengths.max(initial=0))
    return max(map(len, strings), default=0)


def listed(strings: list[bytes] | Packed) -> list[bytes]:
    """Strings, which are all there, as a list."""
    return strings.all_bytes() if isinstance(strings, Packed) else strings


def take(strings: list[bytes] | Packed, places: NDArray[np.int64]) -> list[bytes] | Packed:
    """The strings at these places."""
    if isinstance(strings, Packed):
        return strings.take(places)
    return [strings[place] for place in places.tolist()]


def prefixed(prefix: bytes, strings: Sequence[bytes] | Packed) -> list[bytes]:
    """Each of the strings, which are all there, after the same bytes."""
    matrix = strings.matrix if isinstance(strings, Packed) else None
    if matrix is not None:
        whole = np.empty((len(matrix), len(prefix) + matrix.shape[1]), np.uint8)
        whole[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        whole[:, len(prefix) :] = matrix
        return list_rows(whole)
    listed = strings.all_bytes() if isinstance(strings, Packed) else strings
    return [prefix + string for string in listed]


def slice_out(data: bytes, spans: NDArray[np.int64]) -> list[bytes]:
    """Cut back-to-back strings out of `data`."""
    ends = np.cumsum(spans, dtype=np.int64).tolist()
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def list_rows(matrix: NDArray[np.uint8]) -> list[bytes]:
    """The rows of a matrix as Python bytes."""
    rows = np.ascontiguousarray(matrix).view(np.dtype((np.void, matrix.shape[1])))
    return cast(list[bytes], rows.reshape(-1).tolist())
