"""The log: every operation on base rows, and cuts that tear no write apart.

Law: reading the same range again gives the same operations, for as long as it is not truncated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from viewkeep.cells import CellOperation
from viewkeep.codec.packed import Packed
from viewkeep.deferred import np
from viewkeep.stores.contract.cut import Cut

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LogSplit(NamedTuple):
    """The operations of one log with start <= position < stop; about how many there are.

    `part` is the part of the tables that all their rows lie in; None if that is not known.
    """

    log: str
    start: int
    stop: int
    operations: int
    part: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.start == self.stop


@dataclass(frozen=True)
class LogBatch:
    """Operations of one table out of one log, in log order.

    `before` is None for a store without before-images. `timestamps` holds one application
    timestamp per operation for stores that merge by timestamp, else None.
    """

    table: int
    offsets: NDArray[np.int64]  # position of each operation in its log
    kinds: NDArray[np.uint8]
    keys: Packed
    rows: Packed  # after-images; absent for DELETE
    before: Packed | None  # absent where there was no row
    timestamps: NDArray[np.int64] | None = None

    @property
    def size(self) -> int:
        """The bytes of all rows, before and after."""
        images = [self.rows] if self.before is None else [self.rows, self.before]
        return sum(int(image.spans.sum()) for image in images)


class Log(ABC):
    """All logs as one; each has a name. Methods may be called from several threads."""

    @abstractmethod
    def head(self) -> Cut:
        """A cut that covers every write that returned before this call; it splits no write."""

    @abstractmethod
    def kept(self) -> Cut:
        """The cut from which on the logs are kept; what lies before it was truncated."""

    @abstractmethod
    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        """The latest cut in (start, stop] within this many operations and log bytes after start.

        If even the first write after `start` is larger than that, the cut just after it.
        """

    @abstractmethod
    def first_after(self, cut: Cut) -> int | None:
        """When the oldest write that the cut lacks was stamped; None if it covers all.

        In nanoseconds since 1970. Raises EpochGone if log records after the cut were truncated. It
        waits for no writer.
        """

    def splits(self, start: Cut, stop: Cut) -> list[LogSplit]:
        """All operations between two cuts, each log in one piece, in an order that stays.

        Logs without operations there have an empty one. This default takes positions for counts.
        """
        spans = [(log, start.position(log), end) for log, end in sorted(stop.positions.items())]
        return [LogSplit(log, begin, end, end - begin) for log, begin, end in spans]

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        """A split in pieces of so many operations each; the last one has all that is left.

        The same pieces at every call. A store that cannot tell may give fewer, such as this
        default, which gives the split as it is.
        """
        return [split]

    @abstractmethod
    def read(self, split: LogSplit, tables: frozenset[int] | None = None) -> Iterator[LogBatch]:
        """The operations of a split, in batches of bounded size.

        Only those of `tables` if given. Operations of one table come in log order. Reading the
        same split again gives the same operations. Raises EpochGone if its start was truncated.
        """

    def cells(
        self, split: LogSplit, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        """The same operations on cells, of a store that says `Capabilities.cells`.

        In any order, and some of them more than once. Others, such as this default, have none.
        """
        raise NotImplementedError(f"{type(self).__name__} logs rows, not cells")

    def settled(self, cut: Cut) -> int | None:
        """The watermark of a cut as a timestamp of cells; None if there is none.

        No operation after the cut has a smaller timestamp, unless it repeats one before the cut. It
        is the same whenever it is asked, and never falls from one cut to a later one.
        """
        return None

    @abstractmethod
    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        """Drop log records wholly before the cut, at most `budget` a call; True if more remain.

        Of logs that the cut does not name nothing is dropped.

        The caller never passes a cut after the published one, nor after a pinned one.
        """
