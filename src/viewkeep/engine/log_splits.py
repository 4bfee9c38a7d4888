"""Which operations each task of level 0 takes: node logs, or splits of them.

Changes of splits of a log add up to those of the log, so it may be cut anywhere, between two
operations on one row too. That is what keeps all cores busy when most operations are of one row,
which lies in one log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from viewkeep.engine.epochs import OpenEpoch
from viewkeep.plan.program import Program
from viewkeep.stores.contract import BEGINNING, LogSplit, Store

_SLACK = 1 / 8  # of a share: a log that is larger by so much is not cut
_LEAST = 50_000  # operations of a share: a log is not cut for less


def is_whole(epoch: OpenEpoch, split: LogSplit) -> bool:
    """Whether a split has all operations that the epoch has of its log."""
    begin, end = epoch.start.position(split.log), epoch.cut.position(split.log)
    return (split.start, split.stop) == (begin, end)


def writes_local(store: Store, epoch: OpenEpoch, split: LogSplit) -> bool:
    """Whether the task of a split writes views that are keyed like their base table itself.

    It does if nobody else has changes of their rows, nor writes their shards at level 0.
    """
    return store.capabilities.aligned and split.part is not None and is_whole(epoch, split)


def whole_logs(store: Store, epoch: OpenEpoch) -> list[LogSplit]:
    """All operations of an epoch, each log in one piece; without any log, one empty split."""
    return store.log.splits(epoch.start, epoch.cut) or [LogSplit("", BEGINNING, BEGINNING, 0)]


def is_first(store: Store, epoch: OpenEpoch, split: LogSplit) -> bool:
    """Whether this is the split whose task also does what belongs to no log, once an epoch."""
    first = whole_logs(store, epoch)[0]
    return (split.log, split.start) == (first.log, first.start)


def parts_to_load(store: Store, epoch: OpenEpoch, split: LogSplit) -> Sequence[int]:
    """The parts of tables whose rows the task of a split loads; each part has one such task."""
    if split.part is not None:
        return (split.part,)
    return range(store.tables.parts) if is_first(store, epoch, split) else ()


def even_splits(store: Store, program: Program, epoch: OpenEpoch) -> Sequence[Sequence[LogSplit]]:
    """All operations of an epoch, in shares for tasks: logs that hold more than one are cut.

    The epoch alone says where, so whoever runs it again adds up the same parts: sums of DOUBLEs
    are rounded with each. While feeds are being loaded no log is cut: its rows are loaded by the
    task that has it. Views that level 0 writes must be sent if their log is cut. That pays where
    logs are uneven, since few rows are left of many operations on one; else such logs stay whole.
    """
    logs = whole_logs(store, epoch)
    tasks = min(epoch.tasks, epoch.operations // _LEAST)
    if program.at_level(0):
        tasks = min(tasks, len(logs))
    if tasks < 2 or epoch.loading:
        return [[log] for log in logs]
    share = epoch.operations / tasks
    pieces = [piece for log in logs for piece in _pieces(store, log, share)]
    shares: list[list[LogSplit]] = [[] for _ in range(tasks)]
    taken = [0] * tasks
    for piece in sorted(pieces, key=lambda piece: -piece.operations):
        task = taken.index(min(taken))
        shares[task].append(piece)
        taken[task] += piece.operations
    return [share for share in shares if share]


def levels_to_run(
    store: Store, program: Program, epoch: OpenEpoch, shares: Sequence[Sequence[LogSplit]]
) -> int:
    """The number of levels: if a log is cut, level 1 writes what level 0 does for whole ones."""
    if not program.at_level(0):
        return program.levels
    all_local = all(writes_local(store, epoch, split) for share in shares for split in share)
    return program.levels if all_local else max(2, program.levels)


def _pieces(store: Store, log: LogSplit, share: float) -> list[LogSplit]:
    """A log in pieces of a share, the last one with what is left."""
    count = max(1, math.ceil(log.operations / share - _SLACK))
    ends = [round(number * share) for number in range(count)] + [log.operations]
    sizes = [stop - start for start, stop in pairwise(ends)]
    return [log] if count == 1 else store.log.divide(log, sizes)
