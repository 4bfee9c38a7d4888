"""Databases in memory: views without Spark, for an application's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import viewkeep
from viewkeep import Database, ViewkeepError, inprocess, testing
from viewkeep.engine.epochs import OpenEpoch, Published
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import Report
from viewkeep.errors import OperatorFailed, Timeout, ViewFailed
from viewkeep.stores.contract import Store

VOTES = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)"
SCORES = "CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story"


def votes(db: Database) -> list[tuple[int, int]]:
    return [(row["story"], row["votes"]) for row in db.scan("scores")]


def test_views_hold_each_write_at_once(viewkeep_db: Database) -> None:
    db = viewkeep_db
    db.sql(VOTES)
    db.put("votes", {"id": 1, "story": 7})
    db.sql(SCORES)  # loaded at once too
    assert votes(db) == [(7, 1)]
    db.sql("INSERT INTO votes VALUES (2, 7), (3, 8)")
    assert votes(db) == [(7, 2), (8, 1)]
    db.delete("votes", 1)
    assert votes(db) == [(7, 1), (8, 1)]


def test_sessions_and_feeds(viewkeep_db: Database) -> None:
    db = viewkeep_db
    session = db.session(timeout=0.0)
    session.sql(f"{VOTES}; {SCORES}")
    with db.subscribe("scores") as feed:
        events = iter(feed)
        first = next(events)
        session.put("votes", {"id": 1, "story": 7})
        assert session.get("scores", 7) == {"story": 7, "votes": 1}
        change = next(events)
    assert change.epoch > first.epoch


def test_epochs_on_demand() -> None:
    with testing.database(each_write=False) as db:
        db.sql(f"{VOTES}; {SCORES}")
        db.put("votes", {"id": 1, "story": 7})
        assert db.status().lag == 1
        db.wait()
        assert votes(db) == [(7, 1)]
        db.put("votes", {"id": 2, "story": 7})
        assert votes(db) == [(7, 1)], "the published epoch, until somebody waits"
        seen: list[Published] = []
        with db.pipeline(on_epoch=seen.append) as pipeline:
            assert votes(db) == [(7, 2)]
            db.put("votes", {"id": 3, "story": 7})
            assert pipeline.wait().epoch == seen[-1].epoch
        assert votes(db) == [(7, 3)]
        assert len(seen) == 2


def test_open_by_url_is_a_new_database_each_time() -> None:
    with viewkeep.open(":memory:") as one, viewkeep.open(":memory:") as two:
        one.sql(VOTES)
        assert (one.tables(), two.tables()) == (["votes"], [])


def test_another_process_can_read_it(viewkeep_db: Database) -> None:
    viewkeep_db.sql(f"{VOTES}; {SCORES}")
    viewkeep_db.put("votes", {"id": 1, "story": 7})
    code = f"import viewkeep; print(viewkeep.open({viewkeep_db.url!r}).get('scores', 7))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'story': 7, 'votes': 1}"


def test_it_is_gone_when_it_is_closed() -> None:
    db = testing.database()
    folder = Path(db.url.removeprefix("lmdb:")).parent
    assert folder.is_dir()
    db.close()
    assert not folder.exists()
    db.close()  # harmless


def test_it_is_gone_when_its_process_ends_and_not_when_a_child_does() -> None:
    code = (
        "import os, sys, viewkeep.testing\n"
        "db = viewkeep.testing.database()\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait()\n"
        "folder = os.path.dirname(db.url.removeprefix('lmdb:'))\n"
        "print(folder, os.path.isdir(folder))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder, there = done.stdout.split()
    assert there == "True"
    assert not os.path.exists(folder)


def test_threads(viewkeep_db: Database) -> None:
    viewkeep_db.sql(f"{VOTES}; {SCORES}")

    def write(first: int) -> None:
        for key in range(first, first + 25):
            viewkeep_db.put("votes", {"id": key, "story": 7})

    threads = [threading.Thread(target=write, args=(n * 25,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert votes(viewkeep_db) == [(7, 100)]


def test_a_view_that_fails_is_set_aside(
    viewkeep_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = viewkeep_db
    db.sql(f"{VOTES}; {SCORES}")
    db.sql("CREATE VIEW all_votes AS SELECT id FROM votes")
    run_epoch = inprocess.run_epoch
    (operator, *_) = db.catalog.current().program.placements["scores"].operators

    def poisoned(store: Store, epoch: OpenEpoch) -> list[Report]:
        plan = load_plan(store, epoch.plan)
        if "scores" not in plan.failed:
            raise OperatorFailed("poison", operator)
        return run_epoch(store, epoch)

    monkeypatch.setattr(inprocess, "run_epoch", poisoned)
    db.put("votes", {"id": 1, "story": 7})
    with pytest.raises(ViewFailed, match="poison"):
        db.get("scores", 7)
    assert db.scan("all_votes").rows() == [{"id": 1}]
    monkeypatch.undo()
    db.repair("scores")
    assert votes(db) == [(7, 1)]


def test_options_are_checked() -> None:
    with pytest.raises(ViewkeepError, match="nodes"):
        viewkeep.open(":memory:", nodes=0)


def test_the_fixture_comes_with_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_application.py").write_text(
        "def test_scores(viewkeep_db):\n"
        f"    viewkeep_db.sql('{VOTES}')\n"
        f"    viewkeep_db.sql('{SCORES}')\n"
        "    viewkeep_db.put('votes', {'id': 1, 'story': 7})\n"
        "    assert viewkeep_db.get('scores', 7) == {'story': 7, 'votes': 1}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_session_waits_for_epochs_that_nobody_runs() -> None:
    with testing.database(each_write=False) as db:
        db.sql(f"{VOTES}; {SCORES}")
        db.wait()
        session = db.session(timeout=0.01)
        session.put("votes", {"id": 1, "story": 7})
        with pytest.raises(Timeout):
            session.get("scores", 7)
        db.wait()
        assert session.get("scores", 7) == {"story": 7, "votes": 1}
