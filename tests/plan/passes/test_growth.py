"""Planning grows with a plan, not with the number of ways through it.

Work is counted in nodes that are made, and what is kept in the operators of the program.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sql.catalog import Names

from viewkeep.errors import QueryTooLarge
from viewkeep.plan import nodes
from viewkeep.plan.explain import explain
from viewkeep.plan.nodes import Fence
from viewkeep.plan.program import Program, compile_program
from viewkeep.sql.statements.nodes import CreateView


def levels(first: str, level: Callable[[int], str]) -> Callable[[int], str]:
    """A query over CTEs c1, c2 and so on, each over the one before."""

    def text(count: int) -> str:
        ctes = [f"c0 AS ({first})", *(f"c{i} AS ({level(i)})" for i in range(1, count + 1))]
        return f"WITH {', '.join(ctes)} SELECT * FROM c{count}"

    return text


def twice(items: str, i: int, on: str = "x.id = y.id") -> str:
    return f"SELECT {items} FROM c{i - 1} x JOIN c{i - 1} y ON {on}"


def inside(
    query: str, base: str, level: Callable[[int], str] | None = None
) -> Callable[[int], str]:
    """A query with such CTEs in a subquery, of which the first reads rows of the query around."""
    ctes = levels(base, level or (lambda i: twice(PAIR, i)))
    return lambda count: query.format(ctes(count))


def full_joins(count: int) -> str:
    joined = " ".join(f"FULL JOIN t t{i} USING (id)" for i in range(1, count + 1))
    return f"SELECT id, t0.a AS a, t{count}.b AS b FROM t t0 {joined}"


ROWS = "SELECT id, a, b FROM t"
PAIR = "x.id, x.a, y.b"
EXISTS = "SELECT o.id FROM t o WHERE EXISTS ({})"
EQUAL = "SELECT id, a, b FROM t s WHERE s.b = o.a"
LESS = "SELECT id, a, b FROM t s WHERE s.b < o.a"
SHAPES: dict[str, Callable[[int], str]] = {
    "diamond": levels(ROWS, lambda i: twice(PAIR, i)),
    "diamond with conditions": levels(
        ROWS, lambda i: f"{twice(PAIR, i)} WHERE x.a > {-i} AND y.b < {10 + i}"
    ),
    "diamond of sums": levels(ROWS, lambda i: twice("x.id, x.a, x.a + y.b AS b", i)),
    "diamond of groups": levels(
        ROWS,
        lambda i: (
            twice("x.id, max(x.a) AS a, min(y.b) AS b", i, "x.id = y.a")
            + f" WHERE x.a < {10 + i} GROUP BY x.id"
        ),
    ),
    "diamond of two keys": levels(
        "SELECT x.a AS id, y.id AS a, y.b FROM (SELECT DISTINCT a FROM t) x JOIN t y ON x.a <= y.a",
        lambda i: twice(PAIR, i, "x.id IS NOT DISTINCT FROM y.id AND x.a = y.a"),
    ),
    "full joins": full_joins,
    "unions": levels(
        ROWS, lambda i: f"SELECT id, a, b FROM c{i - 1} UNION SELECT id, a + {i}, b FROM t"
    ),
    "unions of one": levels(
        ROWS, lambda i: f"SELECT id, a, b FROM c{i - 1} UNION SELECT id, a + 1, b FROM c{i - 1}"
    ),
    "intersections": levels(
        ROWS,
        lambda i: f"SELECT id, a, b FROM c{i - 1} INTERSECT SELECT id, a, b FROM c{i - 1}",
    ),
    "in": levels(
        ROWS,
        lambda i: (
            f"SELECT id, a, b FROM c{i - 1} WHERE a IN (SELECT max(b) FROM c{i - 1} GROUP BY a)"
        ),
    ),
    "scalar subqueries": levels(
        ROWS,
        lambda i: (
            f"SELECT id, a, b FROM c{i - 1} x "
            f"WHERE a <= (SELECT max(b) FROM c{i - 1} y WHERE y.a = x.a)"
        ),
    ),
    "windows": levels(
        ROWS,
        lambda i: (
            "SELECT x.id, row_number() OVER (PARTITION BY x.a ORDER BY y.id) AS a, x.b "
            f"FROM c{i - 1} x LEFT JOIN c{i - 1} y ON x.id = y.id"
        ),
    ),
    "inside exists": inside(EXISTS, EQUAL),
    "inside not exists": inside("SELECT o.id FROM t o WHERE NOT EXISTS ({})", EQUAL),
    "inside in": inside(
        "SELECT o.id FROM t o WHERE o.id IN (SELECT d.id FROM ({}) d WHERE d.b < 5)", EQUAL
    ),
    "inside a value": inside(
        "SELECT o.id, (SELECT count(*) FROM ({}) d WHERE d.b < 5) AS n FROM t o", EQUAL
    ),
    "inside, less": inside(EXISTS, LESS),
    "inside, computed": inside(
        "SELECT o.id, (SELECT max(d.a) FROM ({}) d) AS m FROM t o",
        "SELECT id, a + o.a AS a, b FROM t s",
    ),
    "inside, groups": inside(
        EXISTS,
        EQUAL,
        lambda i: twice("x.id, max(x.a) AS a, min(y.b) AS b", i, "x.id = y.a") + " GROUP BY x.id",
    ),
    "inside, unions": inside(
        EXISTS,
        EQUAL,
        lambda i: f"SELECT id, a, b FROM c{i - 1} UNION SELECT id, a + 1, b FROM c{i - 1}",
    ),
    "inside, left joins": inside(
        EXISTS,
        EQUAL,
        lambda i: f"SELECT {PAIR} FROM c{i - 1} x LEFT JOIN c{i - 1} y ON x.id = y.id",
    ),
    "inside, at each level": inside(
        EXISTS, EQUAL, lambda i: f"{twice(PAIR, i)} WHERE x.a < o.id + {i}"
    ),
}


def planned(names: Names, text: str) -> Program:
    """The program of a view, as it would be stored."""
    made = names.statement(text)
    assert isinstance(made, CreateView)
    assert not any(isinstance(node, Fence) for node in nodes.nodes([made.view.node]))
    return compile_program([made.view], lambda _: 0)


class Count:
    """Counts the nodes that are made."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.made = 0
        for kind in (nodes.Filter, nodes.Project, nodes.Join, nodes.Union, nodes.Aggregate):
            patch.setattr(kind, "__post_init__", self._counting(kind.__post_init__))

    def _counting(self, settle: Callable[[object], None]) -> Callable[[object], None]:
        def counted(node: object) -> None:
            self.made += 1
            settle(node)

        return counted


