"""What a task tells the driver when it ends: how far feeds are loaded, and what it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from viewkeep.engine.exchange import REPORT
from viewkeep.engine.spool import Message
from viewkeep.errors import PipelineError
from viewkeep.stores.contract.records import record_from


@dataclass(frozen=True)
class Report:
    """The end of one task. `progress`: feed -> part -> last key loaded (hex), None when done."""

    level: int
    progress: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    loaded: Mapping[str, int] = field(default_factory=dict)  # feed -> rows loaded by this task
    rows_in: int = 0
    rows_written: int = 0
    seconds: float = 0.0
    processor: float = 0.0  # seconds of processor time
    costs: Mapping[str, tuple[float, int]] = field(default_factory=dict)  # see `Blame.costs`

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(blob: bytes) -> Report:
        return record_from(Report, json.loads(blob))


def reports_of(messages: Iterable[Message]) -> list[Report]:
    """The reports that are all that is left after the last level."""
    listed = list(messages)
    if any(shard != REPORT for shard, _ in listed):
        raise PipelineError("rows were sent to a level that did not run")
    return [Report.decode(blob) for _, blob in listed]


def level_seconds(reports: Iterable[Report]) -> list[float]:
    """How long the longest task of each level took."""
    longest: dict[int, float] = {}
    for report in reports:
        longest[report.level] = max(longest.get(report.level, 0.0), round(report.seconds, 4))
    return [longest.get(level, 0.0) for level in range(max(longest, default=-1) + 1)]
