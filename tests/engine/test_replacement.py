"""CREATE OR REPLACE VIEW is one step: the old view answers until the new one takes its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeep
from viewkeep.engine import revision
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.failures import leave_out
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up, run_epoch
from viewkeep.engine.programs import PlanVersion, newest_plan, successor_name
from viewkeep.errors import CatalogError, NotReady, UnknownName, ViewFailed
from viewkeep.stores.contract import Store

ROWS = 40
SMALL = Limits(chunk=4)

COUNT = "CREATE VIEW scores AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story"
SUM = "CREATE OR REPLACE VIEW scores AS SELECT story, SUM(stars) AS s FROM votes GROUP BY story"


class Driver:
    """Runs epochs one by one."""

    def __init__(self, db: viewkeep.Database):
        self.db, self.epochs = db, Epochs(db.store)
        self.term = self.epochs.acquire().term

    def epoch(self) -> bool:
        """Run and publish one epoch; False if nothing was left to do."""
        opened = self.epochs.open_next(self.term, SMALL)
        if opened is None:
            return False
        self.epochs.publish(self.term, opened, run_epoch(self.db.store, opened))
        return True

    def finish(self) -> None:
        """Run epochs until nothing is left to do."""
        while self.epoch():
            pass


@pytest.fixture
def db(tmp_path: Path) -> Iterator[viewkeep.Database]:
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as made:
        made.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars BIGINT)")
        made.put("votes", [{"id": i, "story": i % 5, "stars": i} for i in range(ROWS)])
        made.sql(COUNT)
        catch_up(made.store)
        yield made


def test_it_answers_all_along(db: viewkeep.Database) -> None:
    """At every epoch there is the old view or the new one, with the rows of that epoch."""
    driver = Driver(db)
    result = db.sql(SUM)
    assert "answers as before until the new one is loaded" in str(result.message)
    rows, shown = ROWS, list[dict[str, int]]()
    while True:
        found = db.sql("SELECT * FROM scores WHERE story = 0").one()
        assert found == db.get("scores", 0) == db.scan("scores", prefix=(0,)).one()
        shown.append(found)
        db.put("votes", {"id": rows, "story": 0, "stars": rows})
        rows += 1
        assert driver.epoch()
        if "s" in shown[-1]:
            break
    old = [row for row in shown if "n" in row]
    assert [row["n"] for row in old] == list(range(ROWS // 5, ROWS // 5 + len(old)))
    assert len(old) > 3, "the new view was to take several epochs"
    expected = sum(range(0, ROWS, 5)) + sum(range(ROWS, rows - 1))
    assert shown[-1] == {"story": 0, "s": expected}
    assert [row["name"] for row in db.sql("SHOW VIEWS").rows()] == ["scores"]


def test_nothing_fails_between_the_plan_and_its_epoch(db: viewkeep.Database) -> None:
    """The plan that gives the name away is there before the first epoch that has it."""
    driver = Driver(db)
    db.sql(SUM)
    row = db.sql("SELECT n FROM scores WHERE story = 3").rows()
    while not newest_plan(db.store).origins:
        opened = driver.epochs.open_next(driver.term, SMALL)
        assert opened is not None
        reports = run_epoch(db.store, opened)
        assert db.sql("SELECT n FROM scores WHERE story = 3").rows() == row
        assert db.get("scores", 3) == {"story": 3, "n": ROWS // 5}
        assert db.sql("DESCRIBE scores") is not None
        assert db.schema("scores").names == ("story", "n")
        driver.epochs.publish(driver.term, opened, reports)
    assert db.get("scores", 3) == {"story": 3, "s": sum(range(3, ROWS, 5))}
    assert db.sql("SELECT s FROM scores WHERE story = 3").one() == {"s": sum(range(3, ROWS, 5))}


def test_what_reads_it_goes_over_with_it(db: viewkeep.Database) -> None:
    db.sql("CREATE VIEW best AS SELECT story, n * 10 AS points FROM scores")
    db.sql("CREATE VIEW all_points AS SELECT SUM(points) AS p FROM best")
    catch_up(db.store)
    driver = Driver(db)
    message = db.sql(
        "CREATE OR REPLACE VIEW scores AS SELECT story, SUM(stars) AS n FROM votes GROUP BY story"
    ).message
    assert "with it best, all_points" in str(message)
    before = {"n": 8}, {"points": 80}, {"p": 400}
    total = sum(range(ROWS))
    after = (
        {"n": sum(range(0, ROWS, 5))},
        {"points": 10 * sum(range(0, ROWS, 5))},
        {"p": 10 * total},
    )
    states = []
    while driver.epoch():
        with db.snapshot() as snapshot:
            scores, best = snapshot.get("scores", 0), snapshot.get("best", 0)
            points = snapshot.get("all_points")
        assert scores is not None
        assert best is not None
        assert points is not None
        states.append(({"n": scores["n"]}, {"points": best["points"]}, {"p": points["p"]}))
    assert states[0] == before
    assert states[-1] == after
    assert all(state in (before, after) for state in states)


def test_a_reader_that_does_not_fit_is_named(db: viewkeep.Database) -> None:
    db.sql("CREATE VIEW best AS SELECT story, n * 10 AS points FROM scores")
    catch_up(db.store)
    with pytest.raises(CatalogError, match=r"best reads scores and cannot be kept over the new"):
        db.sql(SUM)
    assert newest_plan(db.store).successors == {}


def test_a_snapshot_keeps_the_old_one(db: viewkeep.Database) -> None:
    with db.snapshot() as snapshot:
        db.sql(SUM)
        catch_up(db.store)
        assert db.get("scores", 3) == {"story": 3, "s": sum(range(3, ROWS, 5))}
        assert snapshot.get("scores", 3) == {"story": 3, "n": ROWS // 5}


def test_status_tells_how_far_it_is(db: viewkeep.Database) -> None:
    driver = Driver(db)
    db.sql(SUM)
    assert [(view.name, view.state) for view in db.status().views] == [
        ("scores", "ready"),
        ("scores (new)", "waiting"),
    ]
    driver.epoch()
    new = db.status().views[1]
    assert (new.name, new.state) == ("scores (new)", "loading")
    assert "rows in" in new.progress
    driver.finish()
    assert [(view.name, view.state) for view in db.status().views] == [("scores", "ready")]


def test_the_same_view_again_changes_nothing(db: viewkeep.Database) -> None:
    before = newest_plan(db.store)
    db.sql(COUNT.replace("CREATE", "CREATE OR REPLACE"))
    assert newest_plan(db.store) == before


def test_the_old_one_again_takes_a_replacement_back(db: viewkeep.Database) -> None:
    db.sql(SUM)
    driver = Driver(db)
    driver.epoch()
    db.sql(COUNT.replace("CREATE", "CREATE OR REPLACE"))
    driver.finish()
    assert newest_plan(db.store).successors == {}
    assert db.get("scores", 3) == {"story": 3, "n": ROWS // 5}


def test_taking_it_back_takes_back_what_reads_it(db: viewkeep.Database) -> None:
    db.sql("CREATE VIEW best AS SELECT story, n * 10 AS points FROM scores")
    catch_up(db.store)
    driver = Driver(db)
    db.sql("CREATE OR REPLACE VIEW scores AS SELECT story, MAX(stars) AS n FROM votes GROUP BY 1")
    driver.epoch()
    db.sql(COUNT.replace("CREATE", "CREATE OR REPLACE"))
    driver.finish()
    assert newest_plan(db.store).successors == {}
    assert db.get("best", 3) == {"story": 3, "points": 10 * (ROWS // 5)}


def test_a_process_killed_after_its_plan_leaves_no_state_behind(
    db: viewkeep.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plan gives up is known to housekeeping, whenever the process that made it died."""
    held = set(newest_plan(db.store).numbers.values())
    commit = revision.commit_plan

    def killed(store: Store, plan: PlanVersion) -> bool:
        assert commit(store, plan)
        raise KeyboardInterrupt

    driver = Driver(db)
    db.sql(SUM)
    with monkeypatch.context() as patch:
        patch.setattr(revision, "commit_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            driver.finish()
    driver.finish()
    left = held - set(newest_plan(db.store).numbers.values())
    assert left, "the old view was to have state of its own"
    while housekeep(db.store):
        pass
    assert db.store.meta.get(revision.DROPPED) is None
    assert left.isdisjoint(db.store.sizes().tables)


def test_a_plan_that_was_never_made_drops_nothing(
    db: viewkeep.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may die before its plan too: what it was to give up stays."""
    held = set(newest_plan(db.store).numbers.values())

    def killed(store: Store, plan: PlanVersion) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(revision, "commit_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            db.sql("DROP VIEW scores")
    db.sql("CREATE VIEW stars AS SELECT SUM(stars) AS s FROM votes")
    catch_up(db.store)
    while housekeep(db.store):
        pass
    assert held <= db.store.sizes().tables.keys()
    assert db.get("scores", 3) == {"story": 3, "n": ROWS // 5}


def test_another_replacement_takes_the_place_of_one_that_is_loaded(db: viewkeep.Database) -> None:
    driver = Driver(db)
    db.sql(SUM)
    driver.epoch()
    db.sql("CREATE OR REPLACE VIEW scores AS SELECT story, MAX(stars) AS m FROM votes GROUP BY 1")
    while driver.epoch():
        assert db.get("scores", 3) in ({"story": 3, "n": ROWS // 5}, {"story": 3, "m": 38})
    assert db.get("scores", 3) == {"story": 3, "m": 38}


def test_dropping_the_view_drops_both(db: viewkeep.Database) -> None:
    db.sql(SUM)
    driver = Driver(db)
    driver.epoch()
    db.sql("DROP VIEW scores")
    driver.finish()
    assert newest_plan(db.store).numbers == {}
    with pytest.raises(UnknownName):
        db.get("scores", 3)


def test_one_that_was_dropped_and_created_anew_is_another(db: viewkeep.Database) -> None:
    db.sql("DROP VIEW scores")
    db.sql(SUM)
    with pytest.raises(NotReady):
        db.get("scores", 3)


def test_a_view_cannot_be_built_on_one_that_changes(db: viewkeep.Database) -> None:
    db.sql(SUM)
    with pytest.raises(CatalogError, match="scores, which best reads, is being replaced"):
        db.sql("CREATE VIEW best AS SELECT story FROM scores")
    catch_up(db.store)
    db.sql("CREATE VIEW best AS SELECT story, s FROM scores")
    catch_up(db.store)
    assert db.sql("SELECT s FROM best WHERE story = 0").one() == {"s": sum(range(0, ROWS, 5))}


def test_one_that_fails_leaves_the_old_one(db: viewkeep.Database) -> None:
    driver = Driver(db)
    db.sql(SUM)
    opened = driver.epochs.open_next(driver.term, SMALL)
    assert opened is not None
    plan = newest_plan(db.store)
    (mine,) = plan.program.placements[successor_name("scores")].operators - (
        plan.program.placements["scores"].operators
    )
    leave_out(db.store, driver.term, opened, {mine: "it is to fail"})
    driver.finish()
    assert db.get("scores", 3) == {"story": 3, "n": ROWS // 5}
    old, new = db.status().views
    assert (old.name, old.state) == ("scores", "ready")
    assert (new.name, new.state) == ("scores (new)", "failed")
    assert "it is to fail" in new.problem
    assert "scores goes on as it was" in new.problem
    db.sql(SUM)
    driver.finish()
    assert db.get("scores", 3) == {"story": 3, "s": sum(range(3, ROWS, 5))}
    assert [view.name for view in db.status().views] == ["scores"]


def test_a_failed_view_is_replaced_at_once(db: viewkeep.Database) -> None:
    driver = Driver(db)
    db.put("votes", {"id": ROWS, "story": 0, "stars": 1})
    opened = driver.epochs.open_next(driver.term, SMALL)
    assert opened is not None
    (operator,) = newest_plan(db.store).program.operators
    leave_out(db.store, driver.term, opened, {operator.id: "it is to fail"})
    driver.finish()
    with pytest.raises(ViewFailed):
        db.get("scores", 3)
    db.sql(SUM)
    driver.finish()
    assert db.get("scores", 3) == {"story": 3, "s": sum(range(3, ROWS, 5))}
