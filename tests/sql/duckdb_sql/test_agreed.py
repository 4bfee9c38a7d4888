# ruff: noqa: E501 - a statement is a line
"""A query that DuckDB answers means what it means in Spark; everything else is refused."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from viewkeep.errors import SqlError
from viewkeep.sql.duckdb_sql.kinds import FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeep import Database

TABLE = (
    "id INT, i INT, j INT, b BIGINT, x DOUBLE, y DOUBLE, m DECIMAL(10,2), s STRING, u STRING, "
    "f BOOLEAN, d DATE, ts TIMESTAMP"
)
ROWS: list[tuple[Any, ...]] = [
    (1, 7, 2, 10**18, 0.5, 2.0, Decimal("2.50"), "añb", "a%b", True, dt.date(2024, 2, 29),
     dt.datetime(2024, 2, 29, 23, 59, 59, 999999)),
    (2, -7, 2, -(10**18), -0.5, 0.0, Decimal("-2.50"), "", "x", False, dt.date(2, 1, 1),
     dt.datetime(2, 1, 1)),
    (3, -7, 0, 0, math.nan, 1.0, Decimal("0.00"), "A_b\n", "a", None, dt.date(9999, 12, 31),
     dt.datetime(9999, 12, 31, 23, 59, 59)),
    (4, 0, -3, 1, math.inf, -math.inf, Decimal("99999999.99"), "10", "ÿ", True, dt.date(1969, 12, 31),
     dt.datetime(1969, 12, 31, 12)),
    (5, None, None, None, None, None, None, None, None, None, None, None),
    (6, 2147483647, 1, 2**62, 1e300, 1e-300, Decimal("0.01"), "😀z", "10", False,
     dt.date(2024, 3, 1), dt.datetime(2024, 3, 1)),
    (7, 7, 3, 5, 0.1, 0.2, Decimal("2.50"), "b", "B", True, dt.date(2024, 3, 2),
     dt.datetime(2024, 3, 1, 0, 0, 0, 1)),
]  # fmt: skip
ALWAYS = "now() > TIMESTAMP '2020-01-01 00:00:00'"

VALUES = """
-i
b - j * 2
j + j * j
m + 1
m * 2.5
m - i % 3
x + y
x * i
i / j
b / 7
x / y
i / 0
i % j
i % 0
-7 % 3
abs(i % 1000)
abs(x)
abs(m)
i > j
b >= x
m = 2.5
x = y
x > 1e10
s < u
s = 'b'
s <> u
s || u
s || NULL
f AND i > 0
f OR NULL
NOT f
f IS TRUE
i <=> j
NOT i <=> j
s <=> NULL
i IS NULL
i IN (7, 0, NULL)
i NOT IN (7, 0)
m IN (2.5, 1)
s IN ('', '10')
i BETWEEN -7 AND j
d BETWEEN DATE '2024-01-01' AND DATE '2024-02-29'
d = DATE '2024-02-29'
ts > TIMESTAMP '2024-02-29 23:59:59.999998'
ts >= d
ts + INTERVAL 3 DAYS > TIMESTAMP '2024-03-03 00:00:00'
ts - INTERVAL 1 HOUR < d
ts - INTERVAL '90' SECONDS
CASE WHEN i > 0 THEN m WHEN f THEN 1 ELSE NULL END
CASE i WHEN 7 THEN 'a' WHEN 0 THEN s END
CASE j WHEN 2 THEN x ELSE i END
if(f, d, ts)
coalesce(i, b, 0)
coalesce(NULL, s, 'none')
nvl(x, 0)
ifnull(m, 1)
nullif(i, 7)
nullif(x, y)
greatest(i, j, NULL)
least(x, y, 0)
greatest(s, u)
length(s)
char_length(u)
repeat(s, 2)
repeat(s, j)
year(d) * 100 + month(ts) + day(d)
s LIKE '%b'
s LIKE 'A_b_'
s LIKE 'a%'
s LIKE ''
s LIKE '%\\n'
s NOT LIKE '_'
CAST(i AS BIGINT)
CAST(i AS DOUBLE)
CAST(m AS DOUBLE)
CAST(b AS STRING)
CAST(d AS STRING)
CAST(ts AS DATE)
CAST(d AS TIMESTAMP)
CAST(i % 100 AS TINYINT)
CAST(NULL AS INT)
b + 10L
x + 1.5D
(SELECT max(j) FROM t q WHERE q.id < t.id)
EXISTS (SELECT 1 FROM t q WHERE q.j = t.i)
coalesce(i, 0) IN (SELECT j FROM t WHERE j IS NOT NULL)
""".strip().splitlines()

QUERIES = f"""
SELECT count(*) AS v, count(i) AS w, count(DISTINCT s) AS z FROM t WHERE {ALWAYS}
SELECT sum(j) AS a, sum(x) AS b, sum(m) AS c, sum(DISTINCT j) AS e FROM t WHERE {ALWAYS} AND id IN (1, 2, 7)
SELECT avg(j) AS a, avg(y) AS b FROM t WHERE {ALWAYS} AND id <> 4
SELECT min(x) AS a, max(x) AS b, min(s) AS c, max(u) AS e, min(d) AS g, max(ts) AS h FROM t WHERE {ALWAYS}
SELECT bit_and(i) AS a, bit_or(i) AS o, bit_xor(b) AS c FROM t WHERE {ALWAYS}
SELECT bool_and(f) AS a, bool_or(f) AS b, count_if(f) AS c FROM t WHERE {ALWAYS}
SELECT bit_and(i) AS a, sum(i) AS b, count(*) AS c, array_agg(i) AS e, bool_and(f) AS g FROM t WHERE id > 100
SELECT array_agg(i) AS v FROM t WHERE {ALWAYS} AND id IN (1, 5)
SELECT sum(j) FILTER (WHERE f) AS v, bit_or(i) FILTER (WHERE NOT f) AS w FROM t
SELECT j % 2 AS g, count(*) AS n FROM t WHERE {ALWAYS} GROUP BY j % 2 HAVING count(*) > 1
SELECT f, x > 0 AS p, bit_or(i) AS v FROM t GROUP BY 1, 2
SELECT f, j, bit_and(i) AS v FROM t GROUP BY ROLLUP (f, j)
SELECT x, bit_and(i) AS v FROM t GROUP BY x
SELECT DISTINCT j FROM t WHERE {ALWAYS}
SELECT j FROM t WHERE {ALWAYS} UNION SELECT i FROM t
SELECT j FROM t WHERE {ALWAYS} EXCEPT SELECT i FROM t
SELECT m FROM t WHERE {ALWAYS} INTERSECT SELECT 2.5 AS m
SELECT t.id, q.id AS o FROM t LEFT JOIN t q ON t.i = q.i AND {ALWAYS}
SELECT t.id, q.id AS o FROM t FULL JOIN t q ON t.x = q.x AND {ALWAYS}
SELECT id, q.s FROM t JOIN t q USING (id) WHERE {ALWAYS}
SELECT a.id, c.id AS o FROM t a CROSS JOIN t c WHERE {ALWAYS} AND a.id < c.id
SELECT id, sum(j) OVER (ORDER BY d RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) AS v FROM t
SELECT id, count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 12 HOURS PRECEDING AND INTERVAL 48 HOURS FOLLOWING) AS v FROM t
SELECT id, max(x) OVER (PARTITION BY f ORDER BY i) AS v, {ALWAYS} AS w FROM t
SELECT id, rank() OVER (ORDER BY x DESC) AS v, dense_rank() OVER (ORDER BY s) AS w, {ALWAYS} AS z FROM t
SELECT id, lag(i) OVER (ORDER BY id) AS v, lead(s, 2) OVER (ORDER BY id DESC) AS w, ntile(3) OVER (ORDER BY id) AS z, {ALWAYS} AS a FROM t
SELECT id, percent_rank() OVER (ORDER BY j) AS v, cume_dist() OVER (ORDER BY j) AS w, {ALWAYS} AS a FROM t
SELECT id, first_value(i) OVER w AS v, last_value(i) OVER w AS x1, row_number() OVER w AS n, {ALWAYS} AS a FROM t WINDOW w AS (ORDER BY id)
SELECT id FROM t WHERE {ALWAYS} QUALIFY row_number() OVER (PARTITION BY f ORDER BY id) = 1
SELECT * FROM t WHERE {ALWAYS} ORDER BY x NULLS LAST, id LIMIT 4 OFFSET 1
SELECT s FROM t WHERE {ALWAYS} ORDER BY s DESC, 1 LIMIT 3
SELECT q.k, q.n FROM (SELECT j AS k, count(*) AS n FROM t GROUP BY j) q WHERE {ALWAYS} AND q.n > 1
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT r.n, t.s FROM r LEFT JOIN t ON t.id = r.n
""".strip().splitlines()


@pytest.fixture
def site(db: Database) -> Database:
    db.sql(f"CREATE TABLE t ({TABLE}, PRIMARY KEY (id))")
    names = [part.split()[0] for part in TABLE.split(", ")]
    db.put("t", [dict(zip(names, row, strict=True)) for row in ROWS])
    return db


def _bag(rows: list[tuple[Any, ...]]) -> Counter[Any]:
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value + 0.0:.12g}")
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value


def _texts() -> list[str]:
    return [*(f"SELECT id, {value} AS v FROM t WHERE {ALWAYS}" for value in VALUES), *QUERIES]


def test_answers_are_those_of_spark(site: Database, spark: SparkSession) -> None:
    spark.createDataFrame(ROWS, TABLE.replace(", ", ",")).createOrReplaceTempView("t")
    wrong = []
    for text in _texts():
        result = site.sql(text)
        assert result.how.startswith("by DuckDB"), text
        wanted = _bag([tuple(row) for row in spark.sql(text).collect()])
        if _bag(result.tuples()) != wanted:
            wrong.append((text, result.tuples(), wanted))
    assert wrong == []


def test_every_function_is_compared() -> None:
    texts = " ".join(_texts())
    changing = {"uuid", "rand", "random", "current_timestamp", "current_date", "collect_list"}
    missing = [name for name in FUNCTIONS if f"{name}(" not in texts and name not in changing]
    assert missing == []


REFUSED = """
approx_percentile(0.5, 0.01) WITHIN GROUP (ORDER BY i)
array(1, 2, 3)[-2]
array(1, 2, 3)[0]
element_at(array(1, 2), 1)
s SIMILAR TO 'a'
s SIMILAR TO 'a' ESCAPE 'é'
string_agg(s, ',')
s LIKE u
s LIKE 'a\\\\%b'
s ILIKE 'a%'
s RLIKE 'a'
regexp_extract(s, 'a', 0)
i DIV j
m / 2
m % 2
round(x)
round(m, 1)
floor(x)
log(x)
substring(s, 0, 2)
substr(s, -2)
concat(s, u)
concat_ws(',', s, u)
instr(s, 'a')
split(s, 'a')
upper(s)
trim(s)
s = 1
s > i
d = '2024-02-29'
i + '1'
s || i
CAST(s AS INT)
CAST(x AS INT)
CAST(m AS INT)
CAST(x AS STRING)
CAST(ts AS STRING)
CAST(s AS DATE)
d + INTERVAL 1 DAY
d + 1
d - d
ts + INTERVAL 1 MONTH
dayofweek(d)
date_trunc('week', ts)
first(i)
last(i)
any_value(i)
mode(i)
avg(m)
percentile_approx(i, 0.5)
count(DISTINCT i, j)
corr(x, y)
min_by(i, j)
greatest(s, i)
coalesce(s, i)
CASE WHEN f THEN s ELSE i END
f = 1
i IN ('1', '2')
i IN (SELECT s FROM t)
rand(1)
X'1F' || 'a'
to_json(i)
i AND f
""".strip().splitlines()


@pytest.mark.parametrize("value", REFUSED)
def test_what_may_mean_something_else_is_refused(site: Database, value: str) -> None:
    with pytest.raises(SqlError):
        site.sql(f"SELECT {value} AS v, {ALWAYS} AS w FROM t")


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT i FROM t WHERE {ALWAYS} UNION SELECT s FROM t",
        f"SELECT * FROM t WHERE {ALWAYS} UNION SELECT * FROM t",
        f"SELECT j AS i FROM t WHERE {ALWAYS} GROUP BY i",
        f"SELECT i + 1 AS j, j + 1 AS k FROM t WHERE {ALWAYS}",
        f"SELECT id FROM t WHERE {ALWAYS} AND i",
        f"SELECT sum(i) OVER (ORDER BY id GROUPS 1 PRECEDING) AS v, {ALWAYS} AS w FROM t",
        f"SELECT t.id FROM t LEFT SEMI JOIN t q ON t.i = q.i AND {ALWAYS}",
        f"SELECT id FROM t TABLESAMPLE (10 ROWS) WHERE {ALWAYS}",
        f"SELECT v FROM (SELECT s AS v FROM t UNION ALL SELECT s FROM t) q WHERE v > 1 AND {ALWAYS}",
    ],
)
def test_clauses_that_may_mean_something_else_are_refused(site: Database, text: str) -> None:
    with pytest.raises(
        SqlError, match=r"may mean something else|another value each time|not taken"
    ):
        site.sql(text)
