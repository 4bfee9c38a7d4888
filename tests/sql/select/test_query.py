"""Golden pairs: the text of a query, and the text of its plan and columns."""

from __future__ import annotations

import pytest

from viewkeep.sql.parse.syntax import parse

from ..catalog import Names, shown

V1 = "CREATE VIEW v1 AS SELECT a, count(*) AS n FROM t GROUP BY a"
PAIRS = {
    # projections and names
    "SELECT id, id AS other FROM t": "t -> id, other=id",
    "SELECT a AS b, b AS a FROM t WHERE a > 1": "t | where gt(a, 1:INT) -> b=a, a=b",
    "SELECT A, t.B FROM T": "t -> a, b",
    "SELECT a, a+1 FROM t": "t | select a, add(a, 1:INT), id -> a, a + 1=add(a, 1:INT)",
    "SELECT CAST(a AS BIGINT) FROM t": "t | select cast(a AS BIGINT), id -> a=cast(a AS BIGINT)",
    "SELECT q.* FROM p q": "p -> k1, k2, v",
    "SELECT z, y FROM (SELECT a, b FROM t) AS q(z, y)": "t -> z=a, y=b",
    "SELECT z FROM p AS q(x, y, z)": "p -> z=v",
    "WITH q(z) AS (SELECT a FROM t), r AS (SELECT z + 1 AS w FROM q) SELECT w FROM r": (
        "t | select add(a, 1:INT), id -> w=add(a, 1:INT)"
    ),
    # conditions
    "SELECT a FROM t WHERE TRUE AND 1 = 1": "t -> a",
    "SELECT a FROM t WHERE a > 1 AND FALSE": "t | where False:BOOLEAN -> a",
    "SELECT a FROM t WHERE a IN (2, 1, NULL, 2)": ("t | where in(a, 1:INT, 2:INT, None:INT) -> a"),
    "SELECT a FROM t WHERE a IN (1)": "t | where eq(a, 1:INT) -> a",
    "SELECT a FROM t WHERE a IN (b, 1)": "t | where or(eq(a, 1:INT), eq(a, b)) -> a",
    "SELECT a FROM t WHERE a NOT BETWEEN 1 AND 3": (
        "t | where not(and(ge(a, 1:INT), le(a, 3:INT))) -> a"
    ),
    "SELECT a FROM t WHERE s NOT LIKE 'a%'": "t | where not(like(s, 'a%':STRING)) -> a",
    "SELECT a FROM t WHERE s NOT ILIKE 'a%'": "t | where not(ilike(s, 'a%':STRING)) -> a",
    "SELECT a FROM t WHERE s NOT LIKE 'a%' ESCAPE '/'": (
        "t | where not(like(s, 'a%':STRING, '/':STRING)) -> a"
    ),
    "SELECT a FROM t WHERE a IS NOT NULL": "t | where is_not_null(a) -> a",
    "SELECT a FROM t WHERE a IS DISTINCT FROM b": "t | where not(null_safe_eq(a, b)) -> a",
    "SELECT a FROM t WHERE 2 < a": "t | where gt(a, 2:INT) -> a",
    # expressions
    "SELECT CASE a WHEN 1 THEN 'x' END AS c FROM t": (
        "t | select case(eq(a, 1:INT), 'x':STRING, None:STRING), id"
        " -> c=case(eq(a, 1:INT), 'x':STRING, None:STRING)"
    ),
    "SELECT int(s) AS i, date(s) AS d FROM t": (
        "t | select cast(s AS DATE), cast(s AS INT), id -> i=cast(s AS INT), d=cast(s AS DATE)"
    ),
    "SELECT -2147483648 AS i, -9223372036854775808 AS l FROM t": (
        "t | select -2147483648:INT, -9223372036854775808:BIGINT, id"
        " -> i=-2147483648:INT, l=-9223372036854775808:BIGINT"
    ),
    "SELECT extract(WEEK FROM d) AS w FROM t": "t | select id, weekofyear(d) -> w=weekofyear(d)",
    # groups
    "SELECT a, count(*) FROM t GROUP BY a": (
        "t | group by [a] count(*) BIGINT -> a, count(*)=count(*)"
    ),
    "SELECT a+1 AS k, count(1) AS n FROM t GROUP BY k HAVING n > 1": (
        "t | group by [add(a, 1:INT)] count(*) BIGINT | where gt(count(*), 1:BIGINT)"
        " -> k=add(a, 1:INT), n=count(*)"
    ),
    "SELECT b AS a, count(*) AS n FROM t GROUP BY b ORDER BY a": (
        "t | group by [b] count(*) BIGINT -> a=b, n=count(*); b"
    ),
    "SELECT a FROM t GROUP BY 1 ORDER BY sum(b) DESC, 1": (
        "t | group by [a] sum(b) BIGINT -> a; sum(b) desc, a"
    ),
    "SELECT sum(a) FILTER (WHERE b > 0) AS s FROM t": (
        "t | group by [] sum(case(gt(b, 0:INT), a, None:INT)) BIGINT"
        " -> s=sum(case(gt(b, 0:INT), a, None:INT))"
    ),
    "SELECT avg(m) AS v, sum(m) AS t, sum(s) AS u, min(DISTINCT d) AS d FROM t": (
        "t | group by [] avg(m) DECIMAL(14,6), min(d) DATE, sum(cast(s AS DOUBLE)) DOUBLE,"
        " sum(m) DECIMAL(20,2)"
        " -> v=avg(m), t=sum(m), u=sum(cast(s AS DOUBLE)), d=min(d)"
    ),
    "SELECT n, count(*) AS c FROM v1 GROUP BY n": (
        "t | group by [a] count(*) BIGINT | group by [count(*)] count(*)' BIGINT"
        " -> n=count(*), c=count(*)'"
    ),
    "SELECT a, count(*) AS c FROM v1 GROUP BY a": (
        "t | group by [a] count(*) BIGINT | group by [a] count(*)' BIGINT -> a, c=count(*)'"
    ),
    "SELECT DISTINCT a, upper(s) AS u FROM t ORDER BY u, t.a": (
        "t | group by [a, upper(s)] -> a, u=upper(s); upper(s), a"
    ),
    "SELECT DISTINCT id, a FROM t": "t -> id, a",
    # order
    "SELECT b AS a FROM t ORDER BY a + 1, t.a DESC": (
        "t | select a, add(b, 1:INT), b, id -> a=b; add(b, 1:INT), a desc"
    ),
    "SELECT a FROM t ORDER BY 'x', a, a DESC": "t -> a; a",
}


