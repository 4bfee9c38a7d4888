"""A write changes no value: integers that a DOUBLE cannot hold, times finer than microseconds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pytest

from viewkeep.errors import ViewkeepError

if TYPE_CHECKING:
    from viewkeep import Database

INEXACT = 2**53 + 1
FINE = "2024-01-01T00:00:00.1234567"
TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE, at TIMESTAMP, b BIGINT)"


@pytest.fixture
def table(db: Database) -> Database:
    db.sql(TABLE)
    db.put("t", {"id": 5, "b": INEXACT})
    return db


WRITES: dict[str, Callable[[Database], object]] = {
    "a dict": lambda db: db.put("t", {"id": 1, "x": INEXACT}),
    "dicts": lambda db: db.insert("t", [{"id": 1, "x": 1}, {"id": 2, "x": INEXACT}]),
    "a frame": lambda db: db.put("t", pl.DataFrame({"id": [1], "x": [INEXACT]})),
    "the largest": lambda db: db.put("t", pl.DataFrame({"id": [1], "x": [2**63 - 1]})),
    "a constant": lambda db: db.sql(f"INSERT INTO t (id, x) VALUES (1, {INEXACT})"),
    "a long constant": lambda db: db.sql(f"INSERT INTO t (id, x) VALUES (1, {10**25 + 1})"),
    "a parameter": lambda db: db.sql("INSERT INTO t (id, x) VALUES (1, ?)", (INEXACT,)),
    "a query": lambda db: db.sql("INSERT INTO t (id, x) SELECT 1, b FROM t"),
    "an update": lambda db: db.sql("UPDATE t SET x = b"),
    "a time of a dict": lambda db: db.put("t", {"id": 1, "at": pd.Timestamp(1)}),
    "a time of a frame": lambda db: db.put(
        "t", pl.DataFrame({"id": [1], "at": pl.Series([1], dtype=pl.Datetime("ns"))})
    ),
    "a time as text": lambda db: db.sql(f"INSERT INTO t (id, at) VALUES (1, '{FINE}')"),
    "a constant time": lambda db: db.sql(f"INSERT INTO t (id, at) VALUES (1, TIMESTAMP '{FINE}')"),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_would_be_rounded_is_refused(table: Database, name: str) -> None:
    with pytest.raises(ViewkeepError, match=r"DOUBLE|TIMESTAMP|microseconds"):
        WRITES[name](table)
    assert len(table.scan("t")) == 1
    row = table.get("t", 5)
    assert row is not None
    assert row["x"] is None


@pytest.mark.parametrize("text", [f"id,x\n1,{INEXACT}\n", f"id,at\n1,{FINE}\n"])
def test_files_are_not_rounded_either(table: Database, tmp_path: Path, text: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(ViewkeepError, match=r"row 1: column (x|at).* is not a"):
        table.load("t", file, progress=False)


def test_what_fits_or_is_cast_is_taken(table: Database, tmp_path: Path) -> None:
    table.put("t", {"id": 1, "x": 2**53, "at": pd.Timestamp(1000)})
    table.put("t", {"id": 2, "x": float(INEXACT)})
    table.put("t", pl.DataFrame({"id": [3], "x": [2**60]}))
    table.sql(f"INSERT INTO t (id, x) SELECT 4, CAST(b AS DOUBLE) FROM t WHERE b = {INEXACT}")
    table.sql("INSERT INTO t (id, x, at) VALUES (6, 0.1, '2024-01-01 00:00:00.1234560')")
    file = tmp_path / "rows.csv"
    file.write_text("id,x\n7,0.1\n8,1e23\n9,-9007199254740992\n")
    table.load("t", file, progress=False)
    values = {row["id"]: row["x"] for row in table.scan("t").rows()}
    assert values == {
        1: 2.0**53, 2: 2.0**53, 3: 2.0**60, 4: 2.0**53, 5: None, 6: 0.1, 7: 0.1, 8: 1e23,
        9: -(2.0**53),
    }  # fmt: skip
    found = table.get("t", 6)
    assert found is not None
    assert found["at"] == dt.datetime(2024, 1, 1, 0, 0, 0, 123456)


def test_the_error_says_what_to_write(table: Database) -> None:
    with pytest.raises(ViewkeepError, match="the nearest is 9007199254740992: give it as a float"):
        table.put("t", {"id": 1, "x": INEXACT})
    with pytest.raises(ViewkeepError, match=r"Write CAST\(... AS DOUBLE\)"):
        table.sql("UPDATE t SET x = b")
