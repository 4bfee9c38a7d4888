"""kill -9 of a Spark query that follows a view: it goes on exactly once, batch by batch."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viewkeep import Database
from viewkeep.engine.epochs import Published

HERE = Path(__file__).parent
SECONDS = 180.0
TEAMS = 5

Rows = list[list[Any]]


class Follower:
    """The query, run by one process after another."""

    def __init__(self, db: Database, folder: Path):
        self._arguments = (db.store.url, str(folder / "checkpoint"), str(folder / "out"), "3")
        self._out = folder / "out"
        self._out.touch()
        self.start()

    def start(self) -> None:
        script = [sys.executable, str(HERE / "follower.py"), *self._arguments]
        # A session of its own, whose JVM and workers can be killed with it.
        self.process = subprocess.Popen(script, start_new_session=True)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def batches(self) -> dict[int, Rows]:
        """The rows of each batch; the attempts at one have the same."""
        found: dict[int, Rows] = {}
        for line in self._out.read_text().split("\n"):
            if line.endswith(";"):
                number, rows = json.loads(line[:-1])
                assert found.setdefault(number, rows) == rows, f"attempts at batch {number} differ"
        return found

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert self.process.poll() is None, "the query ended"
            assert time.monotonic() < deadline, "the query does not get on"
            time.sleep(0.02)


def applied(batches: dict[int, Rows]) -> Counter[tuple[Any, ...]]:
    """What the batches lead to; a row that is doubled or lost shows."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for _, change, *row in itertools.chain(*batches.values()):
        rows[tuple(row)] += {"insert": 1, "delete": -1}[change]
    return Counter({row: count for row, count in rows.items() if count})


def run_rounds(db: Database, folder: Path, advance: Callable[[], Published], rounds: int) -> None:
    source = random.Random(rounds)
    db.sql("CREATE TABLE games (id BIGINT PRIMARY KEY, team INT, points BIGINT)")
    db.sql(
        "CREATE VIEW teams AS SELECT team, COUNT(*) AS games, SUM(points) AS points "
        "FROM games GROUP BY team"
    )
    numbers = itertools.count()

    def play() -> int:
        rows = [{"id": n, "team": n % TEAMS, "points": n} for n in itertools.islice(numbers, 3)]
        db.put("games", rows)
        return advance().epoch

    epoch = play()
    follower = Follower(db, folder)
    try:
        for _ in range(rounds):
            seen = len(follower.batches())
            follower.until(lambda seen=seen: len(follower.batches()) > seen)  # type: ignore[misc]
            for _ in range(20):
                epoch = play()
            time.sleep(source.random())  # the random moment, not a wait for something
            follower.kill()
            epoch = play()
            follower.start()
        follower.until(
            lambda: (
                max((row[0] for rows in follower.batches().values() for row in rows), default=0)
                == epoch
            )
        )
    finally:
        follower.kill()
    batches = follower.batches()
    told = [row[0] for number in sorted(batches) for row in batches[number]]
    assert told == sorted(told), "epochs come in order, each in one batch"
    covered = [{row[0] for row in batches[number]} for number in sorted(batches)]
    assert all(len(epochs) <= 3 for epochs in covered)
    assert sum(map(len, covered)) == len(set(told))
    assert applied(batches) == Counter(
        (row["team"], row["games"], row["points"]) for row in db.scan("teams")
    )


def test_a_killed_query_goes_on_exactly_once(
    db: Database, tmp_path: Path, catch_up: Callable[[], Published]
) -> None:
    run_rounds(db, tmp_path, catch_up, rounds=1)


@pytest.mark.faults
def test_a_killed_query_goes_on_exactly_once_many_rounds(
    db: Database, tmp_path: Path, catch_up: Callable[[], Published]
) -> None:
    run_rounds(db, tmp_path, catch_up, rounds=8)
