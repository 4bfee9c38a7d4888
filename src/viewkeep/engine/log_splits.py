"""Which operations each task of level 0 takes: node logs, or splits of them.

Changes of splits of a log add up to those of the log, so it may be cut anywhere, between two
operations on one row too. That is what keeps all cores busy when most operations are of one row,
which lies in one log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from viewkeep.engine.epochs import OpenEpoch
from viewkeep.plan.program import Program

_SLACK = 1 / 8  # of a share: a log that is larger by so much is not cut
_LEAST = 50_000  # operations of a share: a log is not cut for less


class LogSplit(NamedTuple):
    """The operations of one node log with start <= offset < stop."""

    node: int
    start: int
    stop: int

    @property
    def operations(self) -> int:
        return self.stop - self.start

    def is_whole(self, epoch: OpenEpoch) -> bool:
        """Whether these are all operations that the epoch has of the log."""
        return self == _log(epoch, self.node)


def whole_logs(epoch: OpenEpoch) -> list[LogSplit]:
    """All operations of an epoch, each log in one piece."""
    return [_log(epoch, node) for node in range(len(epoch.cut.offsets))]


def even_splits(program: Program, epoch: OpenEpoch) -> Sequence[Sequence[LogSplit]]:
    """All operations of an epoch, in shares for tasks: logs that hold more than one are cut.

    The epoch alone says where, so whoever runs it again adds up the same parts: sums of DOUBLEs
    are rounded with each. While feeds are being loaded no log is cut: its rows are loaded by the
    task that has it. Views that level 0 writes must be sent if their log is cut. That pays where
    logs are uneven, since few rows are left of many operations on one; else such logs stay whole.
    """
    logs = whole_logs(epoch)
    tasks = min(epoch.tasks, epoch.operations // _LEAST)
    if program.at_level(0):
        tasks = min(tasks, len(logs))
    if tasks < 2 or epoch.loading:
        return [[log] for log in logs]
    share = epoch.operations / tasks
    pieces = [piece for log in logs for piece in _pieces(log, share)]
    shares: list[list[LogSplit]] = [[] for _ in range(tasks)]
    taken = [0] * tasks
    for piece in sorted(pieces, key=lambda piece: -piece.operations):
        task = taken.index(min(taken))
        shares[task].append(piece)
        taken[task] += piece.operations
    return [share for share in shares if share]


def levels_to_run(program: Program, epoch: OpenEpoch, shares: Sequence[Sequence[LogSplit]]) -> int:
    """The number of levels: if a log is cut, level 1 writes what level 0 does for whole ones."""
    are_whole = all(split.is_whole(epoch) for share in shares for split in share)
    return program.levels if are_whole or not program.at_level(0) else max(2, program.levels)


def _pieces(log: LogSplit, share: float) -> list[LogSplit]:
    """A log in pieces of a share, the last one with what is left."""
    count = max(1, math.ceil(log.operations / share - _SLACK))
    ends = [log.start + round(number * share) for number in range(count)] + [log.stop]
    return [LogSplit(log.node, start, stop) for start, stop in pairwise(ends)]


def _log(epoch: OpenEpoch, node: int) -> LogSplit:
    return LogSplit(node, epoch.start.offsets[node], epoch.cut.offsets[node])
