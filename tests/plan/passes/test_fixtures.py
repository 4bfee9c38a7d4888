"""Golden plans: `fixtures/<pass>.txt` holds SQL, its plan, and the plan after the pass.

A case is a title, the SQL, the plan before and the plan after, in that order. All of them are
evaluated too: DuckDB finds the same rows before and after. Lowering makes no projections that could
be merged; so `merge_projects` starts with a plan in which columns are renamed once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from viewkeep.expr import Expr, Ref
from viewkeep.plan.conditions import rewritten
from viewkeep.plan.nodes import Aggregate, Named, Node, Project, over
from viewkeep.plan.passes import PASSES, Pass, optimise
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.show import show
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.select.query import lower_query
from viewkeep.sql.statements.nodes import Query

from .oracle import Rows, rows_of
from .plans import TABLES

FIXTURES = Path(__file__).parent / "fixtures"
NAMED: dict[str, Pass] = {change.__name__: change for change in PASSES}
NAMED["optimise"] = lambda node, goal: optimise(node, goal.wanted)
ROWS: dict[str, Rows] = {
    "t": [(0, 1, 2), (1, 1, None), (2, 2, 1), (3, None, 0), (4, 2, 2)],
    "p": [(0, 0, 1), (1, 0, 2), (2, 1, 2), (3, None, 2), (4, 9, 1), (5, 2, None)],
    "q": [(0, 0, 1), (0, 1, 2), (1, 0, 1), (2, 1, None), (3, 3, 2)],
}


@dataclass(frozen=True)
class Golden:
    """A case of a fixture."""

    change: str
    title: str
    sql: str
    before: str
    after: str


def goldens() -> Iterator[Golden]:
    """All cases of all fixtures."""
    for path in sorted(FIXTURES.glob("*.txt")):
        for block in path.read_text().strip().split("\n\n"):
            head, before, after = block.replace("\n-- after\n", "\n-- before\n").split(
                "\n-- before\n"
            )
            title, sql = head.split("\n", 1)
            yield Golden(path.stem, title.removeprefix("# "), sql, before, after)


def query(sql: str) -> Query:
    """The plan of a query over the tables t, p and q."""
    (tree,) = parse(sql)
    return lower_query(tree, {source.table: source for source in TABLES}.get)


def changed(name: str, made: Query) -> tuple[Node, Node]:
    """The plan before and after a pass."""
    goal = Goal(frozenset(inner for _, inner in made.columns))
    before = renamed_once_more(made.node) if name == "merge_projects" else made.node
    return before, NAMED[name](before, goal)


def renamed_once_more(node: Node) -> Node:
    """The plan with a projection below each projection and Aggregate, that calls x `x~`."""
    node = over(node, tuple(map(renamed_once_more, node.inputs)))
    if not isinstance(node, Project | Aggregate):
        return node
    columns = node.input.columns
    below = Project(node.input, tuple(Named(f"{c.name}~", Ref(c.name, c.type)) for c in columns))
    by: dict[str, Expr] = {c.name: Ref(f"{c.name}~", c.type) for c in columns}
    if isinstance(node, Project):
        return Project(below, tuple(Named(o.name, rewritten(o.expr, by)) for o in node.outputs))
    keys = tuple(Named(key.name, rewritten(key.expr, by)) for key in node.keys)
    calls = tuple(
        replace(call, argument=rewritten(call.argument, by)) if call.argument else call
        for call in node.aggregates
    )
    return Aggregate(below, keys, calls)


@pytest.mark.parametrize("case", list(goldens()), ids=lambda case: f"{case.change}: {case.title}")
def test_golden(case: Golden) -> None:
    made = query(case.sql)
    wanted = [inner for _, inner in made.columns]
    before, after = changed(case.change, made)
    assert show(before) == case.before
    assert show(after) == case.after
    assert rows_of(after, ROWS, wanted) == rows_of(made.node, ROWS, wanted)


def test_every_pass_has_fixtures() -> None:
    counts = dict.fromkeys(NAMED, 0)
    for case in goldens():
        counts[case.change] += 1
    assert all(count >= 6 for count in counts.values()), counts
