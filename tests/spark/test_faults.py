"""kill -9 of the driver, of a Python worker and of a writing client; then everything is equal.

After each kill: every acknowledged write is in the table, none is there twice, and every view
equals its recomputation at the published cut. Moments and victims come from the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeep

HERE = Path(__file__).parent
VICTIMS = ("writer", "worker", "driver")
SECONDS = 120.0


class Scene:
    """A database with a driver and a writer, each a process of its own."""

    def __init__(self, folder: Path, seed: int):
        self.url = str(folder / "games.vk")
        self.db = viewkeep.open(self.url, shards=4)
        self.db.sql("CREATE TABLE games (id BIGINT PRIMARY KEY, team INT, points BIGINT)")
        self.db.sql(
            "CREATE VIEW teams AS SELECT team, COUNT(*) AS games, SUM(points) AS points, "
            "MAX(points) AS best FROM games GROUP BY team"
        )
        self.db.sql(
            "CREATE VIEW sizes AS SELECT games, COUNT(*) AS teams FROM teams GROUP BY games"
        )
        self.db.sql("CREATE VIEW plain AS SELECT id, points * 2 AS twice FROM games")
        self.acknowledged = folder / "acknowledged"
        self.acknowledged.touch()
        self.source = random.Random(seed)
        self.driver = self._start("driver.py", self.url, "local[2]")
        self.writer = self._start_writer()

    def round(self, victim: str) -> None:
        """Let things run, kill the victim at a random moment, replace it, and check."""
        self.await_epochs(2)
        time.sleep(self.source.random() * 0.6)  # the random moment, not a wait for something
        if victim == "driver":
            os.kill(self.driver.pid, signal.SIGKILL)
            self.driver.wait()
            self.driver = self._start("driver.py", self.url, "local[2]")
        elif victim == "worker":
            os.kill(self.source.choice(self.workers()), signal.SIGKILL)
        os.kill(self.writer.pid, signal.SIGKILL)
        self.writer.wait()
        self.check()
        self.writer = self._start_writer()

    def check(self) -> None:
        """Every acknowledged write once, and every view equal to its recomputation."""
        self.await_head()
        rows = self.db.scan("games").rows()
        numbers = [row["id"] for row in rows]
        acknowledged = [int(line) for line in self.acknowledged.read_text().split()]
        assert len(set(numbers)) == len(numbers)
        assert set(acknowledged) <= set(numbers)
        # A writer that was killed may have had one write under way.
        assert len(numbers) - len(acknowledged) <= self.writers
        assert all(row["points"] == row["id"] for row in rows)
        teams = self.db.scan("teams").rows()
        games = Counter(row["team"] for row in rows)
        assert {row["team"]: row["games"] for row in teams} == games
        for team in teams:
            points = [row["points"] for row in rows if row["team"] == team["team"]]
            assert (team["points"], team["best"]) == (sum(points), max(points))
        sizes = Counter(games.values())
        assert {row["games"]: row["teams"] for row in self.db.scan("sizes").rows()} == sizes
        doubled = {row["id"]: row["twice"] for row in self.db.scan("plain").rows()}
        assert doubled == {number: 2 * number for number in numbers}

    def workers(self) -> list[int]:
        """The Python workers of the driver: what its daemon has forked."""
        daemons = [
            pid
            for pid in descendants(self.driver.pid)
            if b"viewkeep.spark.daemon" in command(pid) and b"pyspark.worker" in command(pid)
        ]
        found = [pid for pid in daemons if parent(pid) in daemons]
        assert found, "the driver has no Python workers"
        return found

    def await_epochs(self, count: int) -> None:
        """Until so many more epochs are published."""
        goal = self.db.epochs.read().published.epoch + count
        self._until(lambda: self.db.epochs.read().published.epoch >= goal)

    def await_head(self) -> None:
        """Until the published cut covers all that is written now."""
        goal = self.db.store.log.head()
        self._until(lambda: self.db.epochs.read().published.cut.covers(goal))

    def close(self) -> None:
        """End the processes: the writer at once, the driver by SIGTERM, which it takes cleanly."""
        self.writer.kill()
        self.writer.wait()
        self.driver.terminate()
        self.driver.wait(timeout=SECONDS)
        self.db.close()

    def _until(self, holds: object) -> None:
        assert callable(holds)
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert self.driver.poll() is None, f"the driver ended: {self.driver.returncode}"
            assert time.monotonic() < deadline, "no epoch was published for too long"
            time.sleep(0.01)

    def _start_writer(self) -> subprocess.Popen[bytes]:
        self.writers = getattr(self, "writers", 0) + 1
        last = max((row["id"] for row in self.db.scan("games").rows()), default=0)
        seed = str(self.source.randrange(1000))
        return self._start("writer.py", self.url, str(self.acknowledged), str(last + 1), seed)

    @staticmethod
    def _start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(HERE / script), *arguments])


@contextlib.contextmanager
def scene(folder: Path, seed: int) -> Iterator[Scene]:
    made = Scene(folder, seed)
    try:
        yield made
    finally:
        made.close()


def run_rounds(folder: Path, spark: SparkSession, seed: int, rounds: int) -> None:
    with scene(folder, seed) as playing:
        for number in range(rounds):
            playing.round(VICTIMS[number % len(VICTIMS)])
        verdicts = playing.db.verify(spark=spark)
    assert playing.driver.returncode == 0
    assert len(verdicts) == 3
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


def test_killed_processes(tmp_path: Path, spark: SparkSession) -> None:
    run_rounds(tmp_path, spark, seed=1, rounds=3)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(10, 16))
def test_killed_processes_many_rounds(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    run_rounds(tmp_path, spark, seed, rounds=9)


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(parent(int(entry.name)), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found