@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_plan(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Count(monkeypatch)
    made: list[int] = []
    operators: list[int] = []
    explained: list[int] = []
    for size in (10, 20, 40):
        count.made = 0
        program = planned(Names(), f"CREATE VIEW v AS {SHAPES[shape](size)}")
        made.append(count.made)
        operators.append(len(program.operators))
        explained.append(len(explain(program, ["v"]).splitlines()))
    # Twice the levels are twice the fragments, and the largest has a fixed bound.
    for counts in (made, operators, explained):
        assert counts[2] - counts[1] <= 4 * (counts[1] - counts[0]) + 20, counts
    assert made[2] < 100_000


@pytest.mark.parametrize("shape", ["diamond of sums", "windows"])
def test_names_of_columns_are_bounded(shape: str) -> None:
    made = Names().statement(f"CREATE VIEW v AS {SHAPES[shape](40)}")
    assert isinstance(made, CreateView)
    every = [column.name for node in nodes.nodes([made.view.node]) for column in node.columns]
    assert max(map(len, every)) < 2_000


def test_a_plan_may_be_deep() -> None:
    """No walk of a plan recurses with its depth: each of these ended with a RecursionError."""
    over = "SELECT id, max(a) AS a, min(b) AS b FROM {} GROUP BY id"
    program = planned(
        Names(), f"CREATE VIEW v AS {levels(ROWS, lambda i: over.format(f'c{i - 1}'))(1_000)}"
    )
    assert len(program.operators) == 1_000
    assert len(explain(program, ["v"]).splitlines()) > 1_000
    for base in (EQUAL, LESS):
        chain = inside(EXISTS, base, lambda i: over.format(f"c{i - 1}"))
        assert len(planned(Names(), f"CREATE VIEW v AS {chain(1_000)}").operators) > 1_000
    joins = " ".join(f"LEFT JOIN t t{i} ON t{i}.id = t{i - 1}.b" for i in range(1, 301))
    program = planned(Names(), f"CREATE VIEW v AS SELECT t0.id, t300.a FROM t t0 {joins}")
    assert len(program.operators) > 300


def test_views_on_views() -> None:
    names = Names("CREATE VIEW v0 AS SELECT id, a, b FROM t")
    for i in range(1, 301):
        names.view(f"CREATE VIEW v{i} AS SELECT b AS id, max(id) AS b FROM v{i - 1} GROUP BY b")
    program = planned(names, "CREATE VIEW last AS SELECT id FROM v300 WHERE id > 3")
    assert len(program.operators) >= 300


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (
            lambda i: f"SELECT id, a, b FROM c{i - 1} UNION ALL SELECT id, b, a FROM c{i - 1}",
            "more than 10,000 branches",
        ),
        (lambda i: twice(PAIR, i, "x.a = y.b"), "told apart by more than 1,000 columns"),
    ],
)
def test_what_doubles_by_its_meaning_is_refused(level: Callable[[int], str], message: str) -> None:
    with pytest.raises(QueryTooLarge, match=message):
        Names().statement(f"CREATE VIEW v AS {levels(ROWS, level)(40)}")
