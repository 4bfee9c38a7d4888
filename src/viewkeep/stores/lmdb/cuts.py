"""Cuts over all nodes: the newest one, and the latest one within a budget.

Law: a cut taken here never splits a `write` call. `head` sees to it by holding the write locks of
all nodes for a moment, once no write is half committed (`redo`); `bounded_cut` by choosing a
moment, which all operations of a call share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

from viewkeep.errors import EpochGone
from viewkeep.stores.contract import Cut
from viewkeep.stores.lmdb import log, redo
from viewkeep.stores.lmdb.environment import Environment, Transaction, translated
from viewkeep.stores.lmdb.last_commit import forget_unmade, make_durable


def head(nodes: Sequence[Environment]) -> Cut:
    """The cut after every write that has returned."""
    while (cut := _whole_head(nodes)) is None:
        redo.complete(nodes)
    return cut


def _whole_head(nodes: Sequence[Environment]) -> Cut | None:
    """The end of all logs; None if a writer that died has left a write half committed."""
    with translated, ExitStack() as stack:
        ends = []
        for node in nodes:
            stack.enter_context(node.lock)
            txn = node.begin(write=True, buffers=True)
            stack.callback(txn.abort)
            make_durable(node, txn.id() - 1)
            forget_unmade(node, txn)
            ends.append((node, txn))
        if redo.any_pending(nodes):
            return None
        positions = [log.end(node, txn) for node, txn in ends]
    return cut_at(
        max(position.moment for position in positions),
        tuple(position.offset for position in positions),
    )


def kept(nodes: Sequence[Environment]) -> Cut:
    """The cut from which on all logs are kept."""
    floors = []
    for node in nodes:
        with node.reading() as txn:
            floors.append(log.floor(node, txn))
    return cut_at(
        max(position.moment for position in floors), [position.offset for position in floors]
    )


def name(node: int) -> str:
    """The name of a node's log; that of its folder."""
    return f"node-{node}"


def number(log: str) -> int:
    """The node whose log has this name."""
    return int(log.removeprefix("node-"))


def cut_at(moment: int, offsets: Sequence[int]) -> Cut:
    """The cut at these offsets of all node logs, whose watermark is a moment."""
    return Cut(_named(enumerate(offsets)), moment, sum(offsets), begun=1)


def cut_of_write(ends: Mapping[int, int]) -> Cut:
    """The cut of a write: the ends of the logs that it touched."""
    return Cut(_named(ends.items()), begun=1)


def offsets_of(cut: Cut, nodes: int) -> tuple[int, ...]:
    """Where a cut lies in the log of each node."""
    return tuple(cut.position(name(node)) for node in range(nodes))


def _named(ends: Iterable[tuple[int, int]]) -> dict[str, int]:
    return {name(node): end for node, end in ends}


def first_after(nodes: Sequence[Environment], cut: Cut) -> int | None:
    """The moment of the oldest write after a cut, or None."""
    found = []
    for node, offset in zip(nodes, offsets_of(cut, len(nodes)), strict=True):
        with node.reading() as txn:
            if offset < (begins := log.floor(node, txn).offset):
                raise EpochGone(f"the log is kept from operation {begins}; {offset} was asked for")
            moment = log.first_moment(node, txn, offset)
        if moment is not None:
            found.append(moment)
    return min(found, default=None)


def bounded_cut(
    nodes: Sequence[Environment], start: Cut, stop: Cut, operations: int, size: int
) -> Cut:
    """The latest cut in (start, stop] within a budget, but at least one write."""
    with translated, ExitStack() as stack:
        snapshots = [(node, stack.enter_context(node.begin(buffers=True))) for node in nodes]
        reach = _Reach(snapshots, start, stop, operations, size)
        if reach.fits(reach.stop):
            return stop
        moments = [
            log.first_moment(node, txn, low)
            for (node, txn), low, high in zip(snapshots, reach.start, reach.stop, strict=True)
            if low < high
        ]
        first = min((moment for moment in moments if moment is not None), default=stop.watermark)
        # A clock that was set back may stamp a write no later than the cut before it; all such
        # writes go together.
        low_moment = max(first, start.watermark + 1)
        high_moment = stop.watermark
        if low_moment >= high_moment:
            return stop
        # low_moment is always taken; find the last moment that fits below high_moment.
        while high_moment - low_moment > 1:
            middle = (low_moment + high_moment) // 2
            if reach.fits(reach.offsets(middle)):
                low_moment = middle
            else:
                high_moment = middle
        return cut_at(low_moment, reach.offsets(low_moment))


class _Reach:
    """How far a moment reaches into each log, and whether that is within the budget."""

    def __init__(
        self,
        snapshots: Sequence[tuple[Environment, Transaction]],
        start: Cut,
        stop: Cut,
        operations: int,
        size: int,
    ):
        self.snapshots = snapshots
        self.start, self.stop = (offsets_of(cut, len(snapshots)) for cut in (start, stop))
        self.operations, self.size = operations, size
        self.bytes_at_start = self._bytes(self.start)

    def offsets(self, moment: int) -> tuple[int, ...]:
        return tuple(
            log.position_at(node, txn, moment, low, high)
            for (node, txn), low, high in zip(self.snapshots, self.start, self.stop, strict=True)
        )

    def fits(self, offsets: tuple[int, ...]) -> bool:
        if sum(offsets) - sum(self.start) > self.operations:
            return False
        return self._bytes(offsets) - self.bytes_at_start <= self.size

    def _bytes(self, offsets: tuple[int, ...]) -> int:
        return sum(
            log.bytes_before(node, txn, offset)
            for (node, txn), offset in zip(self.snapshots, offsets, strict=True)
        )
