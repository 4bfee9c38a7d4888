"""Joins of every kind give the rows that DuckDB gives."""

from __future__ import annotations

import pytest

from viewkeep.plan.nodes import Join, Match, Node

from ..recompute import check, query_of

QUERIES = [
    "SELECT a.id, b.id AS other FROM a, b WHERE a.x = b.x",
    "SELECT a.id, z FROM a INNER JOIN b ON a.x = b.x AND z > 1",
    "SELECT a.id, b.id AS other, z FROM a LEFT JOIN b ON a.x = b.x",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.x = b.x AND a.y > 1",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.x = b.x AND b.z > 1",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.x = b.x AND a.y < b.z",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.y < b.z",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON FALSE",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.x = 1",
    "SELECT a.id, b.id AS other FROM a RIGHT JOIN b ON a.x = b.x AND a.y <> b.z",
    "SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.x = b.x",
    "SELECT a.id, b.id AS other FROM a FULL OUTER JOIN b ON a.x = b.x AND a.y < b.z",
    "SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.x = b.x AND a.y = 1 AND b.z = 2",
    "SELECT a.id, b.id AS other FROM a CROSS JOIN b",
    "SELECT a.id FROM a LEFT SEMI JOIN b ON a.x = b.x",
    "SELECT a.id FROM a LEFT SEMI JOIN b ON a.x = b.x AND a.y <> b.z AND a.id > 2",
    "SELECT a.id FROM a LEFT ANTI JOIN b ON a.x = b.x AND a.y <> b.z",
    "SELECT a.id FROM a LEFT ANTI JOIN b ON a.x = b.x AND a.y = 1",
    "SELECT * FROM a LEFT ANTI JOIN b ON a.x = b.x",
    # self-joins, several columns, expressions
    "SELECT l.id, r.id AS boss FROM e l, e r WHERE l.boss = r.id",
    "SELECT l.id, r.id AS boss, t.id AS top FROM e l LEFT JOIN e r ON l.boss = r.id"
    " LEFT JOIN e t ON r.boss = t.id",
    "SELECT l.id FROM e l JOIN e r ON l.boss = r.id AND l.pay > r.pay",
    "SELECT a.id, c.k FROM a JOIN c ON a.x = c.k AND a.s = c.l",
    "SELECT a.id, c.k FROM a JOIN c ON a.x + 1 = c.k * 2 AND upper(a.s) = upper(c.l)",
    "SELECT a.id, c.l FROM a JOIN c ON a.x = c.x",
    "SELECT a.id, c.l FROM a LEFT JOIN c ON a.x = c.m",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.x <=> b.x",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.x <=> b.x AND a.s = b.s",
    "SELECT a.id FROM a LEFT ANTI JOIN b ON a.x <=> b.x AND a.s = b.s",
    # more than two
    "SELECT a.id, b.id AS bi, k, l FROM a, b, c WHERE a.x = c.k AND b.x = c.k AND a.y > 0",
    "SELECT a.id, b.id AS bi, k FROM a LEFT JOIN b ON a.x = b.x LEFT JOIN c ON b.z = c.k",
    "SELECT a.id, b.id AS bi, k FROM a LEFT JOIN (b JOIN c ON b.z = c.k) ON a.x = b.x",
    "SELECT a.id, b.id AS bi, k FROM a LEFT JOIN b JOIN c ON b.z = c.k ON a.x = b.x",
    "SELECT a.id, b.id AS bi, k FROM a, (b RIGHT JOIN c ON b.z = c.k) WHERE a.x = c.k",
    "SELECT a.id, b.id AS bi, k FROM a FULL JOIN b ON a.x = b.x FULL JOIN c ON b.z = c.k",
    "SELECT a.id FROM (a) JOIN b ON a.id = b.id",
    "SELECT a.id, b.id AS bi FROM a, b WHERE (a.x = b.x AND z = 1) OR (a.x = b.x AND y = 2)",
    "SELECT a.id, b.id AS bi FROM a, b WHERE a.x = b.x OR a.y = b.z",
    "SELECT count(*) AS n FROM a, b, c, e AS e1, e AS e2 WHERE a.x = b.x AND b.z = c.k"
    " AND e1.id = a.id AND e2.boss = e1.id",
    "SELECT count(*) AS n, sum(e5.pay) AS pay FROM e e1, e e2, e e3, e e4, e e5, a, b, c"
    " WHERE e1.boss = e2.id AND e2.boss = e3.id AND e3.pay = e4.pay AND e4.id = e5.id"
    " AND a.id = e1.id AND b.x = a.x AND c.k = b.z",
    # USING and NATURAL
    "SELECT id, x, y, z FROM a JOIN b USING (id, x)",
    "SELECT * FROM (SELECT id, y FROM a) JOIN (SELECT id, z FROM b) USING (id)",
    "SELECT id, y, z FROM a LEFT JOIN b USING (id)",
    "SELECT id, y, z, a.x AS ax, b.x AS bx FROM a RIGHT JOIN b USING (id)",
    "SELECT id, y, z FROM a FULL JOIN b USING (id)",
    "SELECT x, a.id, b.id AS bi, k FROM a FULL JOIN b USING (x) FULL JOIN c USING (x)",
    "SELECT * FROM (SELECT id, y FROM a) p NATURAL JOIN (SELECT z, id FROM b) q",
    "SELECT id, y, z FROM (SELECT id, y FROM a) p NATURAL FULL JOIN (SELECT z, id FROM b) q",
    "SELECT p.*, z FROM (SELECT id, y FROM a) p LEFT JOIN b USING (id)",
    "SELECT id FROM a LEFT SEMI JOIN b USING (id)",
    # groups, derived tables, CTEs
    "SELECT a.x, count(*) AS n, sum(z) AS t FROM a JOIN b ON a.x = b.x GROUP BY a.x",
    "SELECT a.x, count(b.id) AS n FROM a LEFT JOIN b ON a.id = b.x GROUP BY a.x HAVING n > 0",
    "SELECT DISTINCT a.s, b.s AS t FROM a JOIN b ON a.x = b.x",
    "SELECT a.id, n FROM a LEFT JOIN (SELECT x, count(*) AS n FROM b GROUP BY x) q ON a.x = q.x",
    "SELECT a.id, w FROM a LEFT JOIN (SELECT id, coalesce(z, 7) AS w FROM b) q ON a.id = q.id",
    "SELECT a.id, one FROM a LEFT JOIN (SELECT id, 1 AS one FROM b WHERE z > 0) q ON a.id = q.id",
    "WITH q AS (SELECT x, max(y) AS m FROM a GROUP BY x) SELECT p.x, q.m FROM q JOIN q AS p"
    " ON p.m = q.x",
    "SELECT q.i, c.k FROM (SELECT a.id AS i, b.z FROM a JOIN b ON a.x = b.x) q"
    " LEFT JOIN c ON q.z = c.k",
    "SELECT b.id, n FROM b LEFT JOIN sums ON sums.x = b.x",
    "SELECT c.k, c.l, ai FROM c FULL JOIN pairs ON pairs.z = c.k",
    "SELECT p.ai, q.bi, n FROM pairs p JOIN pairs q USING (ai) JOIN sums ON n = p.z",
    "SELECT t.n FROM (SELECT count(*) AS n FROM a) t CROSS JOIN b",
    "SELECT q.n, r.n AS m FROM (SELECT count(*) AS n FROM a) q"
    " FULL JOIN (SELECT count(*) AS n FROM b) r ON q.n < r.n",
]


