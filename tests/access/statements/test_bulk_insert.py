"""INSERT of many rows in one statement: the values and errors of analysis, and no more time."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.errors import DuplicateKey, ViewkeepError
from viewkeep.plan.nodes import Source
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.bulk_insert import split_rows, stored_rows
from viewkeep.sql.statements.nodes import Insert
from viewkeep.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    Schema,
    decimal,
)

if TYPE_CHECKING:
    from viewkeep import Database

TABLE = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING, n INT, x DOUBLE, m DECIMAL(6,2), "
    "f BOOLEAN, d DATE, at TIMESTAMP)"
)
COLUMNS = [
    Column("id", BIGINT, False), Column("s", STRING), Column("n", INT), Column("x", DOUBLE),
    Column("m", decimal(6, 2)), Column("f", BOOLEAN), Column("d", DATE), Column("at", TIMESTAMP),
]  # fmt: skip
NUMBERS = ["0", "-7", "1.5", "-0.0", "NULL", "12", "12.5"]
VALUES = [
    ["0", "-7", "2147483648", "9007199254740993", "999999999999999999"],
    ["''", "'a'", "'it''s'", "'é😀\n'", "'--'", "'), ('", "null", "'2024-02-29'"],
    ["0", "-7", "2147483647", "NULL", "-2147483648"],
    [*NUMBERS, "1e3", "1E-2", "0.001", "0.1", "9007199254740992"],
    [*NUMBERS, "1234.5", "-1234.56", "9999.99"],
    ["TRUE", "false", "NULL"],
    ["'2024-02-29'", "'0001-01-01'", "NULL", "DATE '2024-02-29'", "date'0001-01-01'"],
    [
        "'2024-02-29 12:00:00'",
        "'2024-02-29T12:00:00.25'",
        "NULL",
        "TIMESTAMP '2024-02-29 12:00:00'",
    ],
]
# Of which some column does not take each as it stands: analysis sees to them.
MOMENTS = ["DATE '2024-02-29'", "DATE '2024-02-30'", "TIMESTAMP '2024-02-29'", "date '9999-12-31'"]
ODD = [
    *MOMENTS,
    "2147483648",
    "0.001",
    "1e999",
    "'2024-02-30'",
    "'2024-02-29 12:00:00.1234567'",
    "12345.67",
]
ROW = st.tuples(*(st.sampled_from([*values, *values, "2147483648", *MOMENTS]) for values in VALUES))


@given(st.lists(ROW, min_size=1, max_size=3), st.sampled_from([*ODD, *["TRUE"] * 9]))
def test_values_are_those_of_analysis(rows: list[tuple[str, ...]], odd: str) -> None:
    rows[-1] = (*rows[-1][:5], odd, *rows[-1][6:])
    text = "INSERT INTO t VALUES " + ",\n ".join(f"({', '.join(row)} )" for row in rows) + " ;"
    found = split_rows(text)
    if found is None:
        return
    head, values = found
    stored = stored_rows(values, COLUMNS)
    if stored is None:
        return
    source = Source("t", 1, Schema(tuple(COLUMNS), ("id",)))
    (tree,), (first,) = parse(text), parse(head)
    wanted, one = analyse(tree, {"t": source}.get), analyse(first, {"t": source}.get)
    assert isinstance(wanted, Insert)
    assert isinstance(one, Insert)
    assert (wanted.rows, wanted.rows[:1]) == (stored, one.rows)
    assert [list(map(type, row)) for row in wanted.rows] == [list(map(type, row)) for row in stored]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (1, 2), (3, 4 5)",
        "INSERT INTO t VALUES (1, 2), (3, 4",
        "INSERT INTO t VALUES (1, 2) (3, 4)",
        "INSERT INTO t VALUES (1, 2), (3, -- x\n 4)",
        "INSERT INTO t VALUES (1, 2), (3, a)",
        "INSERT INTO t VALUES (1, 'a\\\\n')",
        "INSERT INTO t VALUES (1, 'a' 'b')",
        "INSERT INTO t VALUES (1, 2); SELECT 1",
        "INSERT INTO t SELECT 1",
        "UPDATE t SET a = 1",
    ],
)
def test_other_texts_are_for_analysis(text: str) -> None:
    assert split_rows(text) is None


def _inserted(db: Database, start: int, count: int, verb: str = "INSERT") -> str:
    rows = ", ".join(f"({n}, 'user {n}', {n % 7}, {n / 2})" for n in range(start, start + count))
    return f"{verb} INTO t (id, s, n, x) VALUES {rows}"


def test_many_rows(db: Database) -> None:
    db.sql(TABLE)
    assert db.sql(_inserted(db, 0, 2_000)).affected == 2_000
    assert db.get("t", 1_999) == {
        "id": 1_999, "s": "user 1999", "n": 4, "x": 999.5, "m": None, "f": None, "d": None,
        "at": None,
    }  # fmt: skip
    with pytest.raises(DuplicateKey, match="id = 1999"):
        db.sql(_inserted(db, 1_999, 2_000))
    assert db.sql(_inserted(db, 1_000, 2_000, "INSERT OR REPLACE")).affected == 2_000
    assert len(db.scan("t")) == 3_000


def test_errors_are_those_of_analysis(db: Database) -> None:
    db.sql(TABLE)
    text = _inserted(db, 0, 1_000)
    for wrong, message in {
        text.replace("INTO t", "INTO nothing"): "no table or view is called nothing",
        text.replace("(id, s", "(id, z"): "t has no column z",
        text + ", (5000, 'a', 1)": "4 columns but 3 values",
        text + ", (5000, 7, 1, 1.0)": "column s is STRING",
        text + ", (5000, 'a', 3000000000, 1.0)": "column n is INT",
    }.items():
        with pytest.raises(ViewkeepError, match=message):
            db.sql(wrong)
    assert len(db.scan("t")) == 0


def test_literals_of_dates_and_timestamps_are_plain() -> None:
    """They were read by analysis, which took eighty times as long as `put`."""
    row = "(1, DATE '2024-02-29', timestamp'2024-02-29 12:00:00')"
    found = split_rows(f"INSERT INTO t (id, d, at) VALUES {', '.join([row] * 3)}")
    assert found is not None
    stored = stored_rows(found.rows, [COLUMNS[0], *COLUMNS[-2:]])
    assert stored == ((1, dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)),) * 3


def test_it_takes_about_the_time_of_put(db: Database) -> None:
    db.sql(TABLE)
    ratios = []
    for turn in range(3):
        start = turn * 100_000
        rows = [{"id": n, "s": f"user {n}", "n": n % 7, "x": n / 2} for n in range(10_000)]
        text = _inserted(db, start + 50_000, 10_000)
        for row in rows:
            row["id"] = start + int(row["id"])  # type: ignore[call-overload]
        began = time.perf_counter()
        db.put("t", rows)
        between = time.perf_counter()
        db.sql(text)
        ratios.append((time.perf_counter() - between) / (between - began))
    assert min(ratios) < 3
