"""Base tables at an epoch, where the store has no before-images, and whether DELTA lost a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.slt.epochs import run_epochs

import viewkeep
from viewkeep import Database
from viewkeep.access.live import lost_rows
from viewkeep.errors import NotReady
from viewkeep.plan.nodes import CellSource
from viewkeep.testing.awkward import AwkwardLog

LONG = "é" * 400  # its key is cut


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    url = f"awkward:twice=30,reorder=1:{tmp_path}/a.vk"
    with viewkeep.make(url, nodes=2, shards=4, durability="relaxed") as db:
        db.sql("CREATE TABLE notes (id STRING PRIMARY KEY, size INT, body STRING)")
        yield db


def fill(db: Database) -> None:
    for number in range(60):
        db.put("notes", {"id": f"n{number}", "size": number, "body": "x" * (number % 3)})
    db.put("notes", {"id": LONG, "size": None, "body": None})
    db.delete("notes", "n7")


def lost(db: Database) -> int | None:
    source = db.catalog.current().tables["notes"]
    assert isinstance(source, CellSource)
    pin = db.epochs.pin()
    try:
        return lost_rows(db.store, db.epochs, source, pin)
    finally:
        db.epochs.unpin(pin)


def test_a_snapshot_reads_tables_as_they_were(db: Database) -> None:
    db.sql("CREATE VIEW sizes AS SELECT size, COUNT(*) AS n FROM notes GROUP BY size")
    fill(db)
    run_epochs(db.store)
    before = db.scan("notes").tuples()
    with db.snapshot() as snapshot:
        db.put("notes", {"id": "n1", "size": 1000})
        db.delete("notes", LONG)
        run_epochs(db.store)
        assert snapshot.scan("notes").tuples() == before
        assert snapshot.get("notes", LONG) == {"id": LONG, "size": None, "body": None}
        assert snapshot.get("notes", "n7") is None
        assert snapshot.scan("notes", limit=5, reverse=True).tuples() == before[::-1][:5]
    assert db.scan("notes", at="stable").tuples() == db.scan("notes").tuples()
    assert len(db.scan("notes").tuples()) == 59
    joined = db.sql("SELECT COUNT(*) AS n FROM notes JOIN sizes ON notes.size = sizes.size")
    assert joined.tuples() == [(59,)]


def test_a_table_that_no_view_reads_has_no_past(db: Database) -> None:
    fill(db)
    run_epochs(db.store)
    assert len(db.scan("notes").tuples()) == 60
    with pytest.raises(NotReady, match="no view reads it"):
        db.scan("notes", at="stable")


def test_rows_that_the_log_lost_are_found(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql("CREATE VIEW sizes AS SELECT size, COUNT(*) AS n FROM notes GROUP BY size")
    fill(db)
    assert lost(db) is None  # before its first epoch
    run_epochs(db.store)
    assert lost(db) == 0
    db.put("notes", {"id": "n1", "size": 5})
    db.put("notes", {"id": "new", "size": 5})
    assert lost(db) == 0  # what the log has still to bring is no loss
    cells = AwkwardLog.cells

    def without(self: AwkwardLog, *args: Any) -> Iterator[Any]:
        return (one for one in cells(self, *args) if b"new" not in one.key)

    with monkeypatch.context() as patch:
        patch.setattr(AwkwardLog, "cells", without)
        run_epochs(db.store)
    monkeypatch.setattr("viewkeep.access.live._SECONDS", 0.01)
    assert lost(db) == 1
