# ruff: noqa: E501 - a statement is a line
"""Window functions, QUALIFY and LIMIT: what they mean, by DuckDB, and what is refused."""

from __future__ import annotations

import pytest

from viewkeep.errors import SqlError
from viewkeep.plan.nodes import Node, TopK
from viewkeep.plan.passes import optimise

from ..catalog import Names
from ..recompute import SEEDS, bag, translated, view_of, world


def check(text: str) -> None:
    """A view of the query holds what DuckDB computes from the view's own text."""
    view = view_of(text)
    columns = [inner for _, inner in view.columns]
    key = [part.name for part in view.node.key]
    plans = (view.node.input, optimise(view.node.input, frozenset([*columns, *key])))
    kept = translated(view.sql)
    for seed in range(SEEDS):
        _, wanted = world(seed).recomputed(kept)
        for node in plans:
            rows = world(seed).evaluated(node)
            assert bag(rows.select(columns).rows()) == wanted, (seed, view.sql, node)


def nodes(node: Node) -> list[Node]:
    return [node, *(found for below in node.inputs for found in nodes(below))]


def kinds(text: str) -> list[str]:
    """The kinds of nodes that a view of a query is made of after the passes, top down."""
    view = view_of(text)
    wanted = frozenset(inner for _, inner in view.columns)
    return [type(node).__name__ for node in nodes(optimise(view.node.input, wanted))]


