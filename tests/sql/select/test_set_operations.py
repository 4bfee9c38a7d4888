"""UNION, INTERSECT, EXCEPT and VALUES give the rows that DuckDB gives."""

from __future__ import annotations

import pytest

from ..recompute import check

QUERIES = [
    "SELECT x FROM a UNION ALL SELECT x FROM b",
    "SELECT x FROM a UNION SELECT x FROM b",
    "SELECT id, x FROM a UNION ALL SELECT id, x FROM b",
    "SELECT id, x, s FROM a UNION ALL SELECT x, id, l FROM c, (SELECT id FROM b)",
    "SELECT k, l FROM c UNION ALL SELECT x, s FROM a",
    "SELECT x AS n FROM a UNION ALL SELECT k FROM c UNION ALL SELECT x FROM c",
    "SELECT x FROM a UNION SELECT k FROM c UNION ALL SELECT x FROM b",
    "SELECT x FROM a UNION ALL (SELECT k FROM c UNION SELECT x FROM b)",
    "SELECT x, x + 0 AS y, x AS z FROM a UNION ALL SELECT x, z, z FROM b",
    "SELECT x, y FROM a INTERSECT SELECT x, z FROM b",
    "SELECT x, y FROM a EXCEPT SELECT x, z FROM b",
    "SELECT x FROM a MINUS SELECT x FROM b",
    "SELECT x FROM a INTERSECT ALL SELECT x FROM b",
    "SELECT x FROM a EXCEPT ALL SELECT x FROM b",
    "SELECT x, s FROM a EXCEPT ALL SELECT x, s FROM b",
    "SELECT x FROM a INTERSECT ALL SELECT x FROM c",
    "SELECT id FROM a INTERSECT SELECT id FROM b",
    "SELECT id FROM a EXCEPT SELECT boss FROM e",
    "SELECT x FROM a UNION SELECT x FROM b INTERSECT SELECT k FROM c",
    "(SELECT x FROM a UNION SELECT x FROM b) INTERSECT SELECT k FROM c",
    "SELECT x FROM a EXCEPT SELECT x FROM b EXCEPT SELECT k FROM c",
    "SELECT x FROM a EXCEPT (SELECT x FROM b EXCEPT SELECT k FROM c)",
    "SELECT x FROM a UNION ALL SELECT m FROM c",
    "SELECT NULL AS n FROM a UNION ALL SELECT x FROM b",
    "SELECT 1 AS n, 'u' AS s UNION ALL SELECT x, s FROM a",
    "SELECT x, count(*) AS n FROM a GROUP BY x UNION ALL SELECT z, 0 FROM b",
    "SELECT x FROM a UNION ALL SELECT x FROM b ORDER BY x DESC LIMIT 3",
    "SELECT x, y FROM a UNION SELECT x, z FROM b ORDER BY 2, x LIMIT 2 OFFSET 1",
    "(SELECT id, x FROM a ORDER BY x, id LIMIT 2) UNION ALL (SELECT id, x FROM b ORDER BY id)",
    "SELECT n, count(*) AS c FROM (SELECT x AS n FROM a UNION ALL SELECT x FROM b) q GROUP BY n",
    "WITH q AS (SELECT x FROM a UNION SELECT z FROM b), r AS (SELECT k FROM c)"
    " SELECT x FROM q EXCEPT SELECT k FROM r",
    "SELECT q.x, b.id FROM (SELECT x FROM a INTERSECT SELECT k FROM c) q JOIN b ON b.x = q.x",
    "SELECT q.x, q.t, r.x AS y FROM (SELECT x, 1 AS t FROM a UNION ALL SELECT x, 2 FROM b) q"
    " LEFT JOIN (SELECT DISTINCT x FROM c) r ON q.x = r.x",
    "SELECT sum(v) AS v FROM (SELECT x AS v FROM a UNION ALL SELECT z FROM b UNION ALL SELECT k"
    " FROM c) q",
    "SELECT id FROM a LEFT SEMI JOIN (SELECT x FROM b UNION ALL SELECT k FROM c) q ON q.x = a.x",
    # VALUES, and no FROM
    "SELECT a, b FROM VALUES (1, 'a'), (2, 'b'), (2, NULL) AS t(a, b)",
    "SELECT p, q FROM VALUES (1, 2.5), (3, 4) AS t(p, q)",
    "SELECT n, id FROM (VALUES (1, 'p'), (2, 'q')) AS v(n, s) JOIN a ON a.s = v.s AND a.x = v.n",
    "SELECT a.id, v.n FROM a LEFT JOIN (VALUES (0, 7), (1, 8), (1, 9)) AS v(x, n) ON v.x = a.x",
    "SELECT 1 AS one, 'x' AS s, 1 + 1 AS two",
    "SELECT 1 AS one WHERE 1 = 2",
    "SELECT (SELECT count(*) FROM a) AS n, (SELECT max(x) FROM b) AS m",
    "SELECT EXISTS (SELECT 1 FROM a WHERE x = 1) AS f",
    "SELECT count(*) AS n",
    "SELECT id FROM a WHERE x IN (SELECT n FROM VALUES (1), (3) AS v(n))",
    "SELECT a.id, q.one FROM a LEFT JOIN (SELECT 1 AS one) q ON a.x = q.one",
]


@pytest.mark.parametrize("text", QUERIES)
def test_as_duckdb(text: str) -> None:
    check(text)
