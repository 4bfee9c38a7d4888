"""What operators and views cost: charged once, added up, and told by `profile`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from viewkeep.cli import app
from viewkeep.engine import costs
from viewkeep.engine.costs import Costs, note_costs, read_costs, tell_costs
from viewkeep.engine.local import catch_up
from viewkeep.engine.report import Report

if TYPE_CHECKING:
    import pytest

    from viewkeep import Database

VIEWS = """
    CREATE TABLE t (k INT PRIMARY KEY, g INT);
    CREATE VIEW groups AS SELECT g, COUNT(*) AS n FROM t GROUP BY g;
    CREATE VIEW largest AS SELECT g, n FROM groups ORDER BY n DESC LIMIT 3;
"""


def test_both_lanes_charge_operators(db: Database) -> None:
    db.sql(VIEWS)
    for rows in (range(10), range(10, 20_000)):  # of rows, of columns
        before = read_costs(db.store)
        db.put("t", [{"k": k, "g": k % 7} for k in rows])
        catch_up(db.store)
        tell_costs(db.store)
        spent = read_costs(db.store).since(before)
        assert spent.operations == len(rows)
        assert spent.epochs >= 1
        program = db.catalog.current().program
        assert {operator.id for operator in program.operators} <= set(spent.operators)
        assert 0 < sum(cost for cost, _ in spent.operators.values()) <= spent.seconds
        views = spent.of_views(program)
        assert all(cost > 0 for cost, _ in views.values())
        assert views["largest"][1] >= 3


def test_views_share_the_cost_of_what_they_share(db: Database) -> None:
    db.sql(VIEWS)
    program = db.catalog.current().program
    shared = [
        operator.id
        for operator in program.operators
        if all(operator.id in p.operators for p in program.placements.values())
    ]
    assert shared
    views = Costs(1, 1, 9.0, {shared[0]: (3.0, 10), "gone": (5.0, 1)}).of_views(program)
    assert views == {"groups": (1.5, 5), "largest": (1.5, 5)}


def test_the_record_keeps_the_costliest(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MOST", 2)
    for name, seconds in (("a", 1.0), ("b", 3.0), ("c", 2.0), ("a", 0.5)):
        note_costs(db.store, 10, [Report(0, processor=seconds, costs={name: (seconds, 1)})])
        tell_costs(db.store)
    kept = read_costs(db.store)
    assert (kept.epochs, kept.operations, kept.seconds) == (4, 40, 6.5)
    assert kept.operators == {"b": (3.0, 1), "c": (2.0, 1)}


def test_profile(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql(VIEWS)

    def work(seconds: float) -> None:
        for k in range(5):
            db.put("t", {"k": k, "g": 1})
            catch_up(db.store)
        tell_costs(db.store)

    monkeypatch.setattr("viewkeep.cli.profile.time.sleep", work)
    url = db.store.url
    told = json.loads(CliRunner().invoke(app, ["profile", url, "--seconds", "1", "--json"]).output)
    assert told["epochs"] == told["operations"] == 5
    assert set(told["views"]) == {"groups", "largest"}
    assert told["operators"][0]["seconds"] >= told["operators"][-1]["seconds"] >= 0
    assert "γ COUNT(*) by g" in {one["operator"] for one in told["operators"]}
    shown = CliRunner().invoke(app, ["profile", url]).output
    assert "5 epochs with 5 operations" in shown
    assert "largest" in shown
    monkeypatch.setattr("viewkeep.cli.profile.time.sleep", lambda seconds: None)
    assert "No epoch was published" in CliRunner().invoke(app, ["profile", url]).output
