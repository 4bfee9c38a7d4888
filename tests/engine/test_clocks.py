"""Clocks that were ahead, and drivers that have ended without being waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewkeep import Database, open
from viewkeep.engine import lease as leases
from viewkeep.engine.lease import Lease, acquire, holder
from viewkeep.errors import PipelineError


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return open(str(tmp_path / "clocks.vk"))


def at(monkeypatch: pytest.MonkeyPatch, moment: float) -> None:
    monkeypatch.setattr(time, "time", lambda: moment)


def test_a_lease_of_a_clock_that_was_ahead_expires(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    ahead = Lease(7, "elsewhere", 1, "1", 30.0, now + 86_400)
    assert db.store.meta.cas("lease", None, leases._bytes(ahead))
    at(monkeypatch, now)
    with pytest.raises(PipelineError, match="ends in 30 s"):
        acquire(db.store, 30.0)
    at(monkeypatch, now + 29)
    with pytest.raises(PipelineError, match="ends in 1 s"):
        acquire(db.store, 30.0)
    at(monkeypatch, now + 31)
    assert acquire(db.store, 30.0).term == 8


def test_a_living_driver_whose_clock_is_ahead_keeps_its_lease(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    ahead = Lease(7, "elsewhere", 1, "1", 30.0, now + 86_400)
    assert db.store.meta.cas("lease", None, leases._bytes(ahead))
    for second in range(0, 120, 20):
        at(monkeypatch, now + second)
        with pytest.raises(PipelineError):
            acquire(db.store, 30.0)
        at(monkeypatch, now + 86_400 + second)
        leases.renew(db.store, ahead)


def test_a_pin_of_a_clock_that_was_ahead_expires(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    at(monkeypatch, now + 86_400)
    pin = db.epochs.pin(60.0)
    at(monkeypatch, now)
    assert [kept.id for kept in db.epochs.pins()] == [pin.id]
    renewed = db.epochs.renew_pin(pin, 60.0)  # though its record was changed
    at(monkeypatch, now + 59)
    assert [kept.id for kept in db.epochs.pins()] == [renewed.id]
    at(monkeypatch, now + 61)
    assert db.epochs.pins() == []


def test_a_zombie_driver_is_dead(db: Database) -> None:
    script = "import sys; sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        started = leases._started(child.pid)
        held = Lease(3, leases.socket.gethostname(), child.pid, started, 30.0, time.time() + 30)
        assert db.store.meta.cas("lease", None, json.dumps(vars(held)).encode())
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
