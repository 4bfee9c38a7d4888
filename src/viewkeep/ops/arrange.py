"""Arrange: the rows of a delta as puts and deletes of a keyed state table.

Law: a key identifies at most one row before and one after, so a consolidated delta has at most one
row of weight -1 and one of weight +1 under each key: the latter is put, a lone former deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from viewkeep.codec.key_order import order, rising
from viewkeep.codec.packed import Packed
from viewkeep.codec.physical import packed_series
from viewkeep.deferred import pl
from viewkeep.delta import KEY, WEIGHT, consolidate
from viewkeep.errors import PipelineError

ROW = "#row"
_DOUBLED = "two rows of a view share one key: its input has doubled rows"
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

    keys: Packed
    rows: Packed
    are_new: bool  # no key had a row before


def changes_of(delta: pl.DataFrame) -> Changes:
    """What a delta of encoded rows does to their table."""
    return keyed(net_rows(delta))


def keyed(net: pl.DataFrame) -> Changes:
    """What a delta of encoded rows that are added up already does to their table."""
    goes = net[WEIGHT] < 0
    are_new = not goes.any()
    rows = net if are_new else _put_and_gone(net, goes)
    keys, held = packed_series(rows[KEY]), packed_series(rows[ROW])
    if not rising(keys):
        places = order(keys)
        keys, held = keys.take(places), held.take(places)
    if not rising(keys) or (net[WEIGHT] > 1).any():
        raise PipelineError(_DOUBLED)
    return Changes(keys, held, are_new)


def _put_and_gone(net: pl.DataFrame, goes: pl.Series) -> pl.DataFrame:
    """What comes, and the keys of what goes and does not come again, with NULL for their rows."""
    gone, comes = net.filter(goes), net.filter(~goes)
    gone = gone.join(comes.select(KEY), on=KEY, how="anti")
    return pl.concat([comes, gone.with_columns(pl.lit(None, pl.Binary).alias(ROW))])
