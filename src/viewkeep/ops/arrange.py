"""Arrange: the rows of a delta as puts and deletes of a keyed state table.

Law: a key identifies at most one row before and one after, so a consolidated delta has at most one
row of weight -1 and one of weight +1 under each key: the latter is put, a lone former deleted.
"""

from __future__ import annotations

import polars as pl

from viewkeep.codec.keys import rising
from viewkeep.delta import KEY, WEIGHT, consolidate
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


def _changes_of_few(rows: pl.DataFrame, goes: list[bool]) -> pl.DataFrame:
    """What comes, and the keys of what goes and does not come again; as `keyed` does it."""
    keys = rows[KEY].to_list()
    comes = {key for key, leaves in zip(keys, goes, strict=True) if not leaves}
    places = [i for i, key in enumerate(keys) if not (goes[i] and key in comes)]
    places.sort(key=keys.__getitem__)
    chosen = rows[places]
    held = [None if goes[i] else row for i, row in zip(places, chosen[ROW], strict=True)]
    row = pl.Series(ROW, held, pl.Binary)
    return pl.DataFrame([row if column.name == ROW else column for column in chosen])


def keyed(net: pl.DataFrame) -> pl.DataFrame:
    """What a net delta of encoded rows puts, and what it deletes (`#row` NULL), in key order."""
    weights = net[WEIGHT]
    changes = pl.DataFrame([column for column in net if column.name != WEIGHT])
    goes = weights < 0
    if goes.any() and net.height <= _FEW:
        changes = _changes_of_few(changes, goes.to_list())
    elif goes.any():
        gone, changes = changes.filter(goes), changes.filter(~goes)
        gone = gone.join(changes.select(KEY), on=KEY, how="anti")
        changes = pl.concat([changes, gone.with_columns(pl.lit(None, pl.Binary).alias(ROW))])
    in_order = rising(changes[KEY])
    if not in_order:
        changes = changes.sort(KEY)
        in_order = rising(changes[KEY])
    if not in_order or (weights > 1).any():
        raise PipelineError("two rows of a view share one key: its input has doubled rows")
    return changes
