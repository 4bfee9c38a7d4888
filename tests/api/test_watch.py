"""Waiting for publications: everybody is woken, and one looks for all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from viewkeep.access.watch import PublicationWatch
from viewkeep.engine.epochs import Epochs

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]


def test_all_waiters_are_woken(db: Database, catch_up: CatchUp) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW v AS SELECT k FROM t")
    first = catch_up().epoch
    watch = PublicationWatch(Epochs(db.store))
    ready = threading.Barrier(31)
    woken: list[int] = []

    def wait(after: int) -> None:
        ready.wait()
        watch.wait(after, 30.0)
        woken.append(after)

    threads = [threading.Thread(target=wait, args=(first + n % 3,)) for n in range(30)]
    for thread in threads:
        thread.start()
    ready.wait()
    for number in range(3):
        db.put("t", {"k": number})
        catch_up()
    for thread in threads:
        thread.join(20)
    assert sorted(woken) == sorted(first + n % 3 for n in range(30))


def test_what_is_there_is_not_waited_for(db: Database, catch_up: CatchUp) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW v AS SELECT k FROM t")
    epoch = catch_up().epoch
    watch = PublicationWatch(Epochs(db.store))
    watch.wait(epoch - 1, 30.0)
    watch.wait(epoch, 0.0)
    watch.wait(epoch, 0.001)


def test_one_looks_for_all(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PublicationWatch(Epochs(db.store))
    looks: list[int] = []
    held = threading.Event()
    ended = threading.Semaphore(0)

    def look(self: PublicationWatch, after: int, deadline: float) -> None:
        looks.append(after)
        held.wait(20)

    def wait() -> None:
        watch.wait(0, 0.15)
        ended.release()

    monkeypatch.setattr(PublicationWatch, "_look", look)
    threads = [threading.Thread(target=wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    for _ in range(19):  # all but the one that looks
        assert ended.acquire(timeout=20)
    assert looks == [0]
    held.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
