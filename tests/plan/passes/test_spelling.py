"""Queries that differ in spelling alone become one plan; joins that exist are preferred."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeep.expr import Expr, Ref
from viewkeep.plan.conditions import conjunction
from viewkeep.plan.nodes import Filter, Join, Match, Named, Node, Project, Source
from viewkeep.plan.nodes import join as join_node
from viewkeep.plan.passes import optimise
from viewkeep.plan.passes.matches import equality
from viewkeep.types import BIGINT, Column, Schema

from .oracle import rows_of
from .plans import P, Q, T, contents
from .test_fixtures import query


def relation(source: Source, label: str) -> Project:
    """A table with columns called `label.column`."""
    return Project(
        source, tuple(Named(f"{label}.{c.name}", Ref(c.name, c.type)) for c in source.columns)
    )


def ref(name: str) -> Ref:
    return Ref(name, BIGINT)


MATCHES = (
    Match(ref("t.id"), ref("p.t_id")),
    Match(ref("q.k"), ref("p.id")),
    Match(ref("t.a"), ref("r.id")),
    Match(ref("r.b"), ref("q.l")),
    Match(ref("p.v"), ref("r.a"), True),
    Match(ref("t.id"), ref("q.k")),
)
RELATIONS = (relation(T, "t"), relation(P, "p"), relation(Q, "q"), relation(T, "r"))
WANTED = ("t.b", "q.w", "r.a")


@st.composite
def spellings(draw: st.DrawFn, chosen: tuple[Match, ...]) -> Node:
    """The join of all relations on the chosen matches, in some order and nesting."""
    nodes: list[Node] = list(draw(st.permutations(RELATIONS)))
    waiting = [equality(match) for match in draw(st.permutations(chosen))]
    while len(nodes) > 1:
        left = nodes.pop(draw(st.integers(0, len(nodes) - 1)))
        right = nodes.pop(draw(st.integers(0, len(nodes) - 1)))
        made: Node = Join("inner", left, right, ())
        if waiting:
            have = {column.name for column in made.columns}
            found = [
                c for c in waiting if all(isinstance(a, Ref) and a.name in have for a in c.args)
            ]
            if found and draw(st.booleans()):
                made = Filter(made, conjunction(found))
                waiting = [c for c in waiting if c not in found]
        nodes.append(made)
    return Filter(nodes[0], conjunction(waiting)) if waiting else nodes[0]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_plan_for_all_spellings(data: st.DataObject) -> None:
    chosen = tuple(data.draw(st.lists(st.sampled_from(MATCHES), unique=True)))
    first, second = data.draw(spellings(chosen)), data.draw(spellings(chosen))
    one, other = optimise(first, WANTED), optimise(second, WANTED)
    assert one.id == other.id
    tables = data.draw(contents())
    assert rows_of(one, tables, list(WANTED)) == rows_of(first, tables, list(WANTED))


@pytest.mark.parametrize(
    "sqls",
    [
        (
            "select x.a, y.v from t x join p y on x.id = y.t_id where x.b = 1 and y.v > 0",
            "select t.a, p.v from p, t where p.v > 0 and p.t_id = t.id and 1 = t.b",
            "select u.a, w.v from p w join t u on w.t_id = u.id and u.b = 1 where 0 < w.v",
        ),
        tuple(
            f"select t.b, p.v, q.w from {', '.join(names)} where t.id = p.t_id and q.k = p.id"
            for names in permutations(["t", "p", "q"])
        ),
        (
            "select t.a from t join p on t.id = p.t_id join q on q.k = t.id",
            "select t.a from t join p on t.id = p.t_id join q on q.k = p.t_id",
            "select t.a from q join p on q.k = p.t_id join t on q.k = t.id",
        ),
        (
            "select count(*) as n from t x, t y where x.id = y.a and y.b = 1",
            "select count(*) as n from t y, t x where x.id = y.a and y.b = 1",
            "select count(*) as n from t b join t a on a.a = b.id where a.b = 1",
        ),
        (
            "select t.b, p.v from t join p on t.a + 1 = p.t_id * 2",
            "select t.b, p.v from p, t where 2 * p.t_id = 1 + t.a",
        ),
        (
            "select count(*) as n from t x, t y where x.a + 1 = y.b and y.a = 1",
            "select count(*) as n from t y, t x where y.b = 1 + x.a and y.a = 1",
            "select count(*) as n from t b join t a on a.b = b.a + 1 where a.a = 1",
        ),
    ],
)
def test_spelling_does_not_matter(sqls: tuple[str, ...]) -> None:
    assert len({planned(sql).id for sql in sqls}) == 1


def planned(sql: str, existing: frozenset[str] = frozenset()) -> Node:
    """The plan of a query."""
    made = query(sql)
    return optimise(made.node, [inner for _, inner in made.columns], existing)


def joins(node: Node) -> set[str]:
    """The ids of all joins of a plan."""
    own = {node.id} if isinstance(node, Join) else set()
    return own.union(*map(joins, node.inputs))


def test_joins_that_exist_are_preferred() -> None:
    """Left to itself the order starts t, p; with p and q joined already it starts with these."""
    kept = joins(planned("select p.id, p.t_id, q.w from p join q on q.k = p.id where p.v > 0"))
    sql = "select q.w, t.a from t, p, q where t.id = p.t_id and q.k = p.id and p.v > 0"
    assert not joins(planned(sql)) & kept
    assert joins(planned(sql, frozenset(kept))) & kept


def test_joins_with_computed_matches_that_exist_are_preferred() -> None:
    on = "q.k = p.id and q.w + 1 = p.v * 2"
    kept = joins(planned(f"select p.id, p.t_id, q.l from p join q on {on}"))
    sql = f"select q.l, t.a from t, p, q where t.id = p.t_id and {on}"
    assert not joins(planned(sql)) & kept
    assert joins(planned(sql, frozenset(kept))) & kept


def chain(length: int) -> Node:
    """Tables that refer to one another in a row."""
    tables = [
        Source(f"c{i}", i, Schema((Column("id", BIGINT, False), Column("up", BIGINT)), ("id",)))
        for i in range(length)
    ]
    node: Node = relation(tables[0], "c0")
    for i in range(1, length):
        on = (Match(ref(f"c{i - 1}.up"), ref(f"c{i}.id")),)
        node = Join("inner", node, relation(tables[i], f"c{i}"), on)
    return node


def test_eight_joins_are_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of a join's sides does not multiply with the depth of the joins."""
    asked = [0]
    covered = join_node._covered

    def counting(side: Node, matched: list[Expr]) -> bool:
        asked[0] += 1
        return covered(side, matched)

    monkeypatch.setattr(join_node, "_covered", counting)
    counts = []
    for length in (4, 8):
        asked[0] = 0
        optimise(chain(length), ["c0.id", f"c{length - 1}.up"])
        counts.append(asked[0])
    assert 0 < counts[1] < 10 * counts[0]
