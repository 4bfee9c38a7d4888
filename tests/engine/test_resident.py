"""Resident epochs without Spark: who may run them, how a turn ends, and what the driver hears."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from viewkeep.engine import lease as leases
from viewkeep.engine import local, resident
from viewkeep.engine.epochs import Epochs, Limits, Published
from viewkeep.engine.lease import DriverWatch, Lease
from viewkeep.engine.pace import ALONE_LOADED, Work
from viewkeep.engine.resident import Assignment, End, Turn, assign, new_id, reports_of, reside
from viewkeep.errors import Fenced, OperatorFailed, StoreError
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store
from viewkeep.stores.faulty import FaultPlan, FaultyStore, InjectedCrash

from .history import History
from .test_crashes import RATES, VIEWS, write_something

SECONDS = 30.0


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(create_store(str(tmp_path / "db"), durability="relaxed")) as store:
        yield History(store)


@pytest.fixture
def lease(history: History) -> Iterator[Lease]:
    epochs = Epochs(history.store)
    lease = epochs.acquire()
    yield lease
    epochs.release(lease)


# Loading is left to the driver, who has all cores.
AT_FULL_SPEED = {"limits": Limits(operations=50, chunk=ALONE_LOADED + 1), "load_pause": 1.0}


def given(lease: Lease, **options: Any) -> Assignment:
    limits = Limits(operations=50, chunk=3)
    return replace(Assignment(new_id(), lease.term, limits, Work(), seconds=SECONDS), **options)


class Task:
    """A resident in a thread of its own, as Spark would run it in a process."""

    def __init__(self, store: Store, assignment: Assignment):
        self.store, self.assignment = store, assignment
        assign(store, assignment)
        self.pool = ThreadPoolExecutor(2)
        self.job = self.attempt()

    def attempt(self) -> Future[Turn]:
        return self.pool.submit(reside, self.store, self.assignment)

    def ask_back(self) -> tuple[Turn, list[Published]]:
        """The turn that ends, and all epochs that were reported at the last."""
        told = reports_of(self.store, self.assignment, take_back=True)
        turn = self.job.result(SECONDS)
        return turn, [*told, *turn.untold]

    def __enter__(self) -> Task:
        return self

    def __exit__(self, *ended: object) -> None:
        reports_of(self.store, self.assignment, take_back=True)
        self.pool.shutdown()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def await_head(store: Store) -> Published:
    """Until an epoch is published that covers all that is written now, and nothing loads."""
    head, epochs = store.log.head(), Epochs(store)

    def reached() -> bool:
        published = epochs.read().published
        return published.cut.covers(head) and not published.loading

    until(reached)
    return epochs.read().published


@pytest.mark.parametrize("seed", range(3))
def test_views_equal_recomputation_at_every_epoch(
    history: History, lease: Lease, seed: int
) -> None:
    """Views that are created meanwhile are loaded by the driver, as on Spark."""
    source, views, store = random.Random(seed), list(VIEWS), history.store
    ends = set()
    for _ in range(25):
        with Task(store, given(lease, **AT_FULL_SPEED)) as task:
            for _ in range(4):
                write_something(history, source)
                if views and source.random() < 0.3:
                    history.create_view(views.pop(0))
                until(
                    lambda task=task: (
                        task.job.done()
                        or Epochs(store).read().published.cut.positions
                        == store.log.head().positions
                    )
                )
                history.check()
                if task.job.done():
                    break
            turn, _ = task.ask_back()
            ends.add(turn.end)
        if turn.end is End.LARGE:
            epoch = Epochs(store).read().open
            assert epoch is not None
            Epochs(store).publish(lease.term, epoch, local.run_epoch(store, epoch))
            history.check()
    assert ends == {End.ASKED, End.LARGE}


@pytest.mark.parametrize("seed", range(3))
def test_it_loads_views_a_few_rows_at_a_time(history: History, lease: Lease, seed: int) -> None:
    """While operations come; the driver hears of every epoch, and of none that is too large."""
    source, store = random.Random(seed), history.store
    told: list[Published] = []
    for _ in range(10):
        write_something(history, source)
    for text in VIEWS:
        with Task(store, given(lease)) as task:
            history.create_view(text)
            for _ in range(3):
                write_something(history, source)
            await_head(store)
            history.check()
            turn, published = task.ask_back()
            assert turn.end is End.ASKED
            told += published
    assert [one.epoch for one in told] == list(range(1, told[-1].epoch + 1))
    assert sum(one.rows_loaded for one in told) > 10
    assert any(one.rows_loaded and one.loading for one in told)


def with_views(history: History) -> Store:
    for text in VIEWS:
        history.create_view(text)
    return history.store


@pytest.mark.parametrize("seed", range(6))
def test_a_resident_that_dies_anywhere(history: History, lease: Lease, seed: int) -> None:
    """Another attempt goes on from what it has left, and the driver with what it gives back."""
    source, views, store = random.Random(seed), list(VIEWS), history.store
    options = AT_FULL_SPEED if seed % 2 else {}
    faulty = FaultyStore(store, FaultPlan.seeded(seed, {**RATES, "ticks": 0.02}, twice=0.1))
    epochs, ends, deaths = Epochs(store), list[End](), 0
    for _ in range(10):
        write_something(history, source)
        if views and source.random() < 0.6:
            history.create_view(views.pop(0))
        head, done = store.log.head(), False
        while not done:
            assignment = given(lease, seconds=0.05, **options)
            assign(store, assignment)
            end = None
            while end is None:
                try:
                    end = reside(faulty, assignment).end
                except InjectedCrash:
                    deaths += 1
                    history.check()
            ends.append(end)
            epoch = epochs.read().open
            if epoch is not None:
                epochs.publish(lease.term, epoch, local.run_epoch(store, epoch))
            published = epochs.read().published
            done = published.cut.covers(head) and not published.loading
        history.check()
    assert deaths > 0
    assert set(ends) == ({End.TIME, End.LARGE} if options else {End.TIME})


def test_each_epoch_is_reported_once_and_in_order(history: History, lease: Lease) -> None:
    store, source = with_views(history), random.Random(1)
    told: list[Published] = []
    with Task(store, given(lease)) as task:
        for _ in range(20):
            write_something(history, source)
            await_head(store)
            told += reports_of(store, task.assignment)
        turn, rest = task.ask_back()
    told += rest
    last = Epochs(store).read().published
    assert [published.epoch for published in told] == list(range(1, last.epoch + 1))
    assert told[-1] == last
    assert turn.epochs == len(told)
    assert turn.work.rows_per_operation is not None


def test_nothing_is_reported_to_a_driver_who_does_not_ask(history: History, lease: Lease) -> None:
    store = with_views(history)
    with Task(store, given(lease, reports=False)) as task:
        write_something(history, random.Random(1))
        await_head(store)
        assert task.ask_back()[1] == []


def test_a_turn_ends_after_its_seconds(history: History, lease: Lease) -> None:
    with Task(history.store, given(lease, seconds=0.05)) as task:
        assert task.job.result(SECONDS).end is End.TIME


def test_it_ends_soon_after_it_is_asked(history: History, lease: Lease) -> None:
    with Task(history.store, given(lease)) as task:
        until(lambda: Epochs(history.store).read().published.epoch == 0)
        began = time.monotonic()
        assert task.ask_back()[0].end is End.ASKED
        assert time.monotonic() - began < 5.0


@pytest.mark.parametrize(
    ("kind", "work"), [("rows", Work(most=3)), ("bytes", Work()), ("loading", Work())]
)
def test_an_epoch_that_needs_all_cores_is_given_back(
    history: History, lease: Lease, kind: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_views(history)
    if kind == "loading":
        history.put([{"id": 1, "part": 1, "g": "a"}])
        local.advance(store, lease.term)
        history.create_view("CREATE VIEW late AS SELECT g, MAX(id) AS m FROM items GROUP BY g")
    if kind == "bytes":

        def outgrown(*given: object) -> None:
            raise local.Outgrown("too much")

        monkeypatch.setattr(local, "run_epoch", outgrown)
    history.put([{"id": number, "part": 1, "g": "a"} for number in range(10)])
    options = AT_FULL_SPEED if kind == "loading" else {}
    with Task(store, given(lease, work=work, **options)) as task:
        turn = task.job.result(SECONDS)
    monkeypatch.undo()
    epoch = Epochs(store).read().open
    assert (turn.end, turn.epochs) == (End.LARGE, 0)
    assert epoch is not None
    while local.advance(store, lease.term) is not None:
        history.check()


def test_one_whose_driver_was_replaced_publishes_nothing(
    history: History, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the middle of an epoch when a newer driver takes over, and finishes it late."""
    store, run = with_views(history), local.run_epoch
    epochs = Epochs(store)
    successors: list[Lease] = []

    def replaced(*given: Any) -> Any:
        reports = run(*given)
        epochs.release(lease)  # as if it had run out
        successors.append(epochs.acquire())
        return reports

    write_something(history, random.Random(2))
    monkeypatch.setattr(local, "run_epoch", replaced)
    with Task(store, given(lease)) as task:
        assert task.job.result(SECONDS).end is End.ASKED
        monkeypatch.undo()
        record = epochs.read()
        assert record.published.epoch == 0
        assert record.open is not None  # for the successor to run
        with pytest.raises(Fenced):
            epochs.publish(lease.term, record.open, [])
        write_something(history, random.Random(3))
        (successor,) = successors
        with Task(store, given(successor)) as later:
            await_head(store)
            with pytest.raises(Fenced):
                assign(store, task.assignment)
            assert later.ask_back()[0].end is End.ASKED
        history.check()