TAKEN = """
SELECT id, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a
SELECT id, row_number() OVER (ORDER BY y DESC, s) AS n FROM a WHERE x > 0
SELECT id, rank() OVER (PARTITION BY x ORDER BY y), dense_rank() OVER (PARTITION BY x ORDER BY y) FROM a
SELECT id, percent_rank() OVER (PARTITION BY x ORDER BY y), cume_dist() OVER (ORDER BY y DESC) FROM a
SELECT id, ntile(2) OVER (PARTITION BY x ORDER BY y) AS n FROM a
SELECT id, lag(y) OVER (PARTITION BY x ORDER BY y), lead(y, 2, -1) OVER (ORDER BY id) FROM a
SELECT id, lag(y, 1, x) OVER (PARTITION BY s ORDER BY id) AS l FROM a
SELECT id, lag(y, 1) IGNORE NULLS OVER (ORDER BY id) AS l FROM a
SELECT id, first_value(y) OVER (PARTITION BY x ORDER BY id DESC) AS f FROM a
SELECT id, first_value(y) OVER (PARTITION BY x ORDER BY s) AS f FROM a
SELECT id, last_value(y) OVER (PARTITION BY x ORDER BY id) AS f FROM a
SELECT id, last_value(y) IGNORE NULLS OVER (PARTITION BY x ORDER BY id) AS f FROM a
SELECT id, last_value(y) OVER (PARTITION BY x ORDER BY s ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS f FROM a
SELECT id, nth_value(y, 2) OVER (PARTITION BY x ORDER BY id) AS f FROM a
SELECT id, sum(y) OVER (PARTITION BY x ORDER BY s) AS f FROM a
SELECT id, sum(y) OVER (PARTITION BY x) AS f, count(*) OVER () AS n FROM a
SELECT id, avg(y) OVER (ORDER BY x ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS f FROM a
SELECT id, avg(y) OVER (ORDER BY x ROWS 2 PRECEDING) AS f FROM a
SELECT id, min(s) OVER (ORDER BY x RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS f FROM a
SELECT id, max(s) OVER (PARTITION BY x, y) AS f FROM a
SELECT k, l, sum(m) OVER (PARTITION BY k ORDER BY l) AS f, avg(x) OVER (PARTITION BY l) AS g FROM c
SELECT id, count(y) FILTER (WHERE x > 1) OVER (ORDER BY id) AS f FROM a
SELECT id, coalesce(count_if(x > 1) OVER (ORDER BY y), 0) AS f FROM a
SELECT id, y - avg(y) OVER (PARTITION BY x) AS off, 1 + rank() OVER (ORDER BY x + y) AS r FROM a
SELECT id, sum(y) OVER w AS f, rank() OVER w AS r FROM a WINDOW w AS (PARTITION BY x ORDER BY s)
SELECT id, row_number() OVER w AS n, rank() OVER w AS r FROM a WINDOW w AS (PARTITION BY x ORDER BY s)
SELECT id, sum(y) OVER (PARTITION BY x ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS f FROM a
SELECT id, sum(y) OVER (PARTITION BY 1, x + 1 ORDER BY x + 1, 2 * y) AS f FROM a
SELECT x, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM a GROUP BY x
SELECT x, sum(y) AS t, sum(sum(y)) OVER (ORDER BY x) AS run, sum(y) / sum(sum(y)) OVER () AS part FROM a GROUP BY x
SELECT x, s, row_number() OVER (PARTITION BY x ORDER BY sum(y)) AS n FROM a GROUP BY x, s HAVING count(*) > 0
SELECT DISTINCT x, max(y) OVER (PARTITION BY x) AS m FROM a
SELECT id, y FROM a QUALIFY row_number() OVER (PARTITION BY x ORDER BY y DESC) = 1
SELECT id, y FROM a QUALIFY row_number() OVER (PARTITION BY x ORDER BY y) <= 2
SELECT id, y, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a QUALIFY n < 3 AND y > 0
SELECT id, y, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a QUALIFY n BETWEEN 2 AND 3
SELECT id, y, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a QUALIFY n = 2
SELECT id, row_number() OVER (PARTITION BY x ORDER BY y) AS n, sum(y) OVER (PARTITION BY x) AS t, sum(y) OVER (PARTITION BY s) AS u FROM a QUALIFY n <= 2
SELECT id, y FROM a QUALIFY rank() OVER (ORDER BY y DESC) <= 2
SELECT id, y FROM a QUALIFY y = max(y) OVER (PARTITION BY x)
SELECT x, count(*) AS n FROM a GROUP BY x QUALIFY row_number() OVER (ORDER BY count(*) DESC) <= 2
SELECT id, n FROM (SELECT id, x, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a) q WHERE n <= 2 AND x > 0
SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY x ORDER BY y) AS n, rank() OVER (PARTITION BY x ORDER BY y) AS r FROM a) q WHERE n <= 2
SELECT max(n) AS m FROM (SELECT row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a) q WHERE n < 3
SELECT id, n, row_number() OVER (ORDER BY n DESC, id) AS o FROM (SELECT id, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a) q
SELECT id, rn FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y) AS rn FROM a) ranked WHERE rn = 1
SELECT id, rn, row_number() OVER (PARTITION BY x ORDER BY y) AS again FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y) AS rn FROM a) ranked WHERE rn > 1
SELECT count(*) AS n FROM (SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY x ORDER BY y) <= 2) q
SELECT id FROM a WHERE x > (SELECT count(*) FROM b QUALIFY row_number() OVER (ORDER BY count(*)) = 1)
SELECT id, rank() OVER (ORDER BY (SELECT max(z) FROM b WHERE b.x = a.x)) AS r FROM a
SELECT id FROM a WHERE x IN (SELECT x FROM b ORDER BY z LIMIT 2)
SELECT id, (SELECT z FROM b ORDER BY s LIMIT 1) AS z FROM a
SELECT x FROM a UNION SELECT x FROM b ORDER BY x LIMIT 2
SELECT id, y FROM a ORDER BY y DESC LIMIT 3
SELECT id, y FROM a ORDER BY y LIMIT 3 OFFSET 1
SELECT y FROM a ORDER BY x + y DESC LIMIT 2
SELECT DISTINCT x, y FROM a ORDER BY y LIMIT 3
SELECT x, sum(y) AS t FROM a GROUP BY x ORDER BY t DESC LIMIT 2
SELECT q.x, count(*) AS n FROM (SELECT id, x FROM a ORDER BY y LIMIT 4) q GROUP BY q.x
WITH first AS (SELECT id, x, y FROM a ORDER BY y DESC LIMIT 3) SELECT id FROM first WHERE x > 0
SELECT id, y FROM a ORDER BY y LIMIT 0
SELECT a.id, b.id AS other, row_number() OVER (PARTITION BY a.x ORDER BY b.z) AS n FROM a JOIN b ON a.x = b.x
SELECT a.id, b.z FROM a LEFT JOIN b ON a.id = b.id ORDER BY b.z DESC LIMIT 3
SELECT q.id, b.z FROM (SELECT id, x FROM a ORDER BY y LIMIT 3) q JOIN b ON q.x = b.x
SELECT id, sum(y) OVER (ORDER BY id) AS s FROM a ORDER BY s DESC LIMIT 2
SELECT id, rank() OVER (PARTITION BY x ORDER BY x) AS r, dense_rank() OVER (ORDER BY 1) AS d FROM a
SELECT id, row_number() OVER (ORDER BY 1) AS n, row_number() OVER (PARTITION BY x ORDER BY x DESC) AS m FROM a
SELECT id, percent_rank() OVER (ORDER BY 'a') AS p, cume_dist() OVER (ORDER BY NULL) AS c, ntile(2) OVER (ORDER BY 1 + 1) AS n FROM a
SELECT id, lag(y) OVER (PARTITION BY x ORDER BY x) AS l, first_value(y) OVER (ORDER BY 1) AS f FROM a
SELECT id, sum(y) OVER (PARTITION BY x ORDER BY x) AS f, sum(y) OVER (ORDER BY 1 ROWS 1 PRECEDING) AS g FROM a
SELECT id, last_value(y) OVER (PARTITION BY x ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS f FROM a
SELECT id FROM a QUALIFY rank() OVER (ORDER BY 1) <= 1
SELECT id FROM a QUALIFY row_number() OVER (PARTITION BY x ORDER BY x) = 1
""".strip().splitlines()


