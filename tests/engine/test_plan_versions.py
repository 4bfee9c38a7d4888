"""Plan versions that housekeeping has dropped: nobody takes them for versions that never were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeep
from viewkeep.access.reads import DatabaseReader
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
    reader = DatabaseReader(db.store, Epochs(db.store), db.url)
    before = reader.published().plan
    make_tables(db, "a", "b", "c")
    assert sorted(reader.current(before).tables) == ["a", "b", "c"]


def test_numbers_of_dropped_versions_are_not_kept_for_ever(db: viewkeep.Database) -> None:
    make_tables(db, "a", "b", "c")
    drop_plans_before(db.store, NUMBERS_KEPT + 3)
    assert [key for key, _ in db.store.meta.scan("plan/")] == ["plan/000000000003"]


def test_a_dropped_version_is_gone(db: viewkeep.Database) -> None:
    from viewkeep.engine import programs

    make_tables(db, "a", "b", "c")
    programs._cache.clear()
    programs._opened.clear()
    with pytest.raises(EpochGone, match="plan version 1 is no longer kept"):
        programs.load_plan(db.store, 1)


CHANGES = (
    "CREATE TABLE a (id BIGINT PRIMARY KEY, g BIGINT, x DOUBLE)",
    "CREATE VIEW sums AS SELECT g, SUM(x) AS s FROM a GROUP BY g",
    "CREATE VIEW best AS SELECT * FROM a ORDER BY x DESC LIMIT 3",
    "CREATE VIEW pairs AS SELECT a.id, s.s FROM a JOIN sums s ON a.g = s.g",
    "CREATE OR REPLACE VIEW best AS SELECT * FROM a ORDER BY x LIMIT 2",
    "CREATE VIEW low AS SELECT id FROM a WHERE x < (SELECT AVG(x) FROM a)",
    "DROP VIEW pairs",
    "CREATE VIEW pairs AS SELECT a.id, s.s FROM a JOIN sums s ON a.g = s.g",
)


def test_who_changed_the_plan_has_the_plan_that_others_read(db: viewkeep.Database) -> None:
    """With the same physical plan, though it compiled the added views alone."""
    from viewkeep.engine import programs

    for change in CHANGES:
        db.sql(change)
        mine = newest_plan(db.store)
        programs._cache.clear()
        programs._opened.clear()
        programs._definitions.clear()
        others = newest_plan(db.store)
        assert mine is not others
        assert mine == others
        assert list(mine.views) == list(others.views)
        assert mine.program == others.program


def test_a_view_that_was_just_created_is_not_read_back_again(
    db: viewkeep.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from viewkeep.engine import programs

    db.sql(CHANGES[0])
    _ = newest_plan(db.store).program
    read: list[bytes] = []
    once = programs._read
    monkeypatch.setattr(programs, "_read", lambda body: read.append(body) or once(body))
    db.sql(CHANGES[1])
    assert newest_plan(db.store).is_compiled
    db.sql(CHANGES[2])
    assert newest_plan(db.store).is_compiled
    assert len(read) == 2
