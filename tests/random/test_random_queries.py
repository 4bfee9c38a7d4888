"""Random queries over random schemas equal DuckDB's answers at every epoch, as long as time allows.

RANDOM_SECONDS and RANDOM_SEED set how long and from which seed; a failure names the seed of its
round, and RANDOM_SECONDS=0 plays that round alone.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeep
from viewkeep.database import Database
from viewkeep.engine import inbox, spool, state

from .play import Tally, play

# In memory where there is such a folder: these tests are about values, not about disks.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
SECONDS, PARTS_SECONDS, LONG_SECONDS = 25.0, 10.0, 300.0
FIRST_SEED, FIRST_PARTS_SEED, FIRST_LONG_SEED = 1, 500_000, 1_000_000
MOST_REFUSED, MOST_FOREIGN = 0.05, 0.05


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="viewkeep-random-", dir=FOLDER) as made:
        yield Path(made)


def run(folder: Path, seconds: float, seed: int) -> None:
    seconds = float(os.environ.get("RANDOM_SECONDS", seconds))
    seed = int(os.environ.get("RANDOM_SEED", seed))
    tally, end = Tally(), time.monotonic() + seconds

    def make() -> Database:
        return viewkeep.open(folder / "random.vk", nodes=2, shards=2, durability="relaxed")

    play(make, seed, lambda: time.monotonic() < end, tally)
    refused, foreign = tally.refused.total(), tally.foreign.total()
    asked = tally.kept + refused + foreign
    print(f"{tally.kept} views kept, {tally.checks} checks, {refused} refused, {foreign} foreign")
    for reason, count in (tally.refused + tally.foreign).most_common():
        print(f"{count:5} {reason}")
    if seconds:
        assert tally.kept
        assert refused <= MOST_REFUSED * asked + 2, tally.refused
        assert foreign <= MOST_FOREIGN * asked + 2, tally.foreign


def test_random_queries(folder: Path) -> None:
    run(folder, SECONDS, FIRST_SEED)


@pytest.mark.usefixtures("columns_lane")
def test_random_queries_in_small_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every input in parts of a few rows, from a file, and written part by part."""
    monkeypatch.setattr(inbox, "PART_ROWS", 3)
    monkeypatch.setattr(inbox, "HELD_BYTES", 100)
    monkeypatch.setattr(inbox, "_SAMPLED", 2)
    monkeypatch.setattr(inbox, "_LATER_BYTES", 50)
    monkeypatch.setattr(spool, "HELD_BYTES", 1_000)
    monkeypatch.setattr(state, "_MUCH_ROWS", 2)
    run(folder, PARTS_SECONDS, FIRST_PARTS_SEED)


@pytest.mark.long
def test_random_queries_for_minutes(folder: Path) -> None:
    run(folder, LONG_SECONDS, FIRST_LONG_SEED)
