"""What users see of a view that failed: an error with the reason, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeep
from viewkeep.engine.failures import forget_trouble, note_trouble
from viewkeep.engine.local import catch_up
from viewkeep.errors import CatalogError, NotReady, ViewFailed
from viewkeep.serve.http.errors import status_of
from viewkeep.serve.mysql.faults import fault_of
from viewkeep.status import line

sys.path.append(str(Path(__file__).parent.parent))

from engine.poison import POISON, poisoned

__all__ = ["poisoned"]


@pytest.fixture
def db(tmp_path: Path, poisoned: None) -> Iterator[viewkeep.Database]:
    with viewkeep.open(str(tmp_path / "db"), durability="relaxed") as made:
        made.sql("""
            CREATE TABLE words (id BIGINT PRIMARY KEY, word STRING);
            CREATE VIEW counted AS SELECT word, COUNT(*) AS n FROM words GROUP BY word;
            CREATE VIEW hashed AS SELECT id, md5(word) AS h FROM words;
        """)
        made.put("words", [{"id": 1, "word": "a"}, {"id": 2, "word": "b"}])
        catch_up(made.store)
        yield made


def poison(db: viewkeep.Database) -> None:
    db.put("words", {"id": 3, "word": POISON})
    catch_up(db.store, set_aside=True)


def test_reads_say_since_when_and_why_and_what_to_do(db: viewkeep.Database) -> None:
    poison(db)
    expected = r"view hashed failed at epoch \d+ \(\d{4}-.* UTC\) and is no longer kept: .*"
    expected += r"the well is poisoned\. Correct the rows and run: viewkeep repair .* hashed; or"
    for read in (
        lambda: db.get("hashed", 1),
        lambda: db.scan("hashed"),
        lambda: db.sql("SELECT h FROM hashed WHERE id = 1"),
        lambda: db.sql("SELECT COUNT(*) FROM hashed"),
        lambda: db.subscribe("hashed"),
        lambda: db.session().get("hashed", 1),
    ):
        with pytest.raises(ViewFailed, match=expected):
            read()
    assert db.get("counted", POISON) == {"word": POISON, "n": 1}


def test_a_snapshot_taken_before_reads_on(db: viewkeep.Database) -> None:
    with db.snapshot() as snapshot:
        before = snapshot.get("hashed", 1)
        poison(db)
        assert snapshot.get("hashed", 1) == before


def test_a_feed_ends_with_the_reason_and_others_go_on(db: viewkeep.Database) -> None:
    failing, healthy = db.subscribe("hashed"), db.subscribe("counted")
    assert len(failing.poll()) == len(healthy.poll()) == 1
    poison(db)
    with pytest.raises(ViewFailed, match="the well is poisoned"):
        failing.poll()
    assert [change.new for event in healthy.poll() for change in event.changes] == [
        {"word": POISON, "n": 1}
    ]


def test_status_tells(db: viewkeep.Database) -> None:
    assert [view.state for view in db.status().views] == ["ready", "ready"]
    poison(db)
    status = db.status()
    counted, hashed = status.views
    assert (counted.state, hashed.state) == ("ready", "failed")
    assert "the well is poisoned" in hashed.problem
    assert "failed hashed" in line(status)
    assert status.trouble is None


def test_status_tells_of_a_pipeline_that_fails(db: viewkeep.Database) -> None:
    note_trouble(db.store, "no memory", pause=60)
    assert db.status().trouble == (
        "the pipeline has failed once since epoch 1: no memory; the next attempt is in 60 s"
    )
    note_trouble(db.store, "no disk")
    assert "2 times since epoch 1: no disk" in line(db.status())
    db.put("words", {"id": 3, "word": "c"})
    catch_up(db.store)
    assert db.status().trouble is None
    note_trouble(db.store, "no disk")
    forget_trouble(db.store)
    assert db.status().trouble is None


def test_explain_still_shows_its_plan(db: viewkeep.Database) -> None:
    poison(db)
    assert db.explain("hashed").endswith("view hashed has failed")
    assert "view hashed (id, h)" in db.explain("hashed")
    assert "view counted" in db.explain()
    assert "view hashed has failed" in db.explain()


def test_it_is_repaired(db: viewkeep.Database) -> None:
    poison(db)
    with pytest.raises(CatalogError, match="viewkeep repair loads it afresh"):
        db.catalog.rebuild_view("hashed")
    db.put("words", {"id": 3, "word": "c"})
    assert db.repair("hashed") == ("hashed",)
    with pytest.raises(NotReady):
        db.get("hashed", 1)
    assert db.explain("hashed").endswith("view hashed waits to be loaded afresh")
    assert [view.state for view in db.status().views] == ["ready", "waiting"]
    catch_up(db.store)
    assert len(db.scan("hashed")) == 3
    assert db.repair() == ()


def test_it_is_dropped_or_replaced_by_sql(db: viewkeep.Database) -> None:
    poison(db)
    db.sql("CREATE OR REPLACE VIEW hashed AS SELECT id, sha1(word) AS h FROM words")
    catch_up(db.store)
    assert len(db.scan("hashed")) == 3
    db.sql("CREATE VIEW more AS SELECT id, md5(word) AS h FROM words")
    catch_up(db.store, set_aside=True)
    with pytest.raises(ViewFailed):
        db.get("more", 1)
    db.sql("DROP VIEW more")
    assert [view.name for view in db.status().views] == ["counted", "hashed"]


def test_protocols_have_a_code_for_it() -> None:
    assert status_of(ViewFailed("x")) == 500
    assert fault_of(ViewFailed("x")).code == 1356
