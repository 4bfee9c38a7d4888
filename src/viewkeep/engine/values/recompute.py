"""Functions of all values of a group (STRING_AGG, ARRAY_AGG): changed groups are read whole.

A result is as long as its group, so this costs what writing it costs. Law: groups whose values did
not change keep what they have.
"""

from __future__ import annotations

from viewkeep.deferred import pl
from viewkeep.engine.values.ordered import ValueChanges
from viewkeep.ops.aggregates.function import Output
from viewkeep.ops.aggregates.ordered import GROUP


def recompute(
    changes: ValueChanges,
    values: pl.DataFrame,
    old: pl.DataFrame,
    new: pl.DataFrame,
    output: Output,
) -> pl.Series:
    """An output of all changed groups in order, given all values of those that changed.

    `old` and `new` are the groups' rows as they were, and what is known of them as they are.
    """
    made = output.function.of_values(values, new, output)
    touched = frozenset(changes.rows[GROUP].to_list())
    stays = pl.Series([group not in touched for group in range(old.height)], dtype=pl.Boolean)
    before = old[output.name].alias("old")
    frame = pl.DataFrame([before, made.alias("made"), stays.alias("stays")])
    chosen = pl.when("stays").then("old").otherwise("made")
    return output.function.of_none(frame.select(chosen.alias(output.name)).to_series())
