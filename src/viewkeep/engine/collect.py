"""Values put together (STRING_AGG, ARRAY_AGG) on one shard: the changed groups are read whole.

The result is as long as its group, so this costs what writing it costs. Groups whose values did not
change keep what they have.
"""

from __future__ import annotations

import polars as pl

from viewkeep.delta import KEY
from viewkeep.engine.ordered import Changes
from viewkeep.ops.aggregate import Output
from viewkeep.ops.collect import collected, filled
from viewkeep.ops.ordered import GROUP


def values_of(changes: Changes) -> pl.DataFrame:
    """All values of the groups in which some changed, as they are after the epoch."""
    changed = frozenset(changes.rows[KEY].to_list())
    groups: list[int] = []
    rows: list[bytes] = []
    for group in changes.rows[GROUP].unique().sort().to_list():
        for key, row in changes.scan(group, b"", None):
            if key not in changed:
                groups.append(group)
                rows.append(row)
    wanted = [GROUP, *changes.order.schema]
    stored = changes.table.row_codec.decode(rows)
    stored = stored.with_columns(pl.Series(GROUP, groups, pl.Int64)).select(wanted)
    return pl.concat([stored, changes.rows.select(wanted)])


def recollect(changes: Changes, values: pl.DataFrame, old: pl.Series, output: Output) -> pl.Series:
    """An output of all changed groups in order, given the `values_of` them."""
    made = collected(
        values, changes.order, len(old), output.function, output.parameters, output.distinct
    )
    touched = frozenset(changes.rows[GROUP].to_list())
    stays = pl.Series([group not in touched for group in range(len(old))], dtype=pl.Boolean)
    frame = pl.DataFrame([old.alias("old"), made.alias("made"), stays.alias("stays")])
    chosen = pl.when("stays").then("old").otherwise("made")
    return filled(frame.select(chosen.alias(output.name)).to_series())
