"""Every pass keeps the rows, as DuckDB computes them from the plan before and after."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeep.expr import Ref
from viewkeep.plan.nodes import Aggregate, AggregateCall, Join, Match, Named, Node
from viewkeep.plan.passes import PASSES, Pass, optimise
from viewkeep.plan.passes.aggregate_first import aggregate_first
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.show import show
from viewkeep.types import BIGINT

from .oracle import Rows, rows_of
from .plans import TABLES, contents, plans
from .test_fixtures import ROWS

ONCE = tuple(dict.fromkeys(PASSES))


class Case:
    """A plan, the columns wanted of it, and rows of the tables."""

    def __init__(self, node: Node, wanted: list[str], tables: dict[str, Rows]):
        self.node, self.wanted, self.tables = node, wanted, tables

    def __repr__(self) -> str:
        return f"\n{show(self.node)}\nwanted: {self.wanted}\nrows: {self.tables}\n"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A random case."""
    node = draw(plans())
    names = sorted(column.name for column in node.columns)
    return Case(node, draw(st.lists(st.sampled_from(names), unique=True)), draw(contents()))


@pytest.mark.parametrize("change", ONCE, ids=lambda change: change.__name__)
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_a_pass_keeps_the_rows(change: Pass, case: Case) -> None:
    same(case, change(case.node, Goal(frozenset(case.wanted))))


@settings(max_examples=120, deadline=None)
@given(case=cases())
def test_all_passes_keep_the_rows(case: Case) -> None:
    made = optimise(case.node, case.wanted)
    same(case, made)
    again = optimise(made, case.wanted)
    assert show(again) == show(made), "nothing is left to do"


def test_sides_of_a_semi_join_may_share_names() -> None:
    """A side that is not shown has columns of the same names, which mean other things."""
    (t,) = (source for source in TABLES if source.table == "t")
    a, b = (Ref(column.name, column.type) for column in t.columns if column.name in ("a", "b"))
    counted = AggregateCall("n", "count_star", None, BIGINT)
    node = Aggregate(Join("semi", t, t, (Match(a, b),)), (Named("a", a),), (counted,))
    made = aggregate_first(node, Goal(frozenset({"a", "n"})))
    assert made != node
    same(Case(node, ["a", "n"], ROWS), made)


def same(case: Case, made: Node) -> None:
    """A plan has the wanted columns, of the same types, with the same rows."""
    before = {column.name: column.type for column in case.node.columns}
    after = {column.name: column.type for column in made.columns}
    assert {n: after.get(n) for n in case.wanted} == {n: before[n] for n in case.wanted}
    wanted = rows_of(case.node, case.tables, case.wanted)
    assert rows_of(made, case.tables, case.wanted) == wanted, show(made)
