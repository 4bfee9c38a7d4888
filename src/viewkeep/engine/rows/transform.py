"""Filters and projections as one generated loop over rows.

Law: what comes out is what `engine.steps` gives, with the keys and weights that came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from viewkeep.codec.rowsource import Generated, compiled, tuple_source, variables
from viewkeep.ops.rowcode import RowWriter
from viewkeep.plan.program import Step


def row_writer(shape: Sequence[str], needed: frozenset[str], steps: Sequence[Step]) -> RowWriter:
    """A writer in a loop over rows with these columns, after the steps."""
    places = [place for place, name in enumerate(shape) if name in needed]
    cells = variables([shape[place] for place in places])
    writer = RowWriter({shape[place]: cell for place, cell in zip(places, cells, strict=True)})
    writer.lines += [f"{cell} = values[{at}]" for at, cell in zip(places, cells, strict=True)]
    for step in steps:
        if isinstance(step, tuple):
            writer.project(step)
        else:
            writer.keep_if(step)
    return writer


@lru_cache(10_000)
def transform(
    shape: tuple[str, ...], needed: frozenset[str], steps: tuple[Step, ...], shown: tuple[str, ...]
) -> Generated | None:
    """`transform(rows)`: rows of `shape` after the steps, with the columns `shown`.

    None if they come out as they go in. NoRowForm if a step has no row form.
    """
    if not steps and shape == shown:
        return None
    writer = row_writer(shape, needed, steps)
    cells = tuple_source([writer.column(name).source for name in shown])
    lines = ["def transform(rows):", "    made = []", "    for key, values, weight in rows:"]
    lines += [f"        {line}" for line in writer.lines]
    lines += [f"        made.append((key, {cells}, weight))", "    return made"]
    return compiled(lines, writer.names)
