"""Thresholds: rows that compare with one bound for their group, in both lanes, against DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from viewkeep.engine.local import catch_up
from viewkeep.engine.state import ShardState
from viewkeep.plan.nodes import Node, Threshold, nodes
from viewkeep.stores import create_store

from .history import FOLDER, History
from .test_histories import histories, phases, play, slow

SELECTS = [
    "SELECT id, part, x FROM items WHERE x > (SELECT AVG(x) FROM items)",
    "SELECT g, COUNT(*) AS n FROM items WHERE x <= (SELECT MAX(x) - 1 FROM items) GROUP BY g",
    "SELECT id, part, d FROM items WHERE d >= (SELECT AVG(d) FROM items WHERE b)",
    "SELECT i.id, i.part, i.m FROM items i JOIN (SELECT h, AVG(m) AS a FROM items GROUP BY h) k "
    "ON i.h = k.h WHERE i.m < k.a",
    "SELECT i.id, i.part FROM items i JOIN (SELECT g, MIN(x) AS low FROM items GROUP BY g) k "
    "ON i.g IS NOT DISTINCT FROM k.g WHERE i.x > k.low",
    "SELECT id, part FROM items i WHERE x < (SELECT SUM(x) FROM items j WHERE j.h = i.h) - x",
    "SELECT h, SUM(x) AS s FROM items GROUP BY h HAVING SUM(x) > (SELECT SUM(x) / 4 FROM items)",
    "SELECT id, part, day FROM items WHERE day > (SELECT MIN(day) FROM items)",
]
FOUND = [True, True, True, True, True, False, True, True]


def is_threshold(node: Node) -> bool:
    return any(isinstance(one, Threshold) for one in nodes([node]))


@settings(max_examples=40, deadline=None, suppress_health_check=slow, phases=phases)
@given(histories)
def test_random_histories(history: list[tuple[str, Any]]) -> None:
    views = [f"CREATE VIEW v{place} AS {text}" for place, text in enumerate(SELECTS)]
    late = [f"CREATE VIEW w{place} AS {text}" for place, text in enumerate(SELECTS[1::2])]
    play(views, late, history, len(history))


def test_they_are_found() -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        model = History(store)
        for place, text in enumerate(SELECTS):
            model.create_view(f"CREATE VIEW v{place} AS {text}")
        plan = model.catalog.current()
        made = [is_threshold(plan.views[f"v{place}"].node) for place in range(len(SELECTS))]
        store.close()
    assert made == FOUND


def test_a_bound_that_moves_costs_the_rows_that_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 rows, of which ten lie between the old and the new average."""
    read: list[int] = []
    scan_ranges = ShardState.scan_ranges

    def counted(self: ShardState, *given: Any, **more: Any) -> Any:
        for found in scan_ranges(self, *given, **more):
            read.append(len(found.keys))
            yield found

    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        model = History(store)
        model.create_view(
            "CREATE VIEW above AS SELECT id, part FROM items WHERE x > (SELECT AVG(x) FROM items)"
        )
        model.put([{"id": number, "part": 0, "x": number} for number in range(1_000)])
        catch_up(store)
        monkeypatch.setattr(ShardState, "scan_ranges", counted)
        model.put([{"id": 1_000, "part": 0, "x": 499 + 10 * 1_001 + 1}])
        catch_up(store)
        model.check()
        store.close()
    assert 8 <= sum(read) <= 12
