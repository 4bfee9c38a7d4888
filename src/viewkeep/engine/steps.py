"""Stateless steps between a producer and a consumer: SELECTION and PROJECTION on a delta.

Law: a step looks at one row at a time and keeps its weight and key, so steps may run on the rows of
a delta, of a chunk that is loaded, or of state, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeep.deferred import pl
from viewkeep.delta import HOME, KEY, WEIGHT
from viewkeep.ops.evaluate import filter_rows, project
from viewkeep.plan.program import Step

PLACE = "#place"  # which of several things looked for a row was found by
_CARRIED = (KEY, HOME, WEIGHT, PLACE)


def run_steps(steps: Sequence[Step], delta: pl.DataFrame) -> pl.DataFrame:
    """The rows that come out of the steps, with their weights and keys."""
    for step in steps:
        if delta.height == 0:
            return delta
        if isinstance(step, tuple):
            delta = project(delta, step, keep=[n for n in _CARRIED if n in delta.columns])
        else:
            delta = filter_rows(delta, step)
    return delta
