"""What an epoch loads beside operations: the law of `LoadPace` over epochs with a known cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from viewkeep.engine.epochs import Limits, Published
from viewkeep.engine.load_pace import LoadPace
from viewkeep.engine.pace import MOST, Pace
from viewkeep.engine.rows.delta import FEW
from viewkeep.stores.contract import START

LOADING = {"feed": {"0": "00", "1": "00"}}


@dataclass
class Driver:
    """Epochs that take so many seconds, and so many for each row that they load."""

    pace: Pace
    usual: float = 0.003
    row: float = 5e-6
    now: float = 100.0
    number: int = 0
    wrote_at: int = 0
    seconds: list[float] = field(default_factory=list)  # of epochs with operations
    rows: list[int] = field(default_factory=list)  # that they loaded

    def epoch(self, operations: int = 1, *, loads: bool = True) -> Published:
        loading = LOADING if loads else {}
        limits = self.pace.limits_at(self.now)
        rows = 2 * limits.chunk_of(loading, operations > 0) if loads else 0
        seconds = (self.usual if operations else 0.0005) + rows * self.row
        self.now += seconds
        self.number += 1
        if operations:
            self.wrote_at = int(self.now * 1e9)
        published = Published(
            self.number,
            START,
            1,
            loading=loading,
            at=int(self.now * 1e9),
            operations=operations,
            seconds=seconds,
            rows_loaded=rows,
            wrote_at=self.wrote_at,
        )
        self.pace.learn(published, self.now)
        if operations:
            self.seconds.append(seconds)
            self.rows.append(rows)
        return published


def driver(pause: float = 0.0, usual: float = 0.003) -> Driver:
    made = Driver(Pace(loads=LoadPace(pause)), usual)
    for _ in range(10):
        made.epoch(loads=False)
    made.seconds.clear()
    made.rows.clear()
    return made


def alone(made: Driver) -> int:
    """The chunk of an epoch that begins now and brings nothing."""
    return made.pace.limits_at(made.now).chunk_of(LOADING, False)


@pytest.mark.parametrize("pause", [0.0, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("usual", [0.003, 0.02, 0.05])
def test_an_epoch_takes_the_pause_or_twice_its_usual_time(pause: float, usual: float) -> None:
    made = driver(pause, usual)
    for _ in range(400):
        made.epoch()
    assert max(made.seconds) <= max(pause, 2 * usual, usual + 256 * made.row) * 1.01
    loading = sum(made.rows) * made.row
    assert loading <= 0.5 * sum(made.seconds) + pause, "the last one is not made good yet"
    most = FEW if max(usual, pause - usual) < 0.05 else 10**6
    if most == 10**6:
        assert loading >= 0.4 * sum(made.seconds)
    else:
        assert max(made.rows) >= min(most, 0.9 * max(usual, pause - usual) / made.row)


def test_the_usual_time_is_learnt_while_views_are_loaded() -> None:
    """Epochs get dearer while a view loads: the bound follows."""
    made = driver()
    for _ in range(50):
        made.epoch()
    made.usual = 0.006
    for _ in range(100):
        made.epoch()
    before = len(made.rows)
    for _ in range(16):
        made.epoch()
    assert max(made.seconds) <= 0.0121
    assert max(made.rows[before:]) > 1_000
    assert made.rows[before:].count(0) == 2


def test_nothing_is_loaded_before_the_usual_time_is_known() -> None:
    made = Driver(Pace(loads=LoadPace()))
    made.epoch()
    assert made.rows == [0]
    made.epoch()
    assert made.rows[1] > 0


def test_epochs_of_the_columns_lane_may_load_more_than_the_rows_lane_does() -> None:
    made = driver(usual=0.5)
    for _ in range(200):
        made.epoch()
    assert max(made.rows) > 10 * FEW
    assert max(made.seconds) <= 1.01


def test_views_load_at_full_speed_while_nobody_writes() -> None:
    """A write finds an epoch that lasts no longer than the write before it is old."""
    made = driver(pause=0.1)
    made.epoch()
    written = made.now
    while alone(made) < MOST.chunk:
        quiet = made.now - written
        published = made.epoch(operations=0)
        assert published.seconds <= max(quiet, 0.002)
    assert made.now - written < 2.5
    made.epoch()
    assert alone(made) == 64


def test_who_begins_to_drive_knows_of_no_write_and_is_careful() -> None:
    made = Driver(Pace(loads=LoadPace()))
    assert alone(made) == 64
    made.now += 1
    assert alone(made) == MOST.chunk


def test_who_goes_on_driving_learns_of_the_last_write_from_the_record() -> None:
    made = driver()
    made.now += 0.5
    published = made.epoch(operations=0)
    wall = 1e9 + made.now
    since = made.now - made.wrote_at / 1e9
    other = Pace(loads=LoadPace())
    at = replace(published, at=int(wall * 1e9), wrote_at=int((wall - since) * 1e9))
    other.follow(at, 7.0, wall)
    assert other.limits_at(7.0).alone == pytest.approx(since * MOST.chunk, rel=1e-3)


def test_a_pause_of_a_second_is_no_bound() -> None:
    made = driver(pause=1.0)
    assert made.pace.limits_at(made.now) == MOST
    made.epoch()
    assert made.rows == [2 * MOST.chunk]


def test_rows_are_shared_among_feeds_and_parts() -> None:
    limits = Limits(chunk=1_000, beside=100)
    assert limits.chunk_of(LOADING, True) == 50
    assert limits.chunk_of(LOADING, False) == 1_000
    assert Limits(chunk=10, beside=100).chunk_of(LOADING, True) == 10
    assert Limits(chunk=10, beside=1).chunk_of(LOADING, True) == 1
    assert Limits(chunk=10, beside=0).chunk_of(LOADING, True) == 0
    assert Limits(chunk=10, beside=0, alone=7).chunk_of(LOADING, False) == 7
    assert Limits(chunk=10, alone=70).chunk_of(LOADING, False) == 10