@pytest.mark.parametrize("text", QUERIES)
def test_as_duckdb(text: str) -> None:
    check(text)


def joins(text: str) -> list[str]:
    """The joins of a plan and what they match, from the top."""

    def below(node: Node) -> list[str]:
        found = [f"{m.left} {'<=>' if m.null_safe else '='} {m.right}" for m in _on(node)]
        own = [f"{node.kind} {', '.join(found)}".strip()] if isinstance(node, Join) else []
        return own + [line for part in node.inputs for line in below(part)]

    return below(query_of(text).node)


def _on(node: Node) -> tuple[Match, ...]:
    return node.on if isinstance(node, Join) else ()


def test_equations_are_matches() -> None:
    assert joins("SELECT a.id FROM a, b, c WHERE a.x = c.k AND c.l = b.s AND a.y > b.z") == [
        "inner c.l = b.s",
        "inner a.x = c.k",
    ]
    assert joins("SELECT a.id FROM a LEFT JOIN c ON a.x = c.x") == [
        "left cast(a.x AS BIGINT) = c.x"
    ]
    assert joins("SELECT p.id FROM e p RIGHT JOIN e q ON p.boss = q.id AND p.pay = 1") == [
        "left e#2.id = e.boss"
    ]
    assert joins("SELECT a.id FROM a NATURAL JOIN (SELECT pay FROM e) q") == ["inner"]


def test_aliases_do_not_matter() -> None:
    one = "SELECT p.id AS i, q.n FROM a p JOIN (SELECT x AS g, count(*) AS n FROM b r GROUP BY x) q"
    two = "SELECT a.id, w FROM a JOIN (SELECT b.x AS v, count(1) AS w FROM b GROUP BY v) z"
    made = [query_of(f"{one} ON p.x = q.g"), query_of(f"{two} ON v = a.x")]
    assert made[0].node.id == made[1].node.id


def test_a_comparison_of_partners_keeps_their_extremes() -> None:
    text = "SELECT id FROM a WHERE {} EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND b.z <> a.y)"
    (semi,), (anti,) = joins(text.format("")), joins(text.format("NOT"))
    assert semi.split()[0] == "inner"
    assert anti.split()[0] == "left"