@pytest.mark.parametrize("text", TAKEN)
def test_as_duckdb(text: str) -> None:
    check(text)


def test_one_node_for_each_partition_and_order() -> None:
    text = "SELECT id, rank() OVER (PARTITION BY x, s ORDER BY y), sum(y) OVER (PARTITION BY s, x ORDER BY y), sum(y) OVER (PARTITION BY x) FROM a"
    assert kinds(text).count("Window") == 2


def test_partition_columns_order_nothing() -> None:
    one = view_of("SELECT id, rank() OVER (PARTITION BY x ORDER BY x, y) AS r FROM a")
    two = view_of("SELECT id, rank() OVER (PARTITION BY x, x ORDER BY y, y DESC) AS r FROM a")
    assert one.node.input == two.node.input


def test_first_rows_are_top_k() -> None:
    numbered = "row_number() OVER (PARTITION BY x ORDER BY y)"
    assert kinds(f"SELECT id FROM a QUALIFY {numbered} = 1") == ["TopK", "Project", "Source"]
    assert kinds(f"SELECT id, {numbered} AS n FROM a QUALIFY n <= 3")[:2] == ["Window", "TopK"]
    assert kinds(f"SELECT id FROM (SELECT id, {numbered} AS n FROM a) q WHERE n < 4")[0] == "TopK"
    assert "TopK" in kinds(
        "SELECT id FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y) AS rn FROM a) ranked WHERE rn <= 2"
    )
    assert "TopK" not in kinds(f"SELECT id FROM a QUALIFY {numbered} > 2")
    (top,) = (
        node
        for node in nodes(view_of(f"SELECT id FROM a QUALIFY {numbered} < 4").node)
        if isinstance(node, TopK)
    )
    assert (top.partition, top.limit, top.offset) == (("x",), 3, 0)
    assert [(part.name, part.descending) for part in top.order] == [("y", False), ("id", False)]


def test_limit_is_top_k_in_views_and_below() -> None:
    view = view_of("SELECT id FROM a ORDER BY y DESC LIMIT 3 OFFSET 2")
    top = view.node.input
    assert isinstance(top, TopK)
    assert (top.partition, top.limit, top.offset) == ((), 3, 2)
    assert [part.name for part in view.node.key] == ["y", "id"]
    query = Names().query("SELECT id FROM t ORDER BY a LIMIT 3 OFFSET 2")
    assert (query.limit, query.offset) == (3, 2)
    assert not any(isinstance(node, TopK) for node in nodes(query.node))
    offset = view_of("SELECT id FROM a ORDER BY y OFFSET 2").node.input
    assert isinstance(offset, TopK)
    assert offset.limit is None


