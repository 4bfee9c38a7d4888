"""Subqueries wherever they stand give the rows that DuckDB gives."""

from __future__ import annotations

import pytest

from ..recompute import check

QUERIES = [
    # conditions of their own
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.z > 2)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.z > 2)",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND b.z <> a.y)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND b.z <> a.y)",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.z < a.y)",
    "SELECT id FROM a WHERE EXISTS (SELECT * FROM b WHERE b.x <=> a.x AND a.y = 1)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.x <=> a.x AND a.y = 1)",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x ORDER BY z LIMIT 1)",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x LIMIT 3)",
    "SELECT id FROM a WHERE x IN (SELECT x FROM b)",
    "SELECT id FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE 0 IN (SELECT count(*) FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE 0 NOT IN (SELECT count(z) FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT max(z) FROM b WHERE b.x = a.x HAVING count(*) > 1)",
    "SELECT id FROM a WHERE EXISTS (SELECT DISTINCT a.x, b.z FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE x IN (SELECT a.y FROM b)",
    "SELECT id FROM a WHERE EXISTS (SELECT * FROM b JOIN c ON b.x = c.k WHERE c.l = a.s)",
    "SELECT id FROM a WHERE NULL IN (SELECT x FROM b)",
    "SELECT id FROM a WHERE NULL NOT IN (SELECT x FROM b WHERE b.z = a.y)",
    "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b)",
    "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b WHERE x IS NOT NULL)",
    "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b WHERE b.z = a.y)",
    "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b WHERE b.z < a.y)",
    "SELECT id FROM a WHERE x IN (SELECT x + a.y FROM b WHERE b.z = 1)",
    "SELECT id FROM a WHERE id NOT IN (SELECT id FROM b WHERE z = 1)",
    "SELECT id FROM a WHERE x + 1 IN (SELECT max(z) FROM b GROUP BY x)",
    "SELECT id FROM a WHERE x NOT IN (SELECT DISTINCT k FROM c WHERE c.l = a.s)",
    "SELECT id FROM a WHERE (x, y) IN (SELECT x, z FROM b)",
    "SELECT id FROM a WHERE (x, y) NOT IN (SELECT x, z FROM b)",
    "SELECT id FROM a WHERE (x, s) NOT IN (SELECT k, l FROM c)",
    "SELECT id FROM a WHERE x IN (SELECT x FROM b) AND y NOT IN (SELECT k FROM c) AND id > 1",
    "SELECT id FROM a WHERE 2 IN (SELECT z FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE x IN (SELECT x FROM c)",
    # values
    "SELECT id FROM a WHERE y > (SELECT avg(z) FROM b)",
    "SELECT id FROM a WHERE y > (SELECT avg(z) FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE y >= (SELECT count(*) FROM b WHERE b.x = a.x)",
    "SELECT id, (SELECT count(*) FROM b WHERE b.x = a.x) AS n FROM a",
    "SELECT id, (SELECT count(*) + 1 FROM b WHERE b.x = a.x AND b.z = a.y) AS n FROM a",
    "SELECT id, (SELECT coalesce(sum(z), 7) FROM b WHERE b.x = a.x) AS n FROM a",
    "SELECT id, (SELECT count(*) FROM b WHERE b.x < a.x) AS n FROM a",
    "SELECT id, (SELECT sum(z) FROM b WHERE b.x < a.x AND b.s = a.s) AS n FROM a",
    "SELECT id, (SELECT sum(z + a.y) FROM b WHERE b.x = a.x) AS n FROM a",
    "SELECT id, (SELECT max(z) + a.y FROM b) AS n FROM a",
    "SELECT id, (SELECT max(z) FROM b) - (SELECT min(z) FROM b) AS n, (SELECT max(z) FROM b) m"
    " FROM a",
    "SELECT id, (SELECT coalesce(z, 7) FROM b WHERE b.id = a.id) AS z FROM a",
    "SELECT id, (SELECT z + a.y FROM b WHERE b.id = a.id AND b.z > a.y) AS z FROM a",
    "SELECT id, (SELECT coalesce(z, a.y, 9) FROM b WHERE b.id = a.id) AS z FROM a",
    "SELECT id, (SELECT id FROM b WHERE b.x = a.x ORDER BY z DESC, id LIMIT 1) AS f FROM a",
    "SELECT id, (SELECT id FROM b WHERE b.x < a.x ORDER BY z, id LIMIT 1) AS f FROM a",
    "SELECT id, (SELECT id FROM b ORDER BY z, id LIMIT 1) AS f FROM a",
    "SELECT id, (SELECT count(*) FROM b WHERE b.x = a.x HAVING count(*) < 2) AS n FROM a",
    "SELECT id, (SELECT max(n) FROM (SELECT count(*) AS n FROM b WHERE b.x = a.x GROUP BY z) q)"
    " AS n FROM a",
    "SELECT id, (SELECT count(*) FROM b JOIN c ON b.z = c.k WHERE b.x = a.x AND c.l = a.s) AS n"
    " FROM a",
    "SELECT id, (SELECT count(*) FROM b LEFT JOIN c ON b.z = c.k AND c.l = a.s) AS n FROM a",
    "SELECT id, (SELECT count(DISTINCT z) FROM b WHERE b.x = a.x) AS n FROM a",
    # under OR, CASE and other expressions
    "SELECT id FROM a WHERE y = 1 OR x IN (SELECT x FROM b)",
    "SELECT id FROM a WHERE y = 1 OR NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
    "SELECT id FROM a WHERE y = 1 OR x NOT IN (SELECT x FROM b WHERE b.s = a.s)",
    "SELECT id FROM a WHERE y = 1 OR EXISTS (SELECT 1 FROM b WHERE b.x < a.x)",
    "SELECT id FROM a WHERE NOT (y = 1 AND x IN (SELECT z FROM b))",
    "SELECT id, x IN (SELECT x FROM b) AS f FROM a",
    "SELECT id, x NOT IN (SELECT x FROM b WHERE b.z = a.y) AS f FROM a",
    "SELECT id, x IN (SELECT x FROM b WHERE b.z < a.y) AS f FROM a",
    "SELECT id, (x, y) IN (SELECT x, z FROM b) AS f FROM a",
    "SELECT id, id IN (SELECT id FROM b) AS f FROM a",
    "SELECT id, EXISTS (SELECT 1 FROM b WHERE b.x = a.x) AS f FROM a",
    "SELECT id, EXISTS (SELECT 1 FROM b WHERE z = 3) AS f FROM a",
    "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.x = a.x) THEN 'x'"
    " WHEN y IN (SELECT k FROM c) THEN 'y' ELSE s END AS f FROM a",
    "SELECT id FROM a WHERE (SELECT max(z) FROM b) IN (SELECT k FROM c WHERE c.l = a.s)",
    "SELECT id FROM a WHERE coalesce(x IN (SELECT x FROM b), y = 1)",
    # groups
    "SELECT x, count(*) AS n FROM a GROUP BY x HAVING count(*) > (SELECT count(*) FROM b) / 3",
    "SELECT x, count(*) AS n FROM a GROUP BY x HAVING EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
    "SELECT x, count(*) AS n FROM a GROUP BY x HAVING count(*) IN (SELECT k FROM c)",
    "SELECT x, max(y) + (SELECT max(z) FROM b WHERE b.x = a.x) AS n FROM a GROUP BY x",
    "SELECT x, sum((SELECT max(z) FROM b WHERE b.id = a.id)) AS n FROM a GROUP BY x",
    "SELECT sum(y) FILTER (WHERE x IN (SELECT x FROM b)) AS n FROM a",
    "SELECT (SELECT max(z) FROM b WHERE b.x = a.x) AS m, count(*) AS n FROM a GROUP BY m",
    "SELECT DISTINCT (SELECT max(z) FROM b WHERE b.x = a.x) AS m FROM a",
    "SELECT id FROM a ORDER BY (SELECT max(z) FROM b WHERE b.x = a.x)",
    "SELECT id, rank() OVER (ORDER BY (SELECT max(z) FROM b WHERE b.x = a.x)) AS r FROM a",
    "SELECT x, s, count(*) AS n FROM a GROUP BY ROLLUP (x, s)"
    " HAVING x IN (SELECT x FROM b) OR max(y) > (SELECT avg(z) FROM b)",
    "SELECT x, sum((SELECT max(z) FROM b WHERE b.id = a.id)) AS n FROM a GROUP BY CUBE (x, s)",
    # several relations and nesting
    "SELECT a.id, b.id AS bi FROM a JOIN b ON a.x = b.x"
    " WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.y AND c.x = b.z)",
    "SELECT a.id, b.id AS bi FROM a LEFT JOIN b ON a.x = b.x"
    " WHERE a.y = (SELECT max(k) FROM c WHERE c.x = b.z)",
    "SELECT id FROM a WHERE x IN (SELECT x FROM b WHERE z IN (SELECT k FROM c))",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND EXISTS"
    " (SELECT 1 FROM c WHERE c.k = b.z))",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND EXISTS"
    " (SELECT 1 FROM c WHERE c.k = b.z AND c.l = a.s))",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE NOT EXISTS"
    " (SELECT 1 FROM c WHERE c.k = b.z AND c.l = a.s))",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.z > (SELECT avg(k) FROM c"
    " WHERE c.l = a.s))",
    "SELECT id FROM a WHERE y < (SELECT max(z) FROM b WHERE b.x = a.x AND b.z NOT IN"
    " (SELECT k FROM c WHERE c.l = a.s))",
    "SELECT id FROM a WHERE x IN (SELECT x FROM b WHERE b.id = (SELECT max(id) FROM b b2"
    " WHERE b2.x = b.x))",
    "SELECT id, (SELECT count(*) FROM b WHERE b.z = (SELECT max(k) FROM c WHERE c.x = a.x)) AS n"
    " FROM a",
    "SELECT id FROM a WHERE EXISTS (SELECT x FROM b WHERE b.z = a.y UNION ALL SELECT k FROM c"
    " WHERE c.l = a.s)",
    "SELECT id FROM a WHERE x IN (SELECT x FROM b WHERE b.z = a.y EXCEPT SELECT k FROM c)",
    "SELECT id FROM a WHERE id IN (SELECT boss FROM e UNION SELECT pay FROM e)",
    "WITH q AS (SELECT x, sum(y) AS t FROM a GROUP BY x)"
    " SELECT x FROM q WHERE t = (SELECT max(t) FROM q)",
    "SELECT e.id FROM e WHERE pay > (SELECT avg(f.pay) FROM e f WHERE f.boss = e.boss)",
    "SELECT l1.boss, count(*) AS n FROM e l1, a WHERE l1.id = a.id AND EXISTS"
    " (SELECT * FROM e l2 WHERE l2.boss = l1.boss AND l2.pay <> l1.pay) AND NOT EXISTS"
    " (SELECT * FROM e l3 WHERE l3.boss = l1.boss AND l3.pay <> l1.pay AND l3.id > l1.id)"
    " GROUP BY l1.boss",
    "SELECT id FROM (SELECT id, x FROM a WHERE y IN (SELECT z FROM b)) q"
    " WHERE EXISTS (SELECT 1 FROM c WHERE c.k = q.x)",
]


@pytest.mark.parametrize("text", QUERIES)
def test_as_duckdb(text: str) -> None:
    check(text)