@pytest.mark.parametrize("text", PAIRS)
def test_plan(text: str) -> None:
    query = Names(V1).query(text)
    columns = ", ".join(o if o == i and "(" not in o else f"{o}={i}" for o, i in query.columns)
    order = ", ".join(part.name + (" desc" if part.descending else "") for part in query.order)
    found = f"{shown(query.node)} -> {columns}" + (f"; {order}" if order else "")
    assert found == PAIRS[text]


EQUAL = [
    ("SELECT a + b AS c FROM t", "SELECT q.b + q.a AS c FROM t AS q"),
    (
        "SELECT a FROM t WHERE a > 1 AND s = 'x'",
        "SELECT a FROM t WHERE 'x' = s AND 1 < a AND a > 1",
    ),
    (
        "SELECT a FROM t WHERE f OR a = 1 OR b = 2",
        "SELECT a FROM t WHERE b = 2 OR (a = 1 OR f OR FALSE)",
    ),
    (
        "SELECT a FROM t WHERE a > 1 AND b > 2",
        "SELECT z AS a FROM (SELECT a AS z, b FROM (SELECT * FROM t WHERE b > 2)) WHERE z > 1",
    ),
    ("SELECT a FROM t WHERE a IS NOT NULL", "SELECT a FROM t WHERE NOT isnull(a)"),
    ("SELECT a FROM t WHERE NOT NOT f", "SELECT a FROM t WHERE f"),
    ("SELECT a FROM t WHERE a BETWEEN 1 AND 2", "SELECT a FROM t WHERE a <= 2 AND a >= 1"),
    ("SELECT a FROM t WHERE a IN (3, 1)", "SELECT a FROM t WHERE a IN (1, 3, 1 + 2)"),
    ("SELECT a, count(*) AS n FROM t GROUP BY a", "SELECT a, count(1) AS n FROM t GROUP BY 1"),
    (
        "SELECT a + 1 AS k, sum(b) AS s FROM t GROUP BY a + 1",
        "SELECT k, sum(b) AS s FROM (SELECT 1 + a AS k, b FROM t) GROUP BY k",
    ),
    ("SELECT nvl(a, 0) AS c FROM t", "SELECT coalesce(a, 1 - 1) AS c FROM t"),
    (
        "SELECT CASE WHEN f THEN a ELSE b END AS c FROM t",
        "SELECT CASE WHEN NULL THEN 1 WHEN f THEN a WHEN 1 = 1 THEN b ELSE 9 END AS c FROM t",
    ),
    ("SELECT a, n FROM v1", "SELECT a, count(*) AS n FROM t GROUP BY a"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_spelt_differently(one: str, other: str) -> None:
    names = Names(V1)
    assert names.query(one) == names.query(other)
    assert names.query(one).node.id == names.query(other).node.id


def test_a_group_cannot_show_a_column_called_like_its_count() -> None:
    """v1.n is `count(*)` inside, and must not be taken for the outer COUNT(*)."""
    with pytest.raises(Exception, match="neither grouped by"):
        Names(V1).query("SELECT a, n, count(*) AS c FROM v1 GROUP BY a")


VIEWS = {
    "CREATE VIEW v AS SELECT a AS id FROM t": ("SELECT a AS id FROM t", ("id", "#id"), ("#id",)),
    "CREATE VIEW v AS SELECT b AS a FROM t ORDER BY t.a": (
        "SELECT b AS a FROM t ORDER BY t.a",
        ("a", "#a", "id"),
        ("#a", "id"),
    ),
    "CREATE VIEW v (p, q) AS SELECT a + 1 AS k, count(*) FROM T GROUP BY k": (
        "SELECT k AS p, `count(*)` AS q FROM"
        " (SELECT a + 1 AS k, COUNT(*) AS `count(*)` FROM t GROUP BY k) AS named",
        ("p", "q"),
        ("p",),
    ),
    "CREATE VIEW v AS SELECT * FROM p ORDER BY v DESC": (
        "SELECT `k1`, `k2`, `v` FROM p ORDER BY v DESC",
        ("k1", "k2", "v"),
        ("v", "k1", "k2"),
    ),
    "CREATE VIEW v AS SELECT a AS `select` FROM t": (
        "SELECT a AS `select` FROM t",
        ("select", "id"),
        ("id",),
    ),
    "CREATE INDEX v ON t (s DESC) INCLUDE (x)": (
        "SELECT s, id, x FROM t ORDER BY s DESC",
        ("s", "id", "x"),
        ("s", "id"),
    ),
    "CREATE INDEX v ON v1 (n)": ("SELECT n, a FROM v1 ORDER BY n ASC", ("n", "a"), ("n", "a")),
}


@pytest.mark.parametrize("text", VIEWS)
def test_view_texts_and_schemas(text: str) -> None:
    names = Names(V1)
    view = names.view(text)
    assert (view.sql, view.schema.names, view.schema.key) == VIEWS[text]
    again = names.query(view.sql)
    assert again.node == view.node.input
    assert [inner for _, inner in again.columns] == [inner for _, inner in view.columns]
    assert len(parse(view.sql)) == 1
