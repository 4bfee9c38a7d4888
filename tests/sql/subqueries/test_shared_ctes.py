"""Views over CTEs that are read twice at each level: created, filled, changed, read and dropped.

The rows are DuckDB's, after inserts and after changes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

import viewkeep

from ...plan.passes.test_growth import SHAPES
from ...slt.epochs import run_epochs

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT)"
ROWS = [(i, i % 4 if i % 5 else None, (i * 7) % 6 if i % 3 else None) for i in range(12)]
CHANGED = [(0, 3, 1), (4, None, 2), (9, 1, None), (20, 9, 4)]
LEVELS = {"unions of one": 8}


@pytest.mark.parametrize("shape", SHAPES)
def test_as_duckdb(shape: str, tmp_path: Path) -> None:
    text = SHAPES[shape](LEVELS.get(shape, 6))  # large enough for plans in several fragments
    model = duckdb.connect()
    model.execute(TABLE)
    with viewkeep.open(tmp_path / "db.vk", durability="relaxed") as db:
        db.sql(TABLE)
        db.sql(f"CREATE VIEW v AS {text}")
        for rows in (ROWS, CHANGED):
            for row in rows:
                db.put("t", dict(zip(("id", "a", "b"), row, strict=True)))
                model.execute("INSERT OR REPLACE INTO t VALUES (?, ?, ?)", row)
            run_epochs(db.store)
            wanted = Counter(model.execute(text).fetchall())
            assert Counter(db.sql("SELECT * FROM v").tuples()) == wanted
            assert Counter(db.sql(text).tuples()) == wanted, "a query, not a view"
        db.sql("DROP VIEW v")


@pytest.mark.parametrize("shape", SHAPES)
def test_twenty_levels(shape: str, tmp_path: Path) -> None:
    with viewkeep.open(tmp_path / "db.vk", durability="relaxed") as db:
        db.sql(TABLE)
        db.sql(f"CREATE VIEW v AS {SHAPES[shape](20)}")
        assert db.sql(f"EXPLAIN {SHAPES[shape](20)}").tuples()
    with viewkeep.open(tmp_path / "db.vk", durability="relaxed") as db:
        assert list(db.views()) == ["v"]
        db.put("t", {"id": 1, "a": 1, "b": 1})
        run_epochs(db.store, 100)
        db.sql("SELECT * FROM v").tuples()
        db.sql("DROP VIEW v")
        assert not list(db.views())
