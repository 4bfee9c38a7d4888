"""Records that a newer version of viewkeep has written, with fields that this one does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from viewkeep.engine.costs import read_costs, tell_costs
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.failures import note_trouble, trouble_of
from viewkeep.engine.local import catch_up
from viewkeep.engine.report import Report

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.stores.contract import Store

RECORDS = ("epoch", "lease", "costs", "failures")
NESTED = ("published", "open", "cut", "start")  # records within records


def add_fields(store: Store, name: str) -> None:
    """Have a record, and those within it, say more than we know of."""
    raw = store.meta.get(name)
    assert raw is not None, name
    value = json.loads(raw)
    _add_to(value)
    assert store.meta.cas(name, raw, json.dumps(value).encode())


def _add_to(value: dict[str, Any]) -> None:
    for name in NESTED:
        if isinstance(value.get(name), dict):
            _add_to(value[name])
    value["tomorrow"] = {"is": "another day"}


def test_fields_of_a_newer_version_are_left_out(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, g INT);"
        "CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g"
    )
    db.put("t", [{"k": 1, "g": 1}])
    catch_up(db.store)
    tell_costs(db.store)
    db.put("t", [{"k": 2, "g": 1}])
    epochs = Epochs(db.store)
    pin, lease = epochs.pin(), epochs.acquire()
    assert epochs.open_next(lease.term, Limits()) is not None
    note_trouble(db.store, "no memory")
    before, costs, trouble = epochs.read(), read_costs(db.store), trouble_of(db.store)
    for name in (*RECORDS, f"pin/{pin.id}"):
        add_fields(db.store, name)

    newly = Epochs(db.store)
    assert newly.read() == before
    assert newly.pins() == [pin]
    assert read_costs(db.store) == costs
    assert trouble_of(db.store) == trouble
    newly.renew(lease)
    newly.release(lease)
    assert db.status().epoch == before.published.epoch
    catch_up(db.store)
    assert db.get("v", 1) == {"g": 1, "n": 2}


def test_reports_of_newer_tasks_are_read() -> None:
    report = Report(0, 3, rows_in=7)
    value = {**json.loads(report.encode()), "tomorrow": 1}
    assert Report.decode(json.dumps(value).encode()) == report
