"""Joins that explode run in Spark workers that may have 1 GiB each, enforced by the kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import viewkeep
from viewkeep.engine.local import catch_up

pytestmark = pytest.mark.long

DRIVER = Path(__file__).with_name("small_driver.py")
TABLES = """
    CREATE TABLE a (id INT PRIMARY KEY, k INT, x BIGINT, t STRING);
    CREATE TABLE b (id INT PRIMARY KEY, k INT, y BIGINT, t STRING);
"""
BOTH = "FROM a JOIN b ON a.k = b.k"
SUMS = f"CREATE VIEW v AS SELECT a.k, COUNT(*) AS n {BOTH} GROUP BY a.k"
TEXTS = f"CREATE VIEW v AS SELECT a.id AS i, b.id AS j, a.t AS s, b.t {BOTH}"
FIRST = f"CREATE VIEW v AS SELECT a.id AS i, b.id AS j, b.y {BOTH} ORDER BY y DESC, i, j LIMIT 10"
PARTNERS = "CREATE VIEW v AS SELECT a.id AS i, b.y FROM a JOIN b ON a.k = b.id"


@pytest.mark.parametrize(
    ("view", "rows", "others", "shown"),
    [
        pytest.param(SUMS, 10_000, 10_000, 1, id="sums"),
        pytest.param(TEXTS, 700, 700, 490_000, id="texts"),
        pytest.param(FIRST, 1_500, 1_500, 10, id="first"),
        pytest.param(PARTNERS, 1_000_000, 1, 1_000_000, id="a million partners"),
    ],
)
def test_in_workers_of_one_gib(
    tmp_path: Path, view: str, rows: int, others: int, shown: int
) -> None:
    db = viewkeep.open(tmp_path / "m.vk", durability="relaxed")
    db.sql(TABLES + view)
    catch_up(db.store)
    text = "t" * (500 if view == TEXTS else 1)
    for name, value, count in (("b", "y", others), ("a", "x", rows)):
        columns = {"id": range(count), "k": [0] * count, value: [1] * count, "t": [text] * count}
        db.put(name, pl.DataFrame(columns))
    if view == PARTNERS:
        catch_up(db.store)
        db.put("b", {"id": 0, "k": 0, "y": 2})
    command = [sys.executable, str(DRIVER), db.url]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert db.aggregate("v", "count(*)") == {"count(*)": shown}
    if view == SUMS:
        assert db.scan("v").one() == {"k": 0, "n": rows * others}
    if view == PARTNERS:
        assert db.aggregate("v", "min(y)") == {"min(y)": 2}
    db.close()
