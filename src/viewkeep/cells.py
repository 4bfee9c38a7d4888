"""Cell operations: what a log of timestamped cells says, in whatever order and however often.

Law: the rows of a table are a function of the *set* of its cell operations. Their order, their
number and the log that brought them mean nothing; timestamps and the tie rule of the store decide
(`ops/cells` has the algebra). Keys and values are bytes: keys as `codec.keys` writes them, values
as the store does, since some stores break ties by comparing them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

# A column by its position in the table's schema, and its value; None deletes the cell.
Cell: TypeAlias = tuple[int, bytes | None]


class CellKind(enum.IntEnum):
    """What an operation does. The numbers are part of the form in which operations travel."""

    PUT = 1  # some cells of a row
    DELETE_CELLS = 2  # of some columns, every version at or before the timestamp
    DELETE_VERSIONS = 3  # of some columns, the version of exactly this timestamp
    DELETE_ROW = 4  # every cell of a row at or before the timestamp
    DELETE_RANGE = 5  # the same of every row with key <= its key < stop


class TieRule(enum.Enum):
    """Which of two values of a cell with one timestamp wins. A deletion wins over both."""

    SEQUENCE = "sequence"  # the one that the store took later, as HBase does
    VALUE = "value"  # the larger as bytes, as Cassandra does


@dataclass(frozen=True)
class CellRules:
    """How a store merges cells.

    With `versions`, DELETE_VERSIONS may uncover an older version of a cell (HBase). `grace` is how
    far below the watermark, in units of the timestamps, tombstones are kept.
    """

    ties: TieRule = TieRule.SEQUENCE
    versions: bool = False
    grace: int = 0


@dataclass(frozen=True, slots=True)
class CellOperation:
    """One operation, with one timestamp for all that it touches.

    A PUT with `is_insert` says that the row exists, even while all its cells are NULL; a row is
    there while that or any cell outlives the deletions. The cells of key columns are never listed:
    `key` has their values, or `whole_key` where the store's key is a cut one.
    """

    table: int
    kind: CellKind
    key: bytes  # of the row; of a range, where it starts
    timestamp: int
    cells: tuple[Cell, ...] = ()
    sequence: int = 0  # in which order the store took operations on a cell; 0 if it does not tell
    is_insert: bool = False
    stop: bytes | None = None  # of a range; None: there is no end
    whole_key: bytes | None = None

    def __post_init__(self) -> None:
        if self.stop is not None and self.kind is not CellKind.DELETE_RANGE:
            raise ValueError("an operation on one row has no stop")
        if self.is_insert and self.kind is not CellKind.PUT:
            raise ValueError("only a PUT inserts")


def put(
    table: int,
    key: bytes,
    timestamp: int,
    cells: Iterable[Cell] = (),
    *,
    is_insert: bool = False,
    sequence: int = 0,
    whole_key: bytes | None = None,
) -> CellOperation:
    """Values for some cells of a row; a value of None deletes the cell."""
    return CellOperation(
        table,
        CellKind.PUT,
        key,
        timestamp,
        tuple(sorted(cells)),
        sequence,
        is_insert,
        whole_key=whole_key,
    )


def delete_cells(table: int, key: bytes, timestamp: int, columns: Iterable[int]) -> CellOperation:
    """Every version at or before the timestamp, of some columns."""
    cells = tuple((column, None) for column in sorted(columns))
    return CellOperation(table, CellKind.DELETE_CELLS, key, timestamp, cells)


def delete_versions(
    table: int, key: bytes, timestamp: int, columns: Iterable[int]
) -> CellOperation:
    """The version of exactly this timestamp, of some columns."""
    cells = tuple((column, None) for column in sorted(columns))
    return CellOperation(table, CellKind.DELETE_VERSIONS, key, timestamp, cells)


def delete_row(table: int, key: bytes, timestamp: int) -> CellOperation:
    """Every cell of a row at or before the timestamp."""
    return CellOperation(table, CellKind.DELETE_ROW, key, timestamp)


def delete_range(table: int, start: bytes, stop: bytes | None, timestamp: int) -> CellOperation:
    """Every cell at or before the timestamp, of rows with start <= key < stop."""
    return CellOperation(table, CellKind.DELETE_RANGE, start, timestamp, stop=stop)
