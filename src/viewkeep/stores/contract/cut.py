"""Cuts: consistent positions in all logs of a store.

A cut is opaque above the store. It says how far each log is read, by the log's name; logs come and
go while a database lives. Nobody but the log itself takes a position for more than a number that
grows: positions of two logs are never compared, and one log's may have gaps.

What it means that a cut does not name a log is decided here, in `position` and `covers`, and
nowhere else. A log that the cut does not know yet, since it began later, is read from its
beginning. One that it does know has ended: all of it is covered. Logs are numbered as they begin,
and a cut says how many had, which tells the two apart.

Law: names are never used again, and a log that has ended stays in cuts, at its end, until
`Log.truncate` has dropped all of it. So between two cuts nothing is lost of a log that only the
earlier one names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from viewkeep.stores.contract.records import record_from

BEGINNING = 0  # the position before the first operation of any log


@dataclass(frozen=True)
class Cut:
    """How far every log is read: the operations before a position, and none after.

    `watermark` is in nanoseconds since 1970, by the stamps that the store gives to writes: it never
    falls from one cut to a later one, and no operation after the cut is stamped before it, but for
    those that come late. `operations` counts those before the cut in all logs, for pacing and for
    people; a store that cannot count them well may give an estimate that never falls.
    `begun` is the number of the last log that had begun, and `births` the numbers of those that
    did not begin with the database, whose logs have number 1.

    The cut of one write names only the logs that it touched, and counts nothing.
    """

    positions: Mapping[str, int] = field(default_factory=dict)
    watermark: int = 0
    operations: int = 0
    begun: int = 0
    births: Mapping[str, int] = field(default_factory=dict)

    def position(self, log: str) -> int:
        """How far a log is read; its beginning if the cut does not name it.

        Ask only for logs that a later cut names, or that are known not to have ended.
        """
        return self.positions.get(log, BEGINNING)

    def covers(self, other: Cut) -> bool:
        """Whether every operation before the other cut is before this one too."""
        return all(self._reaches(log, at, other) for log, at in other.positions.items())

    def uncovered(self, other: Cut) -> Cut | None:
        """What is left of the other cut once this one is covered; None if nothing is."""
        left = {log: at for log, at in other.positions.items() if not self._reaches(log, at, other)}
        births = {log: birth for log, birth in other.births.items() if log in left}
        return Cut(left, begun=other.begun, births=births) if left else None

    def short_of(self, other: Cut) -> int:
        """About how many operations of the other cut this one lacks, for people; 0 if it covers it.

        Exact in stores whose positions count operations.
        """
        lacking = self.uncovered(other)
        if lacking is None:
            return 0
        return sum(at - self.position(log) for log, at in lacking.positions.items())

    def _reaches(self, log: str, at: int, other: Cut) -> bool:
        if at == BEGINNING:
            return True
        if (mine := self.positions.get(log)) is not None:
            return mine >= at
        return self.begun >= other.births.get(log, 1)  # it has ended since

    def to_json(self) -> dict[str, object]:
        value: dict[str, object] = {
            "positions": dict(self.positions),
            "watermark": self.watermark,
            "operations": self.operations,
            "begun": self.begun,
        }
        return {**value, "births": dict(self.births)} if self.births else value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cut:
        return record_from(Cut, value)

    def __str__(self) -> str:
        return json.dumps(self.to_json())

    def __hash__(self) -> int:
        return hash(frozenset(self.positions.items()))


START = Cut()  # before all operations of all logs


def united(cuts: Iterable[Cut | None]) -> Cut | None:
    """The cut of several writes: it is covered when each of them is; None if there are none."""
    positions, births, begun = dict[str, int](), dict[str, int](), 0
    for cut in cuts:
        if cut is None:
            continue
        begun = max(begun, cut.begun)
        births.update(cut.births)
        for log, at in cut.positions.items():
            positions[log] = max(at, positions.get(log, BEGINNING))
    return Cut(positions, begun=begun, births=births) if positions else None