def test_a_later_attempt_has_the_epochs(history: History, lease: Lease) -> None:
    """Spark runs a task again whose worker it has lost sight of, though the worker may live."""
    store = with_views(history)
    with Task(store, given(lease)) as task:
        write_something(history, random.Random(4))
        await_head(store)
        second = task.attempt()
        assert task.job.result(SECONDS).end is End.ASKED
        write_something(history, random.Random(5))
        await_head(store)
        history.check()
        assert not second.done()


def test_an_attempt_that_was_replaced_tells_nothing_late(
    history: History, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two attempts side by side the later one may have told of later epochs already."""
    report = resident._Resident.report
    attempts = list[resident._Resident]()

    def report_but_the_first(attempt: resident._Resident, apart: float = 0.0) -> None:
        if attempt not in attempts:
            attempts.append(attempt)
        if attempt is not attempts[0]:
            report(attempt, apart)

    monkeypatch.setattr(resident._Resident, "report", report_but_the_first)
    store, source, told = with_views(history), random.Random(8), list[Published]()
    write_something(history, source)  # before the task, so that its first epoch has all of it
    with Task(store, given(lease)) as task:
        await_head(store)
        until(lambda: attempts)
        task.attempt()
        first = task.job.result(SECONDS)
        write_something(history, source)
        await_head(store)
        until(lambda: told.extend(reports_of(store, task.assignment)) or told)
    assert first.end is End.ASKED
    assert first.epochs == 1
    assert [published.epoch for published in [*told, *first.untold]] == [2]


def test_two_attempts_at_one_epoch(
    history: History, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one publishes it after the second has done so and gone on."""
    store, run = with_views(history), local.run_epoch
    is_in, may_go_on, first = threading.Event(), threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        reports = run(*given)
        if not first.is_set():
            first.set()
            is_in.set()
            assert may_go_on.wait(SECONDS)
        return reports

    monkeypatch.setattr(local, "run_epoch", slow)
    write_something(history, random.Random(6))
    with Task(store, given(lease)) as task:
        assert is_in.wait(SECONDS)
        task.attempt()
        await_head(store)
        write_something(history, random.Random(7))
        await_head(store)
        may_go_on.set()
        assert task.job.result(SECONDS).end is End.ASKED
        history.check()


def test_an_epoch_that_fails_is_left_open_and_those_before_it_are_reported(
    history: History, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = with_views(history), local.run_epoch
    with Task(store, given(lease)) as task:
        write_something(history, random.Random(8))
        done = await_head(store)

        def fail(*given: Any) -> Any:
            raise OperatorFailed("text", "operator", "reason")

        monkeypatch.setattr(local, "run_epoch", fail)
        write_something(history, random.Random(9))
        with pytest.raises(OperatorFailed):
            task.job.result(SECONDS)
        told = reports_of(store, task.assignment)
        monkeypatch.setattr(local, "run_epoch", run)
        assert told[-1] == done
        record = Epochs(store).read()
        assert record.open is not None
        assert record.open.epoch == done.epoch + 1
        task.job = task.attempt()  # Spark runs the task again
        await_head(store)
        history.check()


def test_epochs_are_some_time_apart(history: History, lease: Lease) -> None:
    """Also those of two turns."""
    store = with_views(history)
    for _ in range(2):
        with Task(store, given(lease, every=3600.0)) as task:
            history.put([{"id": 1, "part": 1, "g": "a"}])
            if Epochs(store).read().published.epoch == 0:
                until(lambda: Epochs(store).read().published.epoch == 1)
            history.put([{"id": 2, "part": 1, "g": "a"}])
            task.ask_back()
    assert Epochs(store).read().published.epoch == 1


def test_it_keeps_house(history: History, lease: Lease) -> None:
    store = with_views(history)
    with Task(store, given(lease)):
        write_something(history, random.Random(10))
        await_head(store)
        until(lambda: sum(store.sizes().log_operations.values()) == 0)


def test_a_driver_that_does_not_renew_its_lease_has_ended(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = history.store
    lease = Epochs(store).acquire(ttl=10.0)
    watch, now = DriverWatch(store, lease.term), time.monotonic()
    assert watch.lives()
    monkeypatch.setattr(leases.time, "monotonic", lambda: now + 9.0)
    Epochs(store).renew(lease)
    assert watch.lives()
    monkeypatch.setattr(leases.time, "monotonic", lambda: now + 18.0)
    assert watch.lives()
    monkeypatch.setattr(leases.time, "monotonic", lambda: now + 30.0)
    assert not watch.lives()
    monkeypatch.undo()


@pytest.mark.parametrize("how", ["released", "dead", "newer", "elsewhere"])
def test_whether_a_driver_lives(history: History, how: str) -> None:
    store = history.store
    lease = Epochs(store).acquire()
    watch = DriverWatch(store, lease.term)
    changed = {
        "released": replace(lease, released=True),
        "dead": replace(lease, mark=lease.mark + "0"),
        "newer": replace(lease, term=lease.term + 1),
        "elsewhere": replace(lease, host="another", mark="another/1/1"),
    }[how]
    assert watch.lives()
    raw = store.meta.get("lease")
    assert store.meta.cas("lease", raw, leases._bytes(changed))
    assert watch.lives() == (how == "elsewhere")
    Epochs(store).release(lease)


def test_a_store_that_fails_ends_the_turn(
    history: History, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise StoreError("the disk is full")

    with Task(history.store, given(lease)) as task:
        monkeypatch.setattr(Epochs, "open_next", full)
        write_something(history, random.Random(11))
        with pytest.raises(StoreError, match="full"):
            task.job.result(SECONDS)
