"""Time buckets: window(ts, ...) against DuckDB's time_bucket and a table of all starts."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any

import duckdb
import polars as pl
import pytest

from viewkeep.engine.adhoc import evaluate
from viewkeep.errors import SqlError
from viewkeep.plan.nodes import Aggregate, Filter, Source, Union
from viewkeep.plan.passes import optimise
from viewkeep.sql.statements.nodes import Query

from ..catalog import Names, T

EPOCH = dt.datetime(1970, 1, 1)


def rows(seed: int) -> pl.DataFrame:
    """Times around 1970, on the edges of buckets and between them, some NULL."""
    dice = random.Random(seed)
    made = []
    for i in range(40):
        seconds = dice.choice([dice.randint(-9, 9) * 300, dice.randint(-4000, 4000)])
        moment = EPOCH + dt.timedelta(seconds=seconds, microseconds=dice.choice([0, 0, -1, 1]))
        time = None if dice.random() < 0.1 else moment
        made.append({"id": i, "a": dice.choice([None, 1, 2]), "b": dice.randint(0, 9), "ts": time})
    schema = {column.name: column.type.polars for column in T.columns}
    return pl.DataFrame(made, schema=schema)


def evaluated(query: Query, given: pl.DataFrame) -> Counter[Any]:
    def rows_of(source: Source) -> pl.DataFrame:
        return given

    columns = [inner for _, inner in query.columns]
    found = Counter(evaluate(query.node, rows_of).select(columns).rows())
    better = optimise(query.node, tuple(dict.fromkeys(columns)))
    assert Counter(evaluate(better, rows_of).select(columns).rows()) == found
    return found


def recomputed(text: str, given: pl.DataFrame) -> Counter[Any]:
    oracle = duckdb.connect()
    oracle.execute("SET threads = 1")
    oracle.register("t", given.to_arrow())
    return Counter(oracle.execute(text).fetchall())


def hopping(length: int, slide: int, offset: int = 0) -> str:
    """Each row with each bucket it is in, of all buckets that there may be; in seconds."""
    return f"""
        (SELECT t.*, b.start, b.start + INTERVAL '{length} seconds' AS stop
        FROM t JOIN (
            SELECT TIMESTAMP '1970-01-01' + INTERVAL 1 SECOND * ({offset} + {slide} * n) AS start
            FROM range(-{9000 // slide}, {9000 // slide}) AS r(n)
        ) AS b ON t.ts >= b.start AND t.ts < b.start + INTERVAL '{length} seconds') AS q
    """


CASES = {
    "'10 minutes'": (600, 600, 0),
    "'1 hour'": (3600, 3600, 0),
    "'1 hour 30 minutes'": (5400, 5400, 0),
    "INTERVAL 10 MINUTES": (600, 600, 0),
    "'interval 7 seconds'": (7, 7, 0),
    "'10 minutes', '5 minutes'": (600, 300, 0),
    "'10 minutes', '4 minutes'": (600, 240, 0),
    "'10 minutes', '10 minutes', '3 minutes'": (600, 600, 180),
    "'10 minutes', '10 minutes', '-3 minutes'": (600, 600, -180),
    "'10 minutes', '4 minutes', '1 minute'": (600, 240, 60),
}


@pytest.mark.parametrize("case", CASES)
def test_as_duckdb(case: str) -> None:
    text = (
        "SELECT window.start, window.end AS stop, a, count(*) AS n, sum(b) AS t "
        f"FROM t GROUP BY window(ts, {case}), a"
    )
    wanted = f"SELECT start, stop, a, count(*), sum(b) FROM {hopping(*CASES[case])} GROUP BY ALL"
    query = Names().query(text)
    for seed in range(4):
        given = rows(seed)
        assert evaluated(query, given) == recomputed(wanted, given)
    assert evaluated(query, rows(0).clear()) == Counter()


def test_without_groups() -> None:
    query = Names().query("SELECT id, window(ts, '10 minutes', '5 minutes').start AS s FROM t")
    wanted = f"SELECT id, start FROM {hopping(600, 300)}"
    assert evaluated(query, rows(5)) == recomputed(wanted, rows(5))


def test_in_other_clauses() -> None:
    query = Names().query(
        "SELECT date_format(window.start, 'HH:mm') AS at, sum(b) AS t FROM t WHERE a = 1 "
        "GROUP BY window(ts, '10 minutes') HAVING window.end > TIMESTAMP '1970-01-01 00:10:00' "
        "ORDER BY window.start"
    )
    wanted = (
        f"SELECT strftime(start, '%H:%M'), sum(b) FROM {hopping(600, 600)} WHERE a = 1 "
        "GROUP BY start, stop HAVING stop > TIMESTAMP '1970-01-01 00:10:00'"
    )
    assert evaluated(query, rows(6)) == recomputed(wanted, rows(6))


def test_buckets_in_a_rollup() -> None:
    query = Names().query(
        "SELECT window.start, a, count(*) AS n FROM t GROUP BY ROLLUP (window(ts, '1 hour'), a)"
    )
    wanted = f"SELECT start, a, count(*) FROM {hopping(3600, 3600)} GROUP BY ROLLUP (start, a)"
    assert evaluated(query, rows(7)) == recomputed(wanted, rows(7))


def test_their_plans() -> None:
    """One bucket for each row needs no copies of it."""
    tumbling = Names().query("SELECT count(*) FROM t GROUP BY window(ts, '1 hour')").node
    assert isinstance(tumbling, Aggregate)
    assert isinstance(tumbling.input, Filter)
    hops = Names().query("SELECT count(*) FROM t GROUP BY window(ts, '1 hour', '20 minutes')").node
    assert isinstance(hops, Aggregate)
    assert isinstance(hops.input, Union)
    assert len(hops.input.inputs) == 3
    assert hops.input.row_key == ("#copy", "id")


def test_a_relation_may_be_called_window() -> None:
    query = Names().query("SELECT window.a FROM t AS window")
    assert query.columns == (("a", "a"),)


REFUSED = {
    "SELECT count(*) FROM t GROUP BY session_window(ts, '5 minutes')": (
        "session_window is not taken: one row may join two sessions into one"
    ),
    "SELECT window(ts, '1 hour') FROM t": "a time bucket is a pair of instants",
    "SELECT 1 FROM t GROUP BY window(ts, '1 hour'), window(ts, '2 hours')": (
        "a query has one kind of time bucket"
    ),
    "SELECT 1 FROM t GROUP BY window(ts, '1 month')": "a month has no fixed length",
    "SELECT 1 FROM t GROUP BY window(ts, 'soon')": "this is no length of time",
    "SELECT 1 FROM t GROUP BY window(ts, a)": "this is no length of time",
    "SELECT 1 FROM t GROUP BY window(ts, '1 hour', '2 hours')": "the slide of a time bucket is",
    "SELECT 1 FROM t GROUP BY window(ts, '0 hours')": "the slide of a time bucket is",
    "SELECT 1 FROM t GROUP BY window(ts, '1 hour', '1 hour', '1 hour')": "the offset of a time",
    "SELECT 1 FROM t GROUP BY window(ts, '1 day', '1 minute')": "each row is in 1440 buckets",
    "SELECT 1 FROM t GROUP BY window(s, '1 day')": "window takes a TIMESTAMP, not STRING",
    "SELECT 1 FROM t GROUP BY window(ts)": "window takes a time, a length",
    "SELECT window.middle FROM t GROUP BY window(ts, '1 day')": "there is no column middle",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        Names().statement(text)
    assert caught.value.reason.startswith(REFUSED[text])
