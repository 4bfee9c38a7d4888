"""Leases and pins ask nobody's clock but their own; and drivers that have ended, known at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewkeep import Database, open
from viewkeep.engine import lease as leases
from viewkeep.engine import standstill
from viewkeep.engine.lease import Lease, acquire, holder
from viewkeep.errors import EpochGone, PipelineError
from viewkeep.stores.lmdb import living


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return open(str(tmp_path / "clocks.vk"))


class Clock:
    """The clock of one process: it starts anywhere, and sleeping moves it on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now, self.on_sleep = 1e6, lambda: None
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: pytest.fail("a lease asks what time it is"))
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(standstill, "_of_databases", {})

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


@pytest.fixture
def clock(db: Database, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def elsewhere(db: Database) -> Lease:
    """The lease of a driver of which the store knows nothing."""
    lease = Lease(7, "elsewhere", 1, "elsewhere/1/1", 30.0)
    assert db.store.meta.cas("lease", None, leases._bytes(lease))
    return lease


def test_a_driver_elsewhere_that_stands_still_is_taken_over(db: Database, clock: Clock) -> None:
    held, began = elsewhere(db), clock.now
    assert holder(db.store) == held
    assert acquire(db.store, 30.0).term == 8
    assert clock.now - began == pytest.approx(30.0)


def test_a_driver_elsewhere_that_lives_keeps_its_lease(db: Database, clock: Clock) -> None:
    held = elsewhere(db)
    beats = iter([False] * 100 + [True])
    clock.on_sleep = lambda: leases.renew(db.store, held) if next(beats) else None
    with pytest.raises(PipelineError, match=r"process 1 on elsewhere.*ends in 30 s"):
        acquire(db.store, 30.0)
    for _ in range(5):
        clock.now += 29
        leases.renew(db.store, held)
        assert holder(db.store) is not None
    clock.now += 31
    assert holder(db.store) is None


def test_a_driver_that_the_store_knows_to_live_is_not_waited_for(
    db: Database, clock: Clock
) -> None:
    acquire(db.store, 30.0)
    clock.on_sleep = pytest.fail
    with pytest.raises(PipelineError, match="ends in 30 s"):
        acquire(db.store, 30.0)
    clock.now += 31  # it stands still all the same
    assert acquire(db.store, 30.0).term == 2


def test_a_pin_that_is_not_renewed_expires(db: Database, clock: Clock) -> None:
    pin = db.epochs.pin(60.0)
    assert [kept.id for kept in db.epochs.pins()] == [pin.id]
    clock.now += 59
    renewed = db.epochs.renew_pin(pin, 60.0)
    clock.now += 59  # since it was last seen to change
    assert [kept.id for kept in db.epochs.pins()] == [renewed.id]
    clock.now += 59
    assert [kept.id for kept in db.epochs.pins()] == [renewed.id]
    clock.now += 2
    assert db.epochs.pins() == []
    with pytest.raises(EpochGone):
        db.epochs.renew_pin(pin, 60.0)


def test_a_process_that_starts_gives_pins_their_whole_time(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.epochs.pin(60.0)
    assert db.epochs.pins()
    clock.now += 61
    monkeypatch.setattr(standstill, "_of_databases", {})
    assert len(db.epochs.pins()) == 1


def test_a_pin_that_is_shared_while_it_expires(db: Database, clock: Clock) -> None:
    pin = db.epochs.pin(60.0)
    assert db.epochs.pins()
    clock.now += 61
    shared = db.epochs.share_pin(pin)
    assert shared is not None
    assert {kept.id for kept in db.epochs.pins()} == {pin.id, shared.id}
    clock.now += 61
    assert [kept.id for kept in db.epochs.pins()] == [shared.id]
    assert db.epochs.share_pin(pin) is None


def test_a_zombie_driver_is_dead(db: Database) -> None:
    script = "import sys; sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        mark = f"{socket.gethostname()}/{child.pid}/{living._started(child.pid)}"
        held = Lease(3, socket.gethostname(), child.pid, mark, 30.0)
        assert db.store.meta.cas("lease", None, leases._bytes(held))
        assert holder(db.store) == held
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still a zombie
        assert holder(db.store) is None
        assert acquire(db.store, 30.0).term == 4
    finally:
        child.kill()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()
