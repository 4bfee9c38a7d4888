"""Level 0 of tables whose logs bring operations on cells: they are only routed by their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from viewkeep.cells import CellOperation
from viewkeep.engine.cells.travel import CellBox
from viewkeep.engine.epochs import OpenEpoch
from viewkeep.plan.nodes import CellSource
from viewkeep.plan.program import Operator, Program
from viewkeep.stores.contract import Cut, LogSplit, Store

_HELD: Final = 100_000  # operations of a box that is sent on, as amounts


def cell_sources(program: Program) -> Mapping[int, CellSource]:
    """The tables by number."""
    return {one.number: one for one in program.sources if isinstance(one, CellSource)}


def purge_below(store: Store, cut: Cut) -> int | None:
    """The timestamp below which nothing new comes after a cut, less the store's grace."""
    rules = store.capabilities.cells
    settled = None if rules is None else store.log.settled(cut)
    return None if rules is None or settled is None else settled - rules.grace


def purging(store: Store, epoch: OpenEpoch, program: Program) -> Iterator[Operator]:
    """The DELTAs that purge on every shard: all, if the watermark has risen in this epoch."""
    if purge_below(store, epoch.cut) != purge_below(store, epoch.start):
        for number in cell_sources(program):
            yield from (operator for operator, _ in program.consumers(f"table:{number}"))


def cell_boxes(
    store: Store, epoch: OpenEpoch, split: LogSplit, sources: Mapping[int, CellSource]
) -> Iterator[tuple[int, CellBox]]:
    """The operations in a split of a log, as boxes of one table each.

    Those below the watermark of the cut before repeat others: the deletions that they would have to
    meet may have been purged, so they are left out.
    """
    if split.is_empty or not sources:
        return
    boxes: dict[int, CellBox] = {}
    old = purge_below(store, epoch.start)
    for operation in store.log.cells(split, frozenset(sources)):
        if old is not None and operation.timestamp < old:
            continue
        number = operation.table
        box = boxes.setdefault(number, CellBox())
        box.take(operation, sources[number].rules)
        if box.amount > _HELD:
            yield number, boxes.pop(number)
    yield from boxes.items()


def operations_between(
    store: Store, start: Cut, stop: Cut, source: CellSource
) -> Iterator[CellOperation]:
    """The operations on one table between two cuts."""
    for split in store.log.splits(start, stop):
        if not split.is_empty:
            yield from store.log.cells(split, frozenset([source.number]))
