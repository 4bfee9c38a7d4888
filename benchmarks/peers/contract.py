"""What every peer does: get ready, do the task once per run, and give its rows for the check.

Law: the clock covers `run` alone. `prepare` starts whatever the peer needs (a server, a JVM) before
it, and `result` is read after it. A peer is a process of its own, in its own environment, so this
file and the peers import nothing of viewkeep; rows come and go as files.

    python -m peers.NAME JOB.json ANSWER.json
"""

from __future__ import annotations

import csv
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """A table that is there before the clock starts: `folder` has csv/ and parquet/, in parts."""

    folder: str
    columns: dict[str, str]  # name -> SQL type: BIGINT, DOUBLE or STRING; the first is the key
    rows: int

    def files(self, format: str) -> list[Path]:
        return sorted(Path(self.folder, format).iterdir())


@dataclass(frozen=True)
class Job:
    """One task for a peer: a query over tables, how often, on how many cores."""

    task: str  # "count", "joined", "sums", "join" or "mix"
    sql: str
    tables: dict[str, Source]
    columns: tuple[str, ...]  # of the result; the first is its key
    folder: str  # a scratch folder, removed after the job
    runs: int = 3
    cores: int = 2
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Operations of the task."""
        return sum(table.rows for table in self.tables.values())

    @classmethod
    def load(cls, path: str) -> Job:
        fields = json.loads(Path(path).read_text())
        fields["tables"] = {name: Source(**given) for name, given in fields["tables"].items()}
        return cls(**{**fields, "columns": tuple(fields["columns"])})


class Peer(ABC):
    """A system under the same tasks. Its docstring says what it does not do."""

    packages: tuple[str, ...] = ()  # whose versions are part of the answer

    def __init__(self, job: Job):
        self.job, self.folder = job, Path(job.folder)

    @abstractmethod
    def prepare(self) -> None:
        """Start what is needed; not timed."""

    @abstractmethod
    def run(self, number: int) -> dict[str, float] | None:
        """Do the task from the beginning; timed as a whole. It may give further figures."""

    @abstractmethod
    def result(self) -> Iterable[Sequence[Any]]:
        """The rows after the last run, in the columns of the job."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End what was started."""

    def versions(self) -> dict[str, str]:
        """Of the packages and servers that answered."""
        found = {}
        for package in self.packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "missing"
        return found


def main(kind: type[Peer]) -> None:
    """Run the job of the command line and write the answer."""
    job = Job.load(sys.argv[1])
    peer = kind(job)
    samples: dict[str, list[float]] = {}
    try:
        peer.prepare()
        for number in range(job.runs):
            began = time.perf_counter()
            further = peer.run(number)
            seconds = time.perf_counter() - began
            figures = further or {"operations/s": job.rows / seconds}
            for name, value in figures.items():
                samples.setdefault(name, []).append(value)
        path = Path(job.folder, "result.csv")
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(job.columns)
            writer.writerows(peer.result())
        answer = {"samples": samples, "result": str(path), "versions": peer.versions()}
        Path(sys.argv[2]).write_text(json.dumps(answer))
    finally:
        peer.close()
