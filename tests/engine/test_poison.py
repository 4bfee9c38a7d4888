"""One bad row stops the views that cannot process it, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.failures import leave_out, set_aside
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.lease import holder
from viewkeep.engine.level import run_sources
from viewkeep.engine.local import advance, catch_up, run_epoch
from viewkeep.engine.log_splits import whole_logs
from viewkeep.engine.programs import newest_plan
from viewkeep.errors import CatalogError, EpochGone, Fenced, OperatorFailed
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store
from viewkeep.stores.faulty import FaultPlan, FaultyStore, InjectedCrash

from .history import History, view_rows
from .poison import POISON, poisoned

__all__ = ["poisoned"]

VIEWS = {
    "plain": "SELECT id, part, x, g FROM items WHERE x > 0",
    "sums": "SELECT g, SUM(x) AS x, SUM(d) AS d, COUNT(*) AS n FROM items GROUP BY g",
    "joined": "SELECT a.id, a.part, s.n FROM items a JOIN sums s ON s.g = a.g",
    "hashed": "SELECT md5(g) AS h, n FROM sums",
    "hashes": "SELECT h, COUNT(*) AS n FROM hashed GROUP BY h",
    "total": "SELECT SUM(n) AS n FROM hashes",
}
HEALTHY, FAILING = {"plain", "sums", "joined"}, {"hashed", "hashes", "total"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = create_store(str(tmp_path / "db"), durability="relaxed")
    yield made
    made.close()


@pytest.fixture
def history(store: Store, poisoned: None) -> History:
    made = History(store)
    for name, query in VIEWS.items():
        made.create_view(f"CREATE VIEW {name} AS {query}")
    put(made, *"abcab")
    catch_up(store)
    made.check()
    return made


def put(history: History, *texts: str, start: int = 0) -> None:
    rows = [{"part": 0, "g": g, "x": i + 1, "d": i / 7} for i, g in enumerate(texts)]
    history.put([{"id": i, **row} for i, row in enumerate(rows, start)])


def failed(store: Store) -> set[str]:
    return set(newest_plan(store).failed)


def ready(store: Store) -> set[str]:
    epochs = Epochs(store)
    return {name for name in newest_plan(store).views if epochs.ready(name)}


def step(history: History) -> None:
    """Catch up an epoch of few operations at a time, with a check of each."""
    epochs = Epochs(history.store)
    lease = epochs.acquire()
    try:
        while True:
            try:
                if advance(history.store, lease.term, Limits(operations=2)) is None:
                    return
            except OperatorFailed as error:
                epoch = epochs.read().open
                assert epoch is not None
                leave_out(history.store, lease.term, epoch, {error.operator: error.reason})
            history.check()
            housekeep(history.store)
    finally:
        epochs.release(lease)


def test_without_leave_to_set_views_aside_the_error_is_raised(history: History) -> None:
    put(history, POISON, start=9)
    before = Epochs(history.store).read().published
    for _ in range(2):
        with pytest.raises(OperatorFailed, match=r"which hashed reads: .*poisoned"):
            catch_up(history.store)
    assert Epochs(history.store).read().published == before
    assert not failed(history.store)


def test_the_others_go_on(history: History) -> None:
    put(history, "a", POISON, "d", start=9)
    numbers = newest_plan(history.store).numbers
    step(history)
    plan = newest_plan(history.store)
    assert failed(history.store) == FAILING
    assert ready(history.store) == HEALTHY
    assert plan.numbers.items() <= numbers.items(), "a healthy view was given new state"
    put(history, POISON, "a", "e", start=30)
    history.delete([(0, 0), (9, 0)])
    step(history)
    assert ready(history.store) == HEALTHY
    published = Epochs(history.store).read().published
    assert published.cut.positions == history.store.log.head().positions


def test_who_reads_a_failed_view_is_told_the_root(history: History) -> None:
    put(history, POISON, start=9)
    catch_up(history.store, set_aside=True)
    reasons = {name: why.reason for name, why in newest_plan(history.store).failed.items()}
    assert "the well is poisoned" in reasons["hashed"]
    assert not reasons["hashed"].startswith("it reads")
    assert reasons["hashes"].startswith("it reads hashed, which failed: ")
    assert reasons["total"].startswith("it reads hashed, which failed: ")


def test_a_repaired_view_equals_the_oracle(history: History) -> None:
    put(history, POISON, "q", start=9)
    catch_up(history.store, set_aside=True)
    history.put([{"id": 9, "part": 0, "g": "mended"}])
    assert history.catalog.repair_views(["hashed"]) == ("hashed", "hashes", "total")
    step(history)
    assert not failed(history.store)
    assert ready(history.store) == HEALTHY | FAILING
    put(history, "z", "a", start=40)
    step(history)


def test_one_that_reads_it_is_repaired_alone(history: History) -> None:
    put(history, POISON, start=9)
    catch_up(history.store, set_aside=True)
    history.delete([(9, 0)])
    assert history.catalog.repair_views(["hashes"]) == ("hashes", "total")
    step(history)
    assert failed(history.store) == {"hashed"}
    assert ready(history.store) == HEALTHY | {"hashes", "total"}
    assert history.catalog.repair_views() == ("hashed",)
    step(history)
    assert ready(history.store) == HEALTHY | FAILING


def test_a_view_that_is_still_poisoned_fails_again(history: History) -> None:
    put(history, POISON, start=9)
    catch_up(history.store, set_aside=True)
    first = newest_plan(history.store).failed["hashed"]
    for _ in range(3):
        history.catalog.repair_views()
        assert not failed(history.store)
        step(history)
        assert failed(history.store) == FAILING
        assert ready(history.store) == HEALTHY
    assert newest_plan(history.store).failed["hashed"].epoch > first.epoch
    history.delete([(9, 0)])
    history.catalog.repair_views()
    step(history)
    assert ready(history.store) == HEALTHY | FAILING


def test_repair_of_what_has_not_failed_is_refused(history: History) -> None:
    assert history.catalog.repair_views() == ()
    with pytest.raises(CatalogError, match="view sums has not failed"):
        history.catalog.repair_views(["sums"])
    with pytest.raises(CatalogError, match="there is no view sum; did you mean sums"):
        history.catalog.repair_views(["sum"])


def test_a_failed_view_is_dropped_or_replaced(history: History) -> None:
    put(history, POISON, start=9)
    catch_up(history.store, set_aside=True)
    catalog = history.catalog
    for name in ("total", "hashes"):
        catalog.drop_view(name)
    text = "CREATE OR REPLACE VIEW hashed AS SELECT upper(g) AS h, n FROM sums"
    statement = analyse(parse(text)[0], catalog.resolve)
    assert isinstance(statement, CreateView)
    catalog.create_view(statement.view, or_replace=True)
    assert not failed(history.store)
    step(history)
    assert ready(history.store) == HEALTHY | {"hashed"}


def test_a_view_that_fails_while_it_is_loaded(store: Store, poisoned: None) -> None:
    history = History(store)
    history.create_view(f"CREATE VIEW sums AS {VIEWS['sums']}")
    put(history, *"abcd", POISON, *"efgh")
    catch_up(store)
    for name in ("plain", "joined", "hashed"):
        history.create_view(f"CREATE VIEW {name} AS {VIEWS[name]}")
    while ready(store) != HEALTHY:
        catch_up(store, Limits(chunk=1), set_aside=True)
        put(history, "i", start=20)
    assert failed(store) == {"hashed"}
    history.check()


def test_several_views_fail_in_one_epoch(history: History) -> None:
    history.create_view("CREATE VIEW other AS SELECT id, part, md5(g) AS h FROM items")
    catch_up(history.store)
    put(history, POISON, start=9)
    step(history)
    assert failed(history.store) == FAILING | {"other"}
    assert ready(history.store) == HEALTHY


def test_pinned_epochs_keep_the_rows_of_a_view_that_failed_later(history: History) -> None:
    store, epochs = history.store, Epochs(history.store)
    placement = newest_plan(store).program.placements["hashed"]
    expected = sorted(view_rows(store, placement, epochs.read().published.epoch))
    pin = epochs.pin()
    put(history, POISON, "a", start=9)
    step(history)
    assert sorted(view_rows(store, placement, pin.epoch)) == expected
    epochs.unpin(pin)
    housekeep(store)
    assert store.sizes().tables.get(placement.table.number) is None


def test_tasks_of_an_abandoned_epoch_change_nothing(history: History) -> None:
    store, epochs = history.store, Epochs(history.store)
    for name in ("total", "hashes"):
        history.catalog.drop_view(name)
    catch_up(store)
    term = epochs.acquire().term
    put(history, POISON, "a", "k", start=9)
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    with pytest.raises(OperatorFailed) as raised:
        run_epoch(store, epoch)
    leave_out(store, term, epoch, {raised.value.operator: "poisoned"})
    for split in whole_logs(history.store, epoch):
        list(run_sources(store, epoch, split))  # before the next one opens: a late task
    following = epochs.open_next(term, Limits())
    assert following is not None
    assert following.epoch == epoch.epoch + 1
    assert following.start == epoch.start
    with pytest.raises(Fenced):
        epochs.open_epoch(epoch.epoch)
    for split in whole_logs(history.store, epoch):
        with pytest.raises(Fenced):
            list(run_sources(store, epoch, split))
    with pytest.raises(Fenced):
        epochs.publish(term, epoch, [])
    with pytest.raises(Fenced):
        epochs.abandon(term, epoch)
    epochs.publish(term, following, run_epoch(store, following))
    history.check()
    for split in whole_logs(history.store, epoch):
        with pytest.raises((Fenced, EpochGone)):
            list(run_sources(store, epoch, split))
    history.check()


def test_a_view_dropped_while_its_epoch_is_open_is_gone_from_the_next(history: History) -> None:
    store, epochs = history.store, Epochs(history.store)
    term = epochs.acquire().term
    put(history, POISON, start=9)
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    for name in ("total", "hashes", "hashed"):
        history.catalog.drop_view(name)
    assert set_aside(store, epoch.epoch, {"gone": "not in the newest plan"}) == ()
    epochs.abandon(term, epoch)
    epochs.abandon(term, epoch)
    assert advance(store, term) is not None
    assert ready(store) == HEALTHY
    history.check()


def test_a_driver_may_die_between_any_two_steps(tmp_path: Path, poisoned: None) -> None:
    """After any store call of setting aside and of what comes after, the next driver goes on."""
    for method in ("meta.cas", "state.revert", "state.apply"):
        for call in range(1, 40):
            for fault in ("before", "after"):
                folder = tmp_path / f"{method}-{call}-{fault}"
                inner = create_store(str(folder), durability="relaxed")
                history = History(inner)
                for name in ("sums", "hashed", "hashes"):
                    history.create_view(f"CREATE VIEW {name} AS {VIEWS[name]}")
                put(history, *"ab")
                catch_up(inner)
                put(history, "b", POISON, "c", start=9)
                plan = FaultPlan({(method, call): fault})
                faulty = FaultyStore(inner, plan)
                try:
                    catch_up(faulty, set_aside=True)
                except InjectedCrash:
                    if (lease := holder(inner)) is not None:
                        Epochs(inner).release(lease)
                    catch_up(inner, set_aside=True)
                history.check()
                assert failed(inner) == {"hashed", "hashes"}
                assert ready(inner) == {"sums"}
                inner.close()
                if not plan.happened:
                    break
            if not plan.happened:
                break
