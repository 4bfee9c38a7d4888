"""The log: every operation on base rows, and cuts that tear no write apart.

Law: reading the same range again gives the same operations, for as long as it is not truncated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewkeep.cells import CellOperation
from viewkeep.codec.packed import Packed
from viewkeep.stores.contract.cut import Cut

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """The logs of all nodes as one. Methods may be called from several threads."""

    @abstractmethod
    def head(self) -> Cut:
        """A cut that covers every write that returned before this call; it splits no write."""

    @abstractmethod
    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        """The latest cut in (start, stop] within this many operations and log bytes after start.

        If even the first write after `start` is larger than that, the cut just after it.
        """

    @abstractmethod
    def first_after(self, cut: Cut) -> int | None:
        """The moment of the oldest write that the cut lacks; None if it covers all.

        Raises EpochGone if log records after the cut were truncated. It waits for no writer.
        """

    @abstractmethod
    def read(
        self, node: int, start: int, stop: int, tables: frozenset[int] | None = None
    ) -> Iterator[LogBatch]:
        """The operations with start <= offset < stop, in batches of bounded size.

        Only those of `tables` if given. Operations of one table come in log order. Reading the
        same range again gives the same operations. Raises EpochGone if `start` was truncated.
        """

    def cells(
        self, node: int, start: int, stop: int, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        """The same operations on cells, of a store that says `Capabilities.cells`.

        In any order, and some of them more than once. Others, such as this default, have none.
        """
        raise NotImplementedError(f"{type(self).__name__} logs rows, not cells")

    @abstractmethod
    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        """Drop log records wholly before the cut, at most `budget` a call; True if more remain.

        The caller never passes a cut after the published one, nor after a pinned one.
        """
