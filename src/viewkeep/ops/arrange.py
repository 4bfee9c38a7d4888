"""Arrange: the rows of a delta as puts and deletes of a keyed state table.

Law: a key identifies at most one row before and one after, so a consolidated delta has at most one
row of weight -1 and one of weight +1 under each key: the latter is put, a lone former deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from viewkeep.delta import KEY, WEIGHT, consolidate
from viewkeep.errors import PipelineError

ROW = "#row"


@dataclass(frozen=True)
class KeyedChanges:
    """Rows to write under distinct keys; None deletes."""

    keys: list[bytes]
    rows: list[bytes | None]


def net_changes(delta: pl.DataFrame) -> KeyedChanges:
    """The net effect of a delta of encoded rows (`#key`, `#row`, `#weight`)."""
    return keyed(consolidate(delta, [KEY, ROW])) if delta.height else KeyedChanges([], [])


def keyed(summed: pl.DataFrame) -> KeyedChanges:
    """What a consolidated delta of encoded rows puts and deletes."""
    puts = summed.filter(pl.col(WEIGHT) > 0)
    goes = summed.filter(pl.col(WEIGHT) < 0)
    keys = puts[KEY].to_list()
    put_keys = set(keys)
    if len(put_keys) != len(keys) or puts.filter(pl.col(WEIGHT) > 1).height:
        raise PipelineError("two rows of a view share one key: its input has doubled rows")
    rows: list[bytes | None] = puts[ROW].to_list()
    gone = [key for key in goes[KEY].to_list() if key not in put_keys]
    return KeyedChanges(keys + gone, rows + [None] * len(gone))
