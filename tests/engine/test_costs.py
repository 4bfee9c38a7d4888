"""What operators and views cost: charged once, added up, and told by `profile`."""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from typer.testing import CliRunner

from viewkeep.cli.commands import app
from viewkeep.engine import costs
from viewkeep.engine.costs import Costs, note_costs, read_costs, tell_costs
from viewkeep.engine.epochs import Published
from viewkeep.engine.local import catch_up
from viewkeep.engine.report import Report
from viewkeep.status import render
from viewkeep.stores.contract import START

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_the_slowest_epoch_of_each_minute_is_kept(db: Database) -> None:
    def publish(epoch: int, second: int, took: float) -> None:
        at = (1_800_000_000 + second) * 10**9
        published = Published(epoch, START, 1, at=at, operations=epoch, seconds=took)
        spent = {f"{n}": (n / 10, n) for n in range(9)}
        note_costs(db.store, 1, [Report(0, processor=3.6, costs=spent)], published)

    for epoch, (second, took) in enumerate([(0, 0.5), (10, 2.0), (20, 1.0), (60, 0.1), (61, 0.3)]):
        publish(epoch, second, took)
    tell_costs(db.store)
    found = read_costs(db.store).slowest
    assert [(one.epoch, one.seconds) for one in found] == [(4, 0.3), (1, 2.0)]
    assert found[0].operators == tuple((f"{n}", n / 10, n) for n in (8, 7, 6, 5, 4))
    assert (found[0].operations, found[0].processor) == (4, 3.6)
    for minute in range(2, 100):
        publish(10 + minute, 60 * minute, 0.2)
    tell_costs(db.store)
    assert [one.epoch for one in read_costs(db.store).slowest] == [*range(109, 49, -1)]
    assert len(db.store.meta.get("costs") or b"") < 30_000


def test_status_names_the_slowest_epoch(db: Database) -> None:
    db.sql(VIEWS)
    db.put("t", [{"k": k, "g": k % 7} for k in range(100)])
    published = catch_up(db.store)
    tell_costs(db.store)
    slowest = db.status().slowest
    assert slowest is not None
    assert slowest.epoch <= published.epoch
    program = db.catalog.current().program
    assert {name for name, _, _ in slowest.operators} & {op.id for op in program.operators}
    console = Console(width=200, file=io.StringIO())
    console.print(render(db.status()))
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert f"slowest epoch of the last hour: {slowest.epoch} took" in told


@dataclass
class Clock:
    """The module `time` for `profile` alone: threads of other tests sleep as before."""

    sleep: Callable[[float], None]
    monotonic = staticmethod(time.monotonic)


def test_profile(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql(VIEWS)

    def work(seconds: float) -> None:
        for k in range(5):
            db.put("t", {"k": k, "g": 1})
            catch_up(db.store)
        tell_costs(db.store)

    monkeypatch.setattr("viewkeep.cli.profile.time", Clock(work))
    url = db.store.url
    told = json.loads(CliRunner().invoke(app, ["profile", url, "--seconds", "1", "--json"]).output)
    assert told["epochs"] == told["operations"] == 5
    assert set(told["views"]) == {"groups", "largest"}
    assert told["operators"][0]["seconds"] >= told["operators"][-1]["seconds"] >= 0
    assert "γ COUNT(*) by g" in {one["operator"] for one in told["operators"]}
    shown = CliRunner().invoke(app, ["profile", url]).output
    assert "5 epochs with 5 operations" in shown
    assert "largest" in shown
    monkeypatch.setattr("viewkeep.cli.profile.time", Clock(lambda seconds: None))
    assert "No epoch was published" in CliRunner().invoke(app, ["profile", url]).output
