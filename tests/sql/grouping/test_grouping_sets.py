"""GROUPING SETS, ROLLUP, CUBE and GROUP BY ALL: what they mean, by DuckDB, and what is refused."""

from __future__ import annotations

import pytest

from viewkeep.errors import SqlError
from viewkeep.plan.nodes import Aggregate, Union

from ..catalog import Names
from ..recompute import check, query_of, world

TAKEN = [
    "SELECT x, y, count(*) AS n FROM a GROUP BY ROLLUP (x, y)",
    "SELECT x, y, sum(y) AS n FROM a GROUP BY CUBE (x, y)",
    "SELECT x, s, count(*) AS n FROM a GROUP BY GROUPING SETS ((x), (x, s), ())",
    "SELECT x, s, count(*) AS n FROM a GROUP BY GROUPING SETS (x, s)",
    "SELECT x, count(*) AS n FROM a GROUP BY GROUPING SETS ((x), (x))",
    "SELECT x, y, s, min(id) AS n FROM a GROUP BY s, ROLLUP (x, y)",
    "SELECT x, y, s, min(id) AS n FROM a GROUP BY ROLLUP (x), CUBE (y, s)",
    "SELECT x, y, s, count(*) AS n FROM a GROUP BY ROLLUP (x, (y, s))",
    "SELECT x, y, s, count(*) AS n FROM a GROUP BY GROUPING SETS (ROLLUP (x, y), CUBE (s), (y))",
    "SELECT x + 1 AS p, count(*) AS n FROM a GROUP BY ROLLUP (x + 1)",
    "SELECT x AS p, s AS q, count(*) AS n FROM a GROUP BY CUBE (1, q)",
    "SELECT x, grouping(x) AS g, count(*) AS n FROM a GROUP BY ROLLUP (x)",
    "SELECT x, s, grouping_id(x, s) AS g, sum(y) AS n FROM a GROUP BY CUBE (x, s)",
    "SELECT x, s, grouping(s) + 2 * grouping(x) AS g FROM a GROUP BY GROUPING SETS ((x), (s))",
    "SELECT CASE WHEN grouping(x) = 1 THEN -1 ELSE x END AS p, count(*) AS n FROM a "
    "GROUP BY ROLLUP (x)",
    "SELECT x, y, count(*) AS n FROM a GROUP BY ROLLUP (x, y) HAVING grouping(y) = 1",
    "SELECT x, count(*) AS n FROM a GROUP BY ROLLUP (x) HAVING count(*) > 1",
    "SELECT x, sum(x) AS n, max(x) AS m FROM a GROUP BY ROLLUP (x)",
    "SELECT count(*) AS n FROM a GROUP BY GROUPING SETS ((), (x))",
    "SELECT count(*) AS n, sum(y) AS t FROM a GROUP BY GROUPING SETS (())",
    "SELECT x, count(DISTINCT y) AS n FROM a GROUP BY ROLLUP (x)",
    "SELECT x, n FROM (SELECT x, y, count(*) AS n FROM a GROUP BY CUBE (x, y)) q WHERE y = 1",
    "SELECT DISTINCT x FROM a GROUP BY ROLLUP (x, y)",
    "SELECT x, sum(n) AS t FROM (SELECT x, y, count(*) AS n FROM a GROUP BY ROLLUP (x, y)) q "
    "GROUP BY ROLLUP (x)",
    "SELECT x, sum(y) AS t, rank() OVER (PARTITION BY grouping(x) ORDER BY sum(y)) AS r FROM a "
    "GROUP BY ROLLUP (x)",
    "SELECT x, y, count(*) AS n FROM a GROUP BY ALL",
    "SELECT x, x + y AS z, count(*) AS n FROM a GROUP BY ALL",
    "SELECT count(*) AS n FROM a GROUP BY ALL",
]


@pytest.mark.parametrize("text", TAKEN)
def test_as_duckdb(text: str) -> None:
    check(text)


def test_a_union_of_aggregates() -> None:
    node = Names().query("SELECT a, b, count(*) FROM t GROUP BY ROLLUP (a, b)").node
    assert isinstance(node, Union)
    assert node.row_key == ("#branch", "a", "b")
    assert [str(column.type) for column in node.columns] == ["INT", "INT", "INT", "BIGINT"]


def test_one_set_is_a_plain_aggregate() -> None:
    plain = Names().query("SELECT a, b, count(*) FROM t GROUP BY a, b").node
    one = Names().query("SELECT a, b, count(*) FROM t GROUP BY GROUPING SETS ((a, b))").node
    assert isinstance(plain, Aggregate)
    assert one == plain


SAME = {
    "GROUP BY a, b WITH ROLLUP": "GROUP BY ROLLUP (a, b)",
    "GROUP BY a, b WITH CUBE": "GROUP BY GROUPING SETS ((a, b), (a), (b), ())",
    "GROUP BY b, a GROUPING SETS ((a, b), a)": "GROUP BY GROUPING SETS ((b, a), (a))",
    "GROUP BY CUBE (1)": "GROUP BY ROLLUP (a)",
    "GROUP BY a, ROLLUP (b)": "GROUP BY GROUPING SETS ((a, b), a)",
}


@pytest.mark.parametrize("text", SAME)
def test_other_spellings(text: str) -> None:
    one = Names().query(f"SELECT a, count(*) FROM t {text}")
    assert one == Names().query(f"SELECT a, count(*) FROM t {SAME[text]}")


def test_types_of_grouping() -> None:
    """GROUPING_ID without arguments is of all expressions, in the order of GROUP BY."""
    text = "SELECT grouping(a) AS g, grouping_id() AS i FROM t GROUP BY ROLLUP (a, b)"
    query = Names().query(text)
    types = {column.name: str(column.type) for column in query.node.columns}
    assert [types[inner] for _, inner in query.columns] == ["INT", "BIGINT"]
    bare = query_of("SELECT grouping_id() AS i FROM a GROUP BY CUBE (x, y)")
    full = query_of("SELECT grouping_id(x, y) AS i FROM a GROUP BY CUBE (x, y)")
    found = [world(3).evaluated(made.node)[made.columns[0][1]].sort() for made in (bare, full)]
    assert found[0].to_list() == found[1].to_list()


REFUSED = {
    "SELECT grouping(b) FROM t GROUP BY ROLLUP (a)": "GROUPING takes an expression of GROUP BY",
    "SELECT grouping(a) FROM t": "GROUPING takes an expression of GROUP BY",
    "SELECT grouping(a, b) FROM t GROUP BY CUBE (a, b)": "GROUPING takes an expression of GROUP BY",
    "SELECT grouping_id(b) FROM t GROUP BY CUBE (a, b)": "GROUPING_ID takes the expressions of",
    "SELECT s, count(*) FROM t GROUP BY ROLLUP (a, b)": "s is neither grouped by",
    "SELECT 1 FROM t GROUP BY CUBE (a, b, s, x, m, d, ts)": "CUBE of 7 has 128 grouping sets",
    "SELECT 1 FROM t GROUP BY CUBE (a, b, s), CUBE (x, m, d), ROLLUP (ts)": (
        "GROUP BY has 128 grouping sets"
    ),
    "SELECT count(*) FROM t GROUP BY ROLLUP (sum(a))": "GROUP BY comes before aggregates",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        Names().statement(text)
    assert caught.value.reason.startswith(REFUSED[text])
