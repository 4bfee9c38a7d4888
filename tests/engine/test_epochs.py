"""Epoch records: one driver at a time, cuts stored before they run, pins that hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from viewkeep.codec.key_order import hash_key
from viewkeep.engine.epochs import EpochRecord, Epochs, Limits, OpenEpoch
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.lease import holder
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.local import Outgrown, advance, catch_up, run_epoch
from viewkeep.engine.log_splits import whole_logs
from viewkeep.errors import EpochGone, Fenced, Locked, PipelineError
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store
from viewkeep.stores.wrapped import WrappedStore

from .history import History


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = create_store(str(tmp_path / "db"), durability="relaxed")
    yield made
    made.close()


@pytest.fixture
def history(store: Store) -> History:
    made = History(store)
    made.create_view(
        "CREATE VIEW sums AS SELECT g, COUNT(*) AS n, MIN(x) AS x FROM items GROUP BY g"
    )
    return made


def put(history: History, *ids: int, g: str = "a") -> None:
    history.put([{"id": i, "part": 0, "g": g, "x": i} for i in ids])


def take_over(epochs: Epochs) -> int:
    """Become the driver although the old one still lives: its lease is declared over."""
    held = holder(epochs.store)
    assert held is not None
    epochs.release(held)
    return epochs.acquire().term


def test_a_second_driver_is_refused_while_the_first_lives(history: History) -> None:
    epochs = Epochs(history.store)
    lease = epochs.acquire()
    with pytest.raises(PipelineError, match="another pipeline runs on this database"):
        epochs.acquire()
    epochs.release(lease)
    assert epochs.acquire().term == lease.term + 1


def test_a_driver_that_fails_to_begin_is_in_nobodys_way(history: History) -> None:
    """It has the lease already, and its process lives, when the store finds itself locked."""

    class LockedAtTheRecord(WrappedStore):
        def call(self, method: str, act: Any, *args: Any, **options: Any) -> Any:
            if method == "meta.cas" and args[0] == "epoch":
                raise Locked("another process has kept others from writing")
            return act(*args, **options)

    with pytest.raises(Locked):
        Epochs(LockedAtTheRecord(history.store)).acquire()
    assert Epochs(history.store).acquire().term == 2


def test_the_cut_and_plan_of_an_open_epoch_are_fixed(history: History) -> None:
    put(history, 1, 2)
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    opened = epochs.open_next(term, Limits())
    put(history, 3)
    history.create_view("CREATE VIEW later AS SELECT COUNT(*) AS n FROM items")
    assert Epochs(history.store).open_next(term, Limits()) == opened


def test_a_stale_driver_changes_nothing(history: History) -> None:
    store, epochs = history.store, Epochs(history.store)
    old = epochs.acquire().term
    put(history, 1, 2)
    stalled = epochs.open_next(old, Limits())
    assert stalled is not None
    new = take_over(epochs)
    advance(store, new)  # finishes the stalled epoch from its stored cut
    put(history, 3)
    advance(store, new)
    before = epochs.read()
    with pytest.raises(Fenced):
        epochs.publish(old, stalled, [])
    with pytest.raises(Fenced):
        epochs.open_next(old, Limits())
    with pytest.raises((Fenced, EpochGone)):  # whichever it meets first
        run_epoch(store, stalled)
    assert epochs.read() == before
    history.check()


def test_two_processes_of_one_driver_open_the_same_epoch(history: History) -> None:
    first, second = Epochs(history.store), Epochs(history.store)
    term = first.acquire().term
    put(history, 1)

    def race(record: EpochRecord, limits: Limits) -> OpenEpoch | None:
        second.open_next(term, limits)  # comes in between
        return chosen(record, limits)

    chosen = first._choose
    first._choose = race  # type: ignore[method-assign]
    assert first.open_next(term, Limits()) == second.read().open


@pytest.mark.usefixtures("columns_lane")
def test_an_epoch_outgrows_one_process_and_is_run_again(history: History) -> None:
    put(history, 1, 2, 3)
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    with pytest.raises(Outgrown):
        run_epoch(history.store, epoch, most=10)
    epochs.publish(term, epoch, run_epoch(history.store, epoch, most=1 << 20))
    history.check()


def test_a_lost_lease_is_noticed_on_renewal(history: History) -> None:
    epochs = Epochs(history.store)
    lease = epochs.acquire()
    take_over(epochs)
    with pytest.raises(Fenced):
        epochs.renew(lease)


def test_publishing_twice_is_harmless(history: History) -> None:
    put(history, 1)
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    reports = run_epoch(history.store, epoch)
    assert epochs.publish(term, epoch, reports) == epochs.publish(term, epoch, reports)


def test_a_task_of_a_finished_epoch_finds_it_closed(history: History) -> None:
    put(history, 1)
    catch_up(history.store)
    with pytest.raises(Fenced, match="no longer open"):
        Epochs(history.store).open_epoch(1)


def test_nothing_to_do_opens_nothing(history: History) -> None:
    put(history, 1)
    catch_up(history.store)
    epochs = Epochs(history.store)
    assert epochs.open_next(epochs.acquire().term, Limits()) is None


def test_epochs_are_bounded(history: History) -> None:
    for i in range(10):
        put(history, i)
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    sizes = []
    while (published := advance(history.store, term, Limits(operations=3))) is not None:
        sizes.append(published.operations)
        history.check()
    assert sum(sizes) == 10
    assert max(sizes) <= 3


def test_a_pinned_epoch_stays_readable_with_its_base_rows(history: History) -> None:
    store, epochs = history.store, Epochs(history.store)
    put(history, 1, 2)
    catch_up(store)
    pin = epochs.pin()
    at_pin = history.rows_at(pin.cut)["items"]
    term = epochs.acquire().term
    for i in range(3, 8):
        put(history, i, 1, g="b")
        advance(store, term)
        housekeep(store)
    table = history.catalog.current().program.placements["sums"].table
    rows = [
        table.row_codec.decode_one(row)[:2]
        for shard in range(store.state.shards)
        for row in store.state.scan(shard, table.number, limit=10, at=pin.epoch).rows
    ]
    assert rows == [("a", 2)]
    base = [
        dict(
            zip(
                history.tables["items"].schema.names,
                history.tables["items"].rows.decode_one(row),
                strict=True,
            )
        )
        for node in range(store.tables.parts)
        for row in store.tables.scan(
            node, history.tables["items"].source.number, limit=10, at=pin.cut
        ).rows
    ]
    assert sorted(base, key=lambda row: row["id"]) == at_pin
    epochs.unpin(pin)
    put(history, 9)
    advance(store, term)
    put(history, 10, g="a")
    advance(store, term)
    housekeep(store)
    home = hash_key(table.key_codec.encode_one(("a",))) % store.state.shards
    with pytest.raises(EpochGone):
        store.state.scan(home, table.number, limit=10, at=pin.epoch)


def test_expired_pins_do_not_hold(history: History) -> None:
    epochs = Epochs(history.store)
    epochs.pin(ttl=-1)
    assert epochs.pins() == []


def test_the_log_is_truncated_up_to_the_published_cut(history: History) -> None:
    put(history, 1, 2, 3)
    catch_up(history.store)
    put(history, 4)
    housekeep(history.store)
    assert sum(history.store.sizes().log_operations.values()) == 1


def test_running_level_zero_twice_sends_the_same_rows(history: History) -> None:
    put(history, 1, 2, 3, 4)
    epochs = Epochs(history.store)
    epoch = epochs.open_next(epochs.acquire().term, Limits())
    assert epoch is not None
    once, twice = (
        [
            m
            for log in whole_logs(history.store, epoch)
            for m in run_sources(history.store, epoch, log)
        ][:-1]
        for _ in range(2)
    )
    assert sorted(shard for shard, _ in once) == sorted(shard for shard, _ in twice)


def test_dropped_views_leave_no_state(history: History) -> None:
    store = history.store
    put(history, 1, 2, 3)
    catch_up(store)
    numbers = set(history.catalog.current().numbers.values())
    history.catalog.drop_view("sums")
    catch_up(store)
    housekeep(store)
    for number in numbers:
        for shard in range(store.state.shards):
            assert not store.state.scan(shard, number, limit=1, at=None).keys


def test_a_rebuilt_view_is_loaded_afresh(history: History) -> None:
    put(history, *range(20))
    catch_up(history.store)
    old = history.catalog.current().program.placements["sums"].table.number
    history.catalog.rebuild_view("sums")
    assert history.catalog.current().program.placements["sums"].table.number != old
    catch_up(history.store, Limits(chunk=3))
    assert Epochs(history.store).ready("sums")
    history.check()


def test_rows_that_reach_the_wrong_task_are_never_dropped(history: History) -> None:
    put(history, *range(20))
    history.put([{"id": i, "part": 0, "g": str(i), "x": i} for i in range(20)])
    epochs = Epochs(history.store)
    epoch = epochs.open_next(epochs.acquire().term, Limits())
    assert epoch is not None
    messages = [
        m
        for log in whole_logs(history.store, epoch)
        for m in run_sources(history.store, epoch, log)
    ]
    with pytest.raises(PipelineError, match="came to a task that lacks them"):
        list(run_level(history.store, epoch, 1, [0], messages))


def test_a_pin_is_taken_again_if_its_epoch_is_overtaken(history: History) -> None:
    """Another epoch may be published, and the log cut, while a pin is being written."""
    store = history.store
    put(history, 1)
    catch_up(store)

    class Overtaken(WrappedStore):
        overtaken = False

        def call(self, method: str, act: Any, *args: Any, **options: Any) -> Any:
            if method == "meta.cas" and args[0].startswith("pin/") and not self.overtaken:
                self.overtaken = True
                put(history, 2)
                catch_up(store)
                housekeep(store)
            return act(*args, **options)

    pin = Epochs(Overtaken(store)).pin()
    assert pin.epoch == Epochs(store).read().published.epoch
    assert [p.id for p in Epochs(store).pins()] == [pin.id]
    for node in range(store.tables.parts):
        store.tables.scan(node, history.tables["items"].source.number, limit=10, at=pin.cut)


def test_loading_says_how_far_it_is(history: History) -> None:
    put(history, *range(30))
    catch_up(history.store)
    history.create_view("CREATE VIEW later AS SELECT id FROM items")
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    seen = []
    while (published := advance(history.store, term, Limits(chunk=4))) is not None:
        seen.append(sum(published.loaded.values()))
        history.check()
    assert seen[:2] == [8, 16]  # a chunk per node
    assert seen[-1] == 0
    assert epochs.unfinished("later") == {}


def test_a_pin_taken_while_a_view_is_loaded_stays_unready(history: History) -> None:
    put(history, *range(30))
    catch_up(history.store)
    history.create_view("CREATE VIEW later AS SELECT id FROM items")
    epochs = Epochs(history.store)
    term = epochs.acquire().term
    advance(history.store, term, Limits(chunk=4))
    pin = epochs.pin()
    while advance(history.store, term) is not None:
        pass
    assert epochs.ready("later")
    assert not epochs.ready("later", pin)
