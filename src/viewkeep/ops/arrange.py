"""Arrange: the rows of a delta as puts and deletes of a keyed state table.

Law: a key identifies at most one row before and one after, so a consolidated delta has at most one
row of weight -1 and one of weight +1 under each key: the latter is put, a lone former deleted.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from viewkeep.codec.many import order, rising
from viewkeep.codec.packed import Packed
from viewkeep.codec.physical import packed_series
from viewkeep.delta import KEY, WEIGHT, consolidate, without
from viewkeep.errors import PipelineError

ROW = "#row"
_FEW = 1_000  # rows up to which Python's own loops are faster than queries
ENCODED = "#encoded"  # the bytes of rows, where they were made for many who need them


def net_rows(delta: pl.DataFrame) -> pl.DataFrame:
    """The delta of encoded rows (`#key`, `#row`, `#weight`) with equal rows added up.

    Where nothing goes, no row can have come twice: by the law a second one would replace it.
    """
    if delta.height == 0 or delta[WEIGHT].min() == 1:
        return delta
    return consolidate(delta, [name for name in delta.columns if name != WEIGHT])


class Changes(NamedTuple):
    """What a delta does to a keyed table, in key order: a row of None is deleted."""

    keys: list[bytes] | Packed
    rows: list[bytes | None] | Packed
    are_new: bool  # no key had a row before


def keyed(net: pl.DataFrame) -> Changes:
    """What a net delta of encoded rows puts, and what it deletes."""
    goes = net[WEIGHT] < 0
    are_new = not goes.any()
    rows = without(net, WEIGHT)
    keys: list[bytes] | Packed
    held: list[bytes | None] | Packed
    if net.height <= _FEW:
        keys, held = _changes_of_few(rows, goes.to_list())
    else:
        keys, held = _changes_of_many(rows if are_new else _put_and_gone(rows, goes))
    if not rising(keys) or (net[WEIGHT] > 1).any():
        raise PipelineError("two rows of a view share one key: its input has doubled rows")
    return Changes(keys, held, are_new)


def _changes_of_few(rows: pl.DataFrame, goes: list[bool]) -> tuple[list[bytes], list[bytes | None]]:
    keys, held = rows[KEY].to_list(), rows[ROW].to_list()
    comes = {key for key, leaves in zip(keys, goes, strict=True) if not leaves}
    places = [i for i, key in enumerate(keys) if not (goes[i] and key in comes)]
    places.sort(key=keys.__getitem__)
    return [keys[i] for i in places], [None if goes[i] else held[i] for i in places]


def _put_and_gone(rows: pl.DataFrame, goes: pl.Series) -> pl.DataFrame:
    """What comes, and the keys of what goes and does not come again, with NULL for their rows."""
    gone, comes = rows.filter(goes), rows.filter(~goes)
    gone = gone.join(comes.select(KEY), on=KEY, how="anti")
    return pl.concat([comes, gone.with_columns(pl.lit(None, pl.Binary).alias(ROW))])


def _changes_of_many(rows: pl.DataFrame) -> tuple[Packed, Packed]:
    keys, held = packed_series(rows[KEY]), packed_series(rows[ROW])
    if not rising(rows[KEY]):
        places = order(keys)
        keys, held = keys.take(places), held.take(places)
    return keys, held
