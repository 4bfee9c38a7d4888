"""Every stage of the planner has golden cases, and the views of each hold what DuckDB says."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import polars as pl
import pytest

import viewkeep
from viewkeep.engine.adhoc import evaluate
from viewkeep.plan.nodes import Source
from viewkeep.plan.passes import PASSES
from viewkeep.sql.stages import STAGES

from ...slt.epochs import run_epochs
from ...slt.oracle import Twin, difference
from .golden import TABLES, TEXTS, Golden, goldens, made, query

FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
CASES = list(goldens())
ROWS = """
INSERT OR REPLACE INTO t VALUES (0, 1, 2), (1, 1, NULL), (2, 2, 1), (3, NULL, 0), (4, 2, 2);
INSERT OR REPLACE INTO p VALUES (0, 0, 1), (1, 0, 2), (2, 1, 2), (3, NULL, 2), (4, 9, 1),
  (5, 2, NULL);
INSERT OR REPLACE INTO q VALUES (0, 0, 1), (0, 1, 2), (1, 0, 1), (2, 1, NULL), (3, 3, 2);
INSERT OR REPLACE INTO x VALUES
  (1, 2, 1.5D, 2.25, 'a', TRUE, DATE '2024-01-02', TIMESTAMP '2024-01-02 10:00:00'),
  (2, 3, 1D, 0.50, 'b', FALSE, DATE '2024-02-29', TIMESTAMP '2024-01-01 10:00:00'),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 4, 1D, 1.75, '', TRUE, DATE '2024-01-03', NULL);
"""
CHANGES = """
UPDATE t SET a = 2, b = b + 1 WHERE id < 2;
DELETE FROM p WHERE id = 2;
UPDATE p SET t_id = 1, v = 1 WHERE id = 3;
INSERT INTO p VALUES (6, 2, 3);
UPDATE q SET w = NULL WHERE k = 0;
UPDATE x SET n = 3, s = 'b' WHERE id = 1
"""
BACK = "DELETE FROM p WHERE id = 6"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.stage}: {case.title}")
def test_golden(case: Golden) -> None:
    found, wanted = made(case).split("\n"), (case.plan or "").split("\n")
    assert found == wanted, "\n".join(unified_diff(wanted, found, "golden", "found", lineterm=""))


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[viewkeep.Database, Twin]]:
    """A database and DuckDB with the same tables."""
    twin = Twin()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / "golden.vk"
        with viewkeep.make(path, nodes=2, shards=2, durability="relaxed") as db:
            db.sql(TABLES)
            twin.run(TABLES)
            both(db, twin, ROWS)
            yield db, twin
    twin.close()


def both(db: viewkeep.Database, twin: Twin, text: str) -> None:
    """Run changes on both sides."""
    db.sql(text)
    twin.run(text)


VIEWS = [case for case in CASES if case.sql.startswith("create")]
SELECTS = [case for case in CASES if case.sql not in {case.sql for case in VIEWS}]


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: f"{case.stage}: {case.title}")
def test_views_hold_what_their_sql_says(pair: tuple[viewkeep.Database, Twin], case: Golden) -> None:
    """Loaded from rows that are there, after changes, and after those are taken back."""
    db, twin = pair
    db.sql(case.sql)
    try:
        for name, view in db.catalog.current().views.items():
            twin.create_view(name, view.sql)  # which says what the order of a view leaves open
        for changes in ("", CHANGES, BACK + ";" + ROWS):
            both(db, twin, changes)
            run_epochs(db.store)
            for name in twin.views:
                wanted = twin.rows(f"SELECT * FROM {name}")
                assert not difference(db.scan(name).tuples(), wanted), name
    finally:
        for name in reversed(twin.views):
            db.sql(f"DROP VIEW {name}")
        twin.drop_views()


@pytest.mark.parametrize("case", SELECTS, ids=lambda case: f"{case.stage}: {case.title}")
def test_plans_give_the_rows_of_the_query(
    pair: tuple[viewkeep.Database, Twin], case: Golden
) -> None:
    """The plan as it is lowered, before any pass has changed it."""
    db, twin = pair

    def rows_of(source: Source) -> pl.DataFrame:
        return db.scan(source.table).polars()

    lowered = query(case.sql)
    rows = evaluate(lowered.node, rows_of)
    found = zip(*(rows[inner].to_list() for _, inner in lowered.columns), strict=True)
    twin.create_view("golden", case.sql)
    wanted = twin.rows("SELECT * FROM golden")
    twin.drop_views()
    assert not difference(found, wanted)


def test_every_stage_has_cases() -> None:
    """The passes have theirs in tests/plan/passes."""
    passes = {change.__name__ for change in PASSES}
    names = [stage.name for stage in STAGES if stage.name not in passes]
    assert names == list(TEXTS)
    counts = Counter(case.stage for case in CASES)
    assert all(counts[name] >= 8 for name in names), counts


def test_stages_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "design" / "passes.md").read_text()
    places = [text.find(f"| `{stage.name}` |") for stage in STAGES]
    assert -1 not in places
    assert places == sorted(places), "the table is not in the order of STAGES"
