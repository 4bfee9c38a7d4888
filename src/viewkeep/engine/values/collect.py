"""Values put together (STRING_AGG, ARRAY_AGG) on one shard: the changed groups are read whole.

The result is as long as its group, so this costs what writing it costs. Groups whose values did not
change keep what they have.
"""

from __future__ import annotations

import polars as pl

from viewkeep.engine.values.ordered import ValueChanges
from viewkeep.ops.aggregates.accumulators import Output
from viewkeep.ops.aggregates.collect import collected, filled
from viewkeep.ops.aggregates.ordered import GROUP


def recollect(
    changes: ValueChanges, values: pl.DataFrame, old: pl.Series, output: Output
) -> pl.Series:
    """An output of all changed groups in order, given all values of those that changed."""
    made = collected(
        values, changes.order, len(old), output.function, output.parameters, output.distinct
    )
    touched = frozenset(changes.rows[GROUP].to_list())
    stays = pl.Series([group not in touched for group in range(len(old))], dtype=pl.Boolean)
    frame = pl.DataFrame([old.alias("old"), made.alias("made"), stays.alias("stays")])
    chosen = pl.when("stays").then("old").otherwise("made")
    return filled(frame.select(chosen.alias(output.name)).to_series())
