"""Housekeeping keeps up with what epochs leave behind, though not every epoch has a round of it."""

from __future__ import annotations

from pathlib import Path

import viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import Housekeeper
from viewkeep.engine.local import advance, run_epoch
from viewkeep.stores.contract import Store

CHILDREN = 3_000


def epoch(store: Store, keeper: Housekeeper) -> None:
    """One epoch, as a pipeline runs it."""
    epochs = Epochs(store)
    term = epochs.read().term
    opened = epochs.open_next(term, Limits())
    assert opened is not None
    reports = run_epoch(store, opened)
    published = epochs.publish(term, opened, reports)
    keeper.note(published, sum(report.rows_written for report in reports))


def rows_kept(db: viewkeep.Database) -> int:
    return sum(table.rows for table in db.store.sizes().tables.values())


def test_rounds_keep_up_with_operations_that_change_many_rows(tmp_path: Path) -> None:
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as db:
        db.sql("CREATE TABLE p (id BIGINT PRIMARY KEY, x BIGINT)")
        db.sql("CREATE TABLE c (id BIGINT PRIMARY KEY, pid BIGINT)")
        db.sql(
            "CREATE VIEW v AS SELECT p.x, c.id, COUNT(*) AS n FROM p JOIN c ON c.pid = p.id "
            "GROUP BY p.x, c.id"
        )
        db.put("c", [{"id": number, "pid": 1} for number in range(CHILDREN)])
        db.put("p", {"id": 1, "x": 0})
        Epochs(db.store).acquire()
        keeper = Housekeeper()
        epoch(db.store, keeper)
        live = rows_kept(db)
        for number in range(1, 11):
            db.put("p", {"id": 1, "x": number})
            epoch(db.store, keeper)
        # The last epoch's deletions may still be read at the epoch before it.
        keeper.round(db.store, now=True)
        assert rows_kept(db) <= live + 2 * CHILDREN


def test_a_round_is_due_once_in_a_while(tmp_path: Path) -> None:
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT)")
        db.sql("CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
        store, keeper = db.store, Housekeeper(seconds=3_600)
        Epochs(store).acquire()

        def logged() -> int:
            return sum(store.sizes().log_operations.values())

        keeper.round(store)  # nothing to do is no round
        db.put("t", {"id": 1, "g": 1})
        epoch(store, keeper)
        keeper.round(store)
        assert logged() == 0
        db.put("t", {"id": 2, "g": 1})
        epoch(store, keeper)
        keeper.round(store)
        assert logged() == 1, "the last round was a moment ago"
        keeper.round(store, now=True)
        assert logged() == 0
        assert advance(store, Epochs(store).read().term) is None


def test_what_a_round_leaves_over_the_next_one_removes(tmp_path: Path) -> None:
    """A dropped view has more rows than one round removes, and no epoch comes after it."""
    many = 25_000
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT)")
        db.sql("CREATE VIEW v AS SELECT id FROM t WHERE g = 1")
        Epochs(db.store).acquire()
        keeper = Housekeeper(seconds=0.0)
        db.put("t", [{"id": number, "g": 1} for number in range(many)])
        epoch(db.store, keeper)
        keeper.round(db.store)
        db.sql("DROP VIEW v")
        epoch(db.store, keeper)
        rounds = 0
        while rows_kept(db):
            rounds += 1
            assert rounds < 10
            keeper.round(db.store)
        assert rounds > 1
