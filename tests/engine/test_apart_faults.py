"""State apart, when processes die at any call of the changelog, or in the middle of a replay."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import pytest

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import run_epoch
from viewkeep.stores.apart import ApartStore, replica
from viewkeep.stores.changelog import BlobChangelog
from viewkeep.stores.faulty import InjectedCrash

from .history import History
from .test_apart import SHARDS, Machines, create, machines, state_of  # noqa: F401

VIEWS = [
    "CREATE VIEW per_g AS SELECT g, h, COUNT(*) AS n, SUM(x) AS s FROM items GROUP BY g, h",
    "CREATE VIEW per_h AS SELECT h, COUNT(*) AS gs, MAX(s) AS s FROM per_g GROUP BY h",
    "CREATE VIEW all_of AS SELECT * FROM items",
]
CALLS = ("append", "entries", "read", "write_snapshot", "truncate", "read_snapshot", "snapshots")


def change(model: History, random: Random) -> None:
    rows = [
        {"id": random.randrange(30), "part": 0, "g": random.choice("abc"), "h": n % 4, "x": n}
        for n in range(random.randrange(1, 12))
    ]
    model.put(rows)
    model.delete([(random.randrange(30), 0)])


def run(worker: ApartStore, term: int) -> bool:
    epoch = Epochs(worker).open_next(term, Limits())
    if epoch is None:
        return False
    Epochs(worker).publish(term, epoch, run_epoch(worker, epoch))
    return True


def crashing(patch: pytest.MonkeyPatch, method: str, call: int, after: bool) -> None:
    """The process dies at this call of a method of the changelog."""
    calls = Counter[str]()
    act: Callable[..., Any] = getattr(BlobChangelog, method)

    def dying(*args: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return act(*args)  # a snapshot in the background
        calls[method] += 1
        if calls[method] != call:
            return act(*args)
        if after:
            act(*args)
        raise InjectedCrash(method)

    patch.setattr(BlobChangelog, method, dying)


@pytest.mark.parametrize("method", CALLS)
def test_a_crash_at_any_call(machines: Machines, method: str) -> None:  # noqa: F811
    random = Random(method)
    with closing(create(machines)) as home:
        model = History(home)
        for view in VIEWS:
            model.create_view(view)
        term = Epochs(home).acquire().term
        for turn in range(16):
            change(model, random)
            machine = random.choice(("ann", "bob"))
            if turn % 5 == 4:
                machines.lose(machine)
            try:
                with pytest.MonkeyPatch.context() as patch, machines.on(machine) as worker:
                    crashing(patch, method, random.randrange(1, 6), random.random() < 0.5)
                    while run(worker, term):
                        shard = random.randrange(SHARDS)
                        worker.state.replicas[shard].at(Epochs(worker).read().published.epoch)
                        worker.state.replicas[shard].snapshot()
            except InjectedCrash:
                pass
            if turn % 4 == 3:
                with machines.on(random.choice(("ann", "bob"))) as worker:
                    run(worker, term)
                model.check()
                machines.lose("home")
                found = state_of(home)
                with machines.on("ann") as ann, machines.on("new") as new:
                    assert state_of(ann) == state_of(new) == found


def test_snapshots_bound_the_changelog(
    machines: Machines,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica, "_RECORDS", 5)
    random = Random(1)
    with closing(create(machines)) as home:
        model = History(home)
        for view in VIEWS:
            model.create_view(view)
        term = Epochs(home).acquire().term
        for _ in range(40):
            change(model, random)
            with machines.on("worker") as worker:
                run(worker, term)
                for shard in worker.state.replicas:
                    if shard._snapshots is not None:
                        shard._snapshots.join()
        with machines.on("worker") as worker:
            changelog = worker.state.replicas[0]._changelog
            for shard in range(SHARDS):
                assert len(changelog.entries(shard, 0).entries) <= 10
                assert len(changelog.snapshots(shard)) == 1
        machines.lose("worker")
        machines.lose("home")
        model.check()


WORKER = """
import sys
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import run_epoch
from viewkeep.stores import open_store
from viewkeep.stores.apart import replica
replica._RECORDS = 20
store = open_store(sys.argv[1])
print("began", flush=True)
while True:
    epochs = Epochs(store)
    epoch = epochs.open_next(int(sys.argv[2]), Limits(operations=10))
    if epoch is not None:
        epochs.publish(int(sys.argv[2]), epoch, run_epoch(store, epoch))
"""


@pytest.mark.faults
def test_workers_that_are_killed(machines: Machines) -> None:  # noqa: F811
    random = Random(7)
    with closing(create(machines)) as home:
        model = History(home)
        for view in VIEWS:
            model.create_view(view)
        term = Epochs(home).acquire().term
        for turn in range(25):
            machine = random.choice(("ann", "bob", "eve"))
            command = [sys.executable, "-c", WORKER, machines.url(machine), str(term)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()
                deadline = time.monotonic() + random.uniform(0.0, 1.0)
                while time.monotonic() < deadline:
                    change(model, random)
                process.send_signal(signal.SIGKILL)
            if turn % 5 == 4:
                machines.lose(random.choice(("ann", "bob", "eve")))
            with machines.on(random.choice(("ann", "bob", "eve"))) as worker:
                while run(worker, term):
                    pass
            model.check()
        found = state_of(home)
        with machines.on("new") as new:
            assert state_of(new) == found
