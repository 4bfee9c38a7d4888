"""Who makes an epoch fail, found by rehearsals in processes that may die."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from viewkeep.engine.culprits import Outcome, find_culprits, search
from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch
from viewkeep.engine.failures import leave_out
from viewkeep.engine.local import advance, catch_up
from viewkeep.engine.programs import newest_plan
from viewkeep.engine.rehearsal import DryStore, rehearse
from viewkeep.stores import create_store
from viewkeep.stores.contract import StateWrite, Store

from .history import History
from .poison import POISON

SITE = Path(__file__).parent / "poisoned_site"
VIEWS = {
    "plain": "SELECT id, part, x FROM items WHERE x > 0",
    "sums": "SELECT g, COUNT(*) AS n FROM items GROUP BY g",
    "hashed": "SELECT md5(g) AS h, n FROM sums",
    "hashes": "SELECT h, COUNT(*) AS n FROM hashed GROUP BY h",
    "flat": "SELECT id, part, md5(g) AS h FROM items",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = create_store(str(tmp_path / "db"), durability="relaxed")
    yield made
    made.close()


@pytest.fixture
def history(store: Store) -> History:
    made = History(store)
    for name, query in VIEWS.items():
        made.create_view(f"CREATE VIEW {name} AS {query}")
    put(made, "a", "b")
    catch_up(store)
    put(made, "b", POISON, "c", start=9)
    return made


def put(history: History, *texts: str, start: int = 0) -> None:
    rows = [{"id": i, "part": 0, "g": g, "x": i} for i, g in enumerate(texts, start)]
    history.put(rows)


def opened(store: Store) -> tuple[int, OpenEpoch]:
    epochs = Epochs(store)
    term = epochs.acquire().term
    epoch = epochs.open_next(term, Limits())
    assert epoch is not None
    return term, epoch


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        ("raise", "the well is poisoned"),
        ("die", "the process ended (signal 9)"),
        ("hog", "MemoryError"),
        ("loop", "it ran for more than 4 s"),
    ],
)
def test_whatever_the_poison_does(
    history: History, monkeypatch: pytest.MonkeyPatch, poison: str, reason: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SITE))
    monkeypatch.setenv("VIEWKEEP_POISON", poison)
    history.catalog.drop_view("flat")
    history.catalog.drop_view("hashes")
    term, epoch = opened(history.store)
    culprits = find_culprits(history.store, epoch, seconds=4, memory=2 << 30)
    assert len(culprits) == 1
    (found,) = culprits.values()
    assert reason in found
    assert leave_out(history.store, term, epoch, culprits) == ("hashed",)
    advance(history.store, term)
    history.check()
    assert Epochs(history.store).ready("sums")


def test_several_at_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SITE))
    monkeypatch.setenv("VIEWKEEP_POISON", "raise")
    term, epoch = opened(history.store)
    culprits = find_culprits(history.store, epoch, seconds=30)
    assert set(leave_out(history.store, term, epoch, culprits)) == {"hashed", "hashes", "flat"}
    advance(history.store, term)
    history.check()


def test_an_epoch_that_runs_has_no_culprit(history: History) -> None:
    _, epoch = opened(history.store)
    assert find_culprits(history.store, epoch, seconds=30) == {}


def test_a_rehearsal_changes_nothing(history: History) -> None:
    store = history.store
    _, epoch = opened(store)

    def kept() -> list[object]:  # others write to the same disk
        return [store.meta.scan(""), replace(store.sizes(), free_bytes=0), store.log.head()]

    before = kept()
    told: list[str] = []
    rehearse(store, epoch.epoch, ["hashed"], told.append)
    program = newest_plan(store).program
    assert set(told) <= {*program.by_id, *(f"table:{s.number}" for s in program.sources)}
    assert len(told) > len(program.by_id) / 2
    assert kept() == before


def test_a_dry_store_keeps_meta_records_to_itself(store: Store) -> None:
    store.meta.cas("a/1", None, b"one")
    dry = DryStore(store)
    assert dry.meta.cas("a/2", None, b"two")
    assert not dry.meta.cas("a/1", None, b"other")
    assert dry.meta.cas("a/1", b"one", None)
    assert dry.meta.scan("a/") == [("a/2", b"two")]
    assert dry.meta.get("a/1") is None
    dry.state.apply(0, 1, 0, [StateWrite(1, [b"k"], [b"v"])])
    assert store.meta.scan("a/") == [("a/1", b"one")]
    assert store.state.get(0, 1, [b"k"], None) == [None]
    with pytest.raises(AssertionError):
        dry.state.drop(0, 1)


# -- the search, with rehearsals that are made up ---------------------------------------------


def operators(store: Store) -> dict[str, str]:
    """The operator that holds the rows of each view."""
    program = newest_plan(store).program
    tables = {table.number: op.id for op in program.operators for table in op.tables}
    return {name: tables[place.table.number] for name, place in program.placements.items()}


def test_a_death_that_is_not_repeated_blames_nobody(history: History) -> None:
    where = operators(history.store)
    ends = iter([Outcome(False, where["sums"], "killed", died=True), Outcome(True)])
    program = newest_plan(history.store).program
    assert search(program, lambda views: next(ends)) == {}


def test_one_that_only_died_beside_another_is_spared(history: History) -> None:
    """The process dies at `plain`, for want of memory that `flat` holds."""
    where, program = operators(history.store), newest_plan(history.store).program

    def ends(views: Collection[str]) -> Outcome:
        if "flat" in views:
            return Outcome(True)
        name = "flat" if "plain" in views else "plain"
        return Outcome(False, where[name], "killed", died=True)

    assert set(search(program, ends)) == {where["flat"]}


def test_if_it_fails_without_the_suspects_too_nobody_is_to_blame(history: History) -> None:
    where, program = operators(history.store), newest_plan(history.store).program
    outcome = Outcome(False, where["flat"], "no memory", died=True)
    assert search(program, lambda views: outcome) == {}
    assert search(program, lambda views: Outcome(False, None, "disk full")) == {}
