"""What reads of tables, state and views return: rows as bytes, with their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from viewkeep.cells import CellOperation


@dataclass(frozen=True)
class Chunk:
    """Some rows of one table in key order. `more` tells whether the range holds further rows."""

    keys: list[bytes]
    rows: list[bytes]
    more: bool


@dataclass(frozen=True)
class CellChunk:
    """What a scan has found of the cells of one table: operations that make them.

    `last` is the key up to which rows were read; None if there were none left.
    """

    operations: Sequence[CellOperation]
    last: bytes | None
    more: bool


KeyRange: TypeAlias = tuple[bytes, bytes | None]  # start <= key < stop; None: no stop


@dataclass(frozen=True)
class Found:
    """Rows found by ranges, or prefixes, of their keys: which range, the key, the row."""

    places: list[int]
    keys: list[bytes]
    rows: list[bytes]


NONE = -1  # the place of no row

# What is read or held in parts is bounded by rows of at most so many bytes, about what a few
# numbers and their key take with Python's and polars' own costs; a wider row counts as several.
ROW_BYTES = 64


@dataclass(frozen=True)
class Floor:
    """The rows at or before some keys, with their own keys.

    `runs` tells of the keys asked for, in order: so many of them have the row at this place, or
    NONE. Neighbours with one low and one row are one run.
    """

    runs: list[tuple[int, int]]  # the place of a row, keys
    keys: list[bytes]
    rows: list[bytes]

    def add(self, place: int, count: int, is_new: bool) -> None:
        """The next keys have this row; `is_new`: their low is not that of the keys before."""
        if not is_new and self.runs and self.runs[-1][0] == place:
            count += self.runs.pop()[1]
        self.runs.append((place, count))


@dataclass(frozen=True)
class Changed:
    """Rows of one state table that some epochs have changed, in key order.

    `versions[i]` are those of `keys[i]` as (epoch, row or None), oldest first: the row as of the
    epoch asked from, then every version that differs from the one before it. `more` tells whether
    further rows of the range have changed.
    """

    keys: list[bytes]
    versions: list[list[tuple[int, bytes | None]]]
    more: bool