TEXTS = {
    "SELECT id, row_number() OVER (ORDER BY y) AS n FROM a": "(ORDER BY y, `a`.`id`)",
    "SELECT p.id, lag(y) OVER (ORDER BY y DESC) AS n FROM a p": "(ORDER BY y DESC, `p`.`id`)",
    "SELECT id, lag(y) OVER w AS n FROM a WINDOW w AS (ORDER BY y)": "LAG(y) OVER (ORDER BY y, `a`.`id`)",
    "SELECT id, rank() OVER (ORDER BY y) AS n FROM a": "(ORDER BY y)",
    "SELECT id, sum(y) OVER (ORDER BY y) AS n FROM a": "(ORDER BY y)",
    "SELECT id, row_number() OVER (ORDER BY y, id) AS n FROM a": "(ORDER BY y, id)",
    "SELECT x, row_number() OVER (ORDER BY sum(y)) AS n FROM a GROUP BY x": "(ORDER BY SUM(y), x)",
    "SELECT id AS y FROM a ORDER BY x LIMIT 2": "ORDER BY x, `a`.`id` LIMIT 2",
    "SELECT DISTINCT x AS p, y FROM a ORDER BY y LIMIT 2": "ORDER BY y, `p` LIMIT 2",
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_a_view_decides_between_peers(text: str) -> None:
    assert TEXTS[text] in view_of(text).sql
    assert view_of(view_of(text).sql).node.input.row_key == view_of(text).node.input.row_key


REFUSED = {
    "SELECT a FROM t WHERE row_number() OVER (ORDER BY a) = 1": "a window function stands in SELECT",
    "SELECT a FROM t WHERE sum(a) OVER () = 1": "a window function stands in SELECT",
    "SELECT a FROM t GROUP BY rank() OVER (ORDER BY a)": "a window function stands in SELECT",
    "SELECT a FROM t GROUP BY a HAVING rank() OVER (ORDER BY a) = 1": "a window function stands in",
    "SELECT sum(rank() OVER (ORDER BY a)) FROM t": "a window function stands in SELECT",
    "SELECT sum(rank() OVER (ORDER BY a)) OVER () FROM t": "a window function stands in SELECT",
    "SELECT row_number() OVER (PARTITION BY a) FROM t": "row_number needs an ORDER BY",
    "SELECT lag(a) OVER () FROM t": "lag needs an ORDER BY in its window",
    "SELECT first_value(a) OVER () FROM t": "first_value needs an ORDER BY in its window",
    "SELECT sum(a) OVER (ROWS 1 PRECEDING) FROM t": "a ROWS frame of sum needs an ORDER BY",
    "SELECT sum(a) OVER (ORDER BY a RANGE 1 PRECEDING) FROM t": "RANGE with a distance is not taken",
    "SELECT sum(a) OVER (ORDER BY d RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) FROM t": "RANGE with a distance is not taken",
    "SELECT sum(a) OVER (ORDER BY a GROUPS 1 PRECEDING) FROM t": "GROUPS frames are not taken",
    "SELECT sum(DISTINCT a) OVER (ORDER BY b) FROM t": "DISTINCT is not taken in a window",
    "SELECT lag(a) OVER (ORDER BY b ROWS 1 PRECEDING) FROM t": "lag takes no frame",
    "SELECT rank() OVER (ORDER BY b ROWS 1 PRECEDING) FROM t": "rank takes no frame",
    "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) FROM t": "the frame ends before it begins",
    "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) FROM t": "a frame cannot start at UNBOUNDED FOLLOWING",
    "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN a PRECEDING AND CURRENT ROW) FROM t": "the distance of a frame is a whole number",
    "SELECT upper(s) OVER (ORDER BY b) FROM t": "this is no window function",
    "SELECT rand() OVER (ORDER BY b) FROM t": "this is no window function",
    "SELECT lag(rand()) OVER (ORDER BY b) FROM t": "rand has another value each time it is asked",
    "SELECT stddev(a) OVER (ORDER BY b) FROM t": "stddev",
    "SELECT sum(a) IGNORE NULLS OVER (ORDER BY b) FROM t": "sum takes no IGNORE NULLS",
    "SELECT lag(a IGNORE NULLS) OVER (ORDER BY b) FROM t": "IGNORE NULLS stands after the arguments",
    "SELECT lag(a, b) OVER (ORDER BY b) FROM t": "the number of lag must be a constant",
    "SELECT ntile(0) OVER (ORDER BY b) FROM t": "the number of ntile is at least 1",
    "SELECT nth_value(a) OVER (ORDER BY b) FROM t": "nth_value takes 2 arguments",
    "SELECT rank(a) OVER (ORDER BY b) FROM t": "rank takes 0 arguments",
    "SELECT lag(a) OVER w FROM t": "there is no window w",
    "SELECT lag(a) OVER (w ORDER BY b) FROM t WINDOW w AS (PARTITION BY a)": "a named window is taken as it is",
    "SELECT lag(a) OVER w FROM t WINDOW w AS (ORDER BY a), w AS (ORDER BY b)": "two windows are called w",
    "SELECT lag(a) OVER (ORDER BY b NULLS LAST) FROM t": "NULLS FIRST and LAST are fixed",
    "SELECT a FROM t QUALIFY a = 1": "QUALIFY needs a window function",
    "SELECT a, rank() OVER (ORDER BY b) FROM t GROUP BY a": "b is neither grouped by",
    "CREATE VIEW v AS SELECT a FROM t LIMIT 3": "LIMIT without ORDER BY takes any rows",
    "SELECT a FROM (SELECT a FROM t LIMIT 3) q": "LIMIT without ORDER BY takes any rows",
    "CREATE VIEW v AS SELECT a FROM t OFFSET 3": "LIMIT without ORDER BY takes any rows",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        Names().statement(text)
    assert caught.value.reason.startswith(REFUSED[text])
