"""Base tables: the rows that applications write, as they are now or were at a cut.

Law: a write is refused whole or done whole, and a cut holds all of it or nothing.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from viewkeep.codec.patterns import KeyPattern
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import StoreError
from viewkeep.stores.contract.cut import Cut
from viewkeep.stores.contract.named import NamedTable
from viewkeep.stores.contract.rows import CellChunk, Chunk


class Kind(enum.IntEnum):
    """What an operation does to its row. The numbers are part of the log format."""

    PUT = 1
    DELETE = 2


ABSENT: Literal["absent"] = "absent"


@dataclass(frozen=True)
class TableWrite:
    """Operations of one kind on rows of one table, in order.

    `rows` (PUT only) are whole rows encoded by `codec`. With `columns`, only those columns (by
    position) are taken from `rows`; the others keep their value, or in a new row have that of the
    codec's `blank` row.
    `existing_only` leaves rows that do not exist alone. `expect` makes the whole call conditional:
    ABSENT refuses if any key exists (or is written twice), a list gives the row bytes each key
    must hold (None: no row) when its operation's turn comes, after the call's earlier operations.
    """

    table: int
    codec: RowCodec
    kind: Kind
    keys: Sequence[bytes]
    rows: Sequence[bytes] | None = None
    columns: tuple[int, ...] | None = None
    existing_only: bool = False
    expect: Literal["absent"] | Sequence[bytes | None] | None = None


class Tables(ABC):
    """Base tables, spread over parts. Methods may be called from several threads."""

    parts: int  # in which tables are scanned; each row lies in one

    def adopt(self, shape: NamedTable) -> None:
        """Make ready for a table that is about to be created; calling it again is harmless.

        Raises for options that the store does not have, as this default does for any.
        """
        if shape.options:
            raise StoreError(
                f"this store has tables of its own: create {shape.name} without USING and OPTIONS"
            )

    @abstractmethod
    def write(self, writes: Sequence[TableWrite]) -> Cut:
        """Apply operations and log them; return the cut of this write.

        It names the logs that were touched: what covers it covers the write.

        The call is refused whole (Conflict, DuplicateKey, InvalidRow, StoreFull) or done whole;
        base row and log record of a row are one transaction. All operations of one call share one
        moment, so no cut splits them. When the call returns, the operations survive what the
        database's durability says. A writer that dies inside the call leaves it
        to be done whole or not at all: every cut, and every write that follows, sees it so.
        """

    @abstractmethod
    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        """The rows of these keys, in the order of `keys`: the current ones, or as in `scan` `at`.

        With `at`, the log after it is read once for all keys of a part.
        """

    @abstractmethod
    def scan(
        self,
        part: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: Cut | None = None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        """Up to `limit` rows of one part with start <= key < stop, in key order.

        With `only`, those whose keys match the pattern; what lies between is passed over by seeks.
        With `at`, the rows as they were at that cut: current rows overlaid with the earliest
        before-images logged after it. Raises EpochGone if the log no longer reaches back to it.
        """

    def scan_cells(self, part: int, table: int, *, start: bytes, limit: int) -> CellChunk:
        """The cells of up to `limit` rows of one part with keys from `start` on, as they are now.

        Of a store that says `Capabilities.cells`. What was written before the call is in it, or was
        overwritten or deleted since. The first chunk also has deletions that operations which may
        still come, late or again, would need to meet. A cell may be newer than its timestamp says
        if it was not changed since. Scan and log may overlap: they are merged.
        """
        raise NotImplementedError(f"{type(self).__name__} has rows, not cells")

    def may_have_rows(self, part: int, table: int, at: Cut) -> bool:
        """Whether a part of a table may have had rows at a cut; False only if it had none.

        A table that is older than its log has rows before its first operation, so this default
        says True. A store that knows better saves a new view from reading through nothing.
        """
        return True

    @abstractmethod
    def drop(self, table: int, budget: int = 10_000) -> bool:
        """Remove base rows of a dropped table, unlogged, within a budget; True if more remain."""

    @abstractmethod
    def check_counts(self, part: int) -> None:
        """Corrupt if a part's rows or log are not as many records as the store has counted.

        For verification: reads may not notice damage that hides records which nothing leads to.
        """
