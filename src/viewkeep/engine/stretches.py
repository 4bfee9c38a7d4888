"""Which operations each task of level 0 takes: node logs, or stretches of them.

Changes of stretches of a log add up to those of the log, so it may be cut anywhere, between two
operations on one row too. That is what keeps all cores busy when most operations are of one row,
which lies in one log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from viewkeep.engine.epochs import OpenEpoch
from viewkeep.plan.program import Program

_SLACK = 1 / 8  # of a task's share: so much more or less to do is better than a log that is cut


class Stretch(NamedTuple):
    """The operations of one node log with start <= offset < stop."""

    node: int
    start: int
    stop: int

    def is_whole(self, epoch: OpenEpoch) -> bool:
        """Whether these are all operations that the epoch has of the log."""
        return self == _log(epoch, self.node)


def whole_logs(epoch: OpenEpoch) -> list[Stretch]:
    """All operations of an epoch, each log in one piece."""
    return [_log(epoch, node) for node in range(len(epoch.cut.offsets))]


def even_stretches(program: Program, epoch: OpenEpoch, tasks: int) -> Sequence[Sequence[Stretch]]:
    """All operations of an epoch, in about equal shares for some tasks.

    The logs are laid end to end and cut where a share ends; a cut close to the end of a log moves
    there. While feeds are being loaded no log is cut: its rows are loaded by the task that has it.
    Views that level 0 writes must be sent if their log is cut. That pays where logs are uneven,
    since few rows are left of many operations on one; else such logs stay whole.
    """
    logs = whole_logs(epoch)
    if epoch.loading or not epoch.operations:
        return [[log] for log in logs]
    if program.at_level(0):
        tasks = min(tasks, len(logs))
    share = epoch.operations / tasks
    shares: list[list[Stretch]] = [[] for _ in range(tasks)]
    done = 0
    for node, start, stop in logs:
        while start < stop:
            task = min(int(done / share + _SLACK), tasks - 1)
            room = (task + 1) * share - done
            is_rest = task == tasks - 1 or stop - start <= room + _SLACK * share
            end = stop if is_rest else start + math.ceil(room)
            shares[task].append(Stretch(node, start, end))
            done += end - start
            start = end
    return shares


def levels_to_run(program: Program, epoch: OpenEpoch, shares: Sequence[Sequence[Stretch]]) -> int:
    """The number of levels: if a log is cut, level 1 writes what level 0 does for whole ones."""
    are_whole = all(stretch.is_whole(epoch) for share in shares for stretch in share)
    return program.levels if are_whole else max(2, program.levels)


def _log(epoch: OpenEpoch, node: int) -> Stretch:
    return Stretch(node, epoch.start.offsets[node], epoch.cut.offsets[node])
