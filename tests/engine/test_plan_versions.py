"""Plan versions that housekeeping has dropped: nobody takes them for versions that never were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeep
from viewkeep.access.reads import Reader
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import NUMBERS_KEPT, commit_plan, drop_plans_before, newest_plan
from viewkeep.errors import EpochGone


@pytest.fixture
def db(tmp_path: Path) -> Iterator[viewkeep.Database]:
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as made:
        yield made


def make_tables(db: viewkeep.Database, *names: str) -> None:
    """One plan version for each, of which housekeeping leaves the last."""
    for name in names:
        db.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)")
    catch_up(db.store)
    housekeep(db.store)


def test_a_change_that_comes_late_does_not_take_a_version_that_was_dropped(
    db: viewkeep.Database,
) -> None:
    db.sql("CREATE TABLE a (id BIGINT PRIMARY KEY)")
    late = newest_plan(db.store)
    make_tables(db, "b", "c", "d")
    assert not commit_plan(db.store, replace(late, version=late.version + 1))
    assert db.tables() == ["a", "b", "c", "d"]


def test_a_reader_does_not_take_an_old_plan_for_the_newest(db: viewkeep.Database) -> None:
    """It has read the published epoch, then others published and dropped what it looks for."""
    reader = Reader(db.store, Epochs(db.store), db.url)
    before = reader.published().plan
    make_tables(db, "a", "b", "c")
    assert sorted(reader.current(before).tables) == ["a", "b", "c"]


def test_numbers_of_dropped_versions_are_not_kept_for_ever(db: viewkeep.Database) -> None:
    make_tables(db, "a", "b", "c")
    drop_plans_before(db.store, NUMBERS_KEPT + 3)
    assert [key for key, _ in db.store.meta_scan("plan/")] == ["plan/000000000003"]


def test_a_dropped_version_is_gone(db: viewkeep.Database) -> None:
    from viewkeep.engine import programs

    make_tables(db, "a", "b", "c")
    programs._cache.clear()
    with pytest.raises(EpochGone, match="plan version 1 is no longer kept"):
        programs.load_plan(db.store, 1)
