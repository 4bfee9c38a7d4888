"""Whose work failed: an error of a level names the operator that met it, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from viewkeep.engine import level
from viewkeep.engine.blame import views_on
from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch
from viewkeep.engine.local import advance, run_epoch
from viewkeep.engine.programs import newest_plan
from viewkeep.errors import Corrupt, OperatorFailed, StoreFull
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store

from .history import History
from .poison import POISON, poisoned

__all__ = ["poisoned"]

SAFE = (
    "CREATE VIEW plain AS SELECT id, part, x FROM items WHERE x > 0",
    "CREATE VIEW sums AS SELECT g, SUM(x) AS x FROM items GROUP BY g",
)
# How a poisoned expression comes to stand in a plan, and by which level it is met.
POISONED = {
    "projection": "SELECT id, part, md5(g) AS h FROM items",
    "selection": "SELECT id, part FROM items WHERE md5(g) <> 'x' AND x > 0",
    "group": "SELECT md5(g) AS h, COUNT(*) AS n FROM items GROUP BY md5(g)",
    "argument": "SELECT h, MIN(md5(g)) AS m FROM items GROUP BY h",
    "over groups": "SELECT n, COUNT(*) AS m FROM (SELECT g, COUNT(*) AS n FROM items GROUP BY g) "
    "WHERE md5(g) <> 'x' GROUP BY n",
    "join": "SELECT a.id, a.part, md5(b.g) AS h FROM items a JOIN items b "
    "ON b.id = a.id AND b.part = a.part",
    "top": "SELECT id, part, g FROM items ORDER BY md5(g) LIMIT 3",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = create_store(str(tmp_path / "db"), durability="relaxed")
    yield made
    made.close()


def opened(history: History) -> OpenEpoch:
    epochs = Epochs(history.store)
    epoch = epochs.open_next(epochs.acquire().term, Limits())
    assert epoch is not None
    return epoch


def put(history: History, *texts: str) -> None:
    history.put([{"id": i, "part": 0, "g": g, "x": i + 1, "h": i % 2} for i, g in enumerate(texts)])


@pytest.mark.parametrize("kind", POISONED)
def test_an_error_names_the_views_it_concerns(store: Store, kind: str, poisoned: None) -> None:
    history = History(store)
    for text in (*SAFE, f"CREATE VIEW bad AS {POISONED[kind]}"):
        history.create_view(text)
    put(history, "a", POISON, "b")
    with pytest.raises(OperatorFailed, match=r"bad reads: .*the well is poisoned") as raised:
        run_epoch(store, opened(history))
    assert views_on(newest_plan(store).program, raised.value.operator) == {"bad"}


@pytest.mark.parametrize("kind", POISONED)
def test_so_it_does_while_views_are_loaded(store: Store, kind: str, poisoned: None) -> None:
    history = History(store)
    history.create_view(SAFE[0])
    put(history, "a", POISON, "b")
    epochs = Epochs(store)
    term = epochs.acquire().term
    advance(store, term)
    history.create_view(SAFE[1])
    history.create_view(f"CREATE VIEW bad AS {POISONED[kind]}")
    with pytest.raises(OperatorFailed) as raised:
        advance(store, term)
    assert views_on(newest_plan(store).program, raised.value.operator) == {"bad"}


def test_a_shared_operator_is_a_matter_of_all_that_stand_on_it(
    store: Store, poisoned: None
) -> None:
    history = History(store)
    history.create_view(SAFE[1])
    grouped = "SELECT md5(g) AS h, COUNT(*) AS n FROM items GROUP BY md5(g)"
    history.create_view(f"CREATE VIEW groups AS {grouped}")
    history.create_view("CREATE VIEW largest AS SELECT MAX(n) AS n FROM groups")
    put(history, POISON)
    with pytest.raises(OperatorFailed, match="groups, largest read:") as raised:
        run_epoch(store, opened(history))
    assert views_on(newest_plan(store).program, raised.value.operator) == {"groups", "largest"}


@pytest.mark.usefixtures("columns_lane")
def test_rows_that_cannot_be_read_are_a_matter_of_their_table(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "CREATE TABLE other (id BIGINT PRIMARY KEY, x BIGINT)"
    history = History(store, ("CREATE TABLE items (id BIGINT PRIMARY KEY, x BIGINT)", other))
    for name in ("items", "other"):
        history.create_view(f"CREATE VIEW v_{name} AS SELECT SUM(x) AS x FROM {name}")
    history.put([{"id": 1, "x": 1}], "items")
    history.put([{"id": 1, "x": 1}], "other")
    number = history.tables["other"].source.number
    take = level.Tail.take

    def damaged(tail: level.Tail, batch: object) -> None:
        if tail.source.number == number:
            raise Corrupt("a row is cut short")
        take(tail, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(level.Tail, "take", damaged)
    with pytest.raises(OperatorFailed, match="the rows of other, which v_other reads") as raised:
        run_epoch(store, opened(history))
    assert views_on(newest_plan(store).program, raised.value.operator) == {"v_other"}


def test_what_is_no_fault_of_a_view_blames_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(store)
    history.create_view(SAFE[1])
    put(history, "a")

    def full(*_: object) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(level.ShardState, "lookup", full)
    with pytest.raises(StoreFull):
        run_epoch(store, opened(history))


def test_a_listener_is_told_each_operator_before_it_runs(store: Store, poisoned: None) -> None:
    history = History(store)
    for text in (*SAFE, f"CREATE VIEW bad AS {POISONED['group']}"):
        history.create_view(text)
    put(history, "a", POISON)
    told: list[str] = []
    with pytest.raises(OperatorFailed) as raised:
        run_epoch(store, opened(history), announce=told.append)
    assert told[-1] == raised.value.operator
