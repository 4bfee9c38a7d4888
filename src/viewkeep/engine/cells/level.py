"""Level 0 of tables whose logs bring operations on cells: they are only routed by their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from viewkeep.cells import CellOperation
from viewkeep.engine.cells.travel import CellBox
from viewkeep.plan.nodes import CellSource
from viewkeep.plan.program import Program
from viewkeep.stores.contract import LogSplit, Store

_HELD: Final = 100_000  # operations of a box that is sent on, as amounts


def cell_sources(program: Program) -> Mapping[int, CellSource]:
    """The tables by number."""
    return {one.number: one for one in program.sources if isinstance(one, CellSource)}


def cell_boxes(
    store: Store, split: LogSplit, sources: Mapping[int, CellSource]
) -> Iterator[tuple[int, CellBox]]:
    """The operations in a split of a log, as boxes of one table each."""
    if split.is_empty or not sources:
        return
    boxes: dict[int, CellBox] = {}
    for operation in store.log.cells(split, frozenset(sources)):
        number = operation.table
        box = boxes.setdefault(number, CellBox())
        _take(box, operation, sources[number])
        if box.amount > _HELD:
            yield number, boxes.pop(number)
    yield from boxes.items()


def _take(box: CellBox, operation: CellOperation, source: CellSource) -> None:
    box.take(operation, source.rules)
