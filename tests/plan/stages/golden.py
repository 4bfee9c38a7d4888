"""Golden cases of the planner's stages: SQL, and the plan that a stage makes of it as text.

`fixtures/<stage>.txt` holds cases set apart by blank lines: a title after `# `, statements over the
tables of `TABLES`, and after a line `-- plan` the text. `python tests/plan/stages/golden.py` writes
the texts of cases that have none; look them over, line by line, before they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from viewkeep.plan.connect import Unplaced, connect, root
from viewkeep.plan.explain import explain
from viewkeep.plan.nodes import Filter, Node, Project, Source, Values, View
from viewkeep.plan.program import Program, compile_program
from viewkeep.plan.show import show
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.select.query import lower_query
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateTable, CreateView, Query

FIXTURES = Path(__file__).parent / "fixtures"
TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT);
CREATE TABLE p (id BIGINT PRIMARY KEY, t_id BIGINT, v BIGINT);
CREATE TABLE q (k BIGINT, l BIGINT, w BIGINT, PRIMARY KEY (k, l));
CREATE TABLE x (id INT PRIMARY KEY, n INT, d DOUBLE, m DECIMAL(10, 2), s STRING, f BOOLEAN,
  day DATE, ts TIMESTAMP);
"""
_PLAN = "\n-- plan\n"


@dataclass(frozen=True)
class Golden:
    """A case of a fixture."""

    stage: str
    title: str
    sql: str
    plan: str | None

    def __str__(self) -> str:
        return f"# {self.title}\n{self.sql}{_PLAN}{self.plan or made(self)}"


def goldens() -> Iterator[Golden]:
    """All cases of all fixtures."""
    for path in sorted(FIXTURES.glob("*.txt")):
        yield from _read(path)


def _read(path: Path) -> Iterator[Golden]:
    for block in path.read_text().strip().removeprefix("# ").split("\n\n# "):
        head, _, plan = block.partition(_PLAN)
        title, sql = head.split("\n", 1)
        yield Golden(path.stem, title, sql.strip(), plan or None)


def made(case: Golden) -> str:
    """The text of a case as the planner makes it."""
    return TEXTS[case.stage](case.sql)


def tables() -> dict[str, Source | View]:
    """The base tables by name."""
    found: dict[str, Source | View] = {}
    for number, tree in enumerate(parse(TABLES), 1):
        statement = analyse(tree, found.get)
        assert isinstance(statement, CreateTable)
        found[statement.name] = Source(statement.name, number, statement.schema)
    return found


def query(sql: str) -> Query:
    """The plan of a SELECT as it is lowered, before any pass."""
    (tree,) = parse(sql)
    return lower_query(tree, tables().get)


def views(sql: str) -> list[View]:
    """Views in the order of their statements; joins go towards those of the views before."""
    known, found = tables(), list[View]()
    for tree in parse(sql):
        statement = analyse(tree, known.get, program(found).existing)
        assert isinstance(statement, CreateView)
        known[statement.view.name] = statement.view
        found.append(statement.view)
    return found


def program(found: list[View]) -> Program:
    """The program of views, its tables numbered from 1."""
    numbers: dict[str, int] = {}
    return compile_program(found, lambda key: numbers.setdefault(key, len(numbers) + 1))


# -- texts -----------------------------------------------------------------------------------------


def _qualified(sql: str) -> str:
    """The names and types of the result, and the plan."""
    found = query(sql)
    types = {column.name: column.type for column in found.node.columns}
    columns = ", ".join(f"{outer} {types[inner]}" for outer, inner in found.columns)
    return f"{columns}\n{show(found.node)}"


def _keyed(sql: str) -> str:
    """What each view shows, and its rows with their key."""
    lines = []
    for view in views(sql):
        columns = [o if o == i else f"{o} = {i}" for o, i in view.columns]
        lines.append(f"{view.name} ({', '.join(columns)})\n{_indented(show(view.node), 1)}")
    return "\n".join(lines)


def _arranged(sql: str) -> str:
    """Each reader, with the arrangements it reads and what it finds their rows by."""
    lines = []
    for part in _parts(sql).values():
        if part.sides:
            lines.append(_line(part.node))
        for side in part.sides:
            lines.append(f"  by ({', '.join(side.group)}):{_steps(side.steps)}")
            lines.append(_indented(show(side.node), 2))
    return "\n".join(lines)


def _fused(sql: str) -> str:
    """Each operator with the ways into it: from whom, and the steps that run on the way."""
    lines = []
    for part in _parts(sql).values():
        lines.append(_line(part.node))
        for branch in part.branches:
            lines.append(f"  fed by {_line(branch.producer)}{_steps(branch.steps)}")
        for side in part.sides:
            lines.append(f"  reads {_line(side.node)}{_steps(side.steps)}")
    return "\n".join(lines)


def _shared(sql: str) -> str:
    """The last view, beside the program of those before it."""
    found = views(sql)
    return explain(program(found), [found[-1].name], program(found[:-1]))


def _placed(sql: str) -> str:
    found = views(sql)
    return explain(program(found), [view.name for view in found])


def _parts(sql: str) -> dict[str, Unplaced]:
    return connect(root(view) for view in views(sql))


def _line(node: Node) -> str:
    if isinstance(node, Source | Values):
        return show(node)
    return show(node).split("\n", 1)[0]


def _steps(steps: tuple[Filter | Project, ...]) -> str:
    return "".join(f"\n    {_line(step)}" for step in steps)


def _indented(text: str, depth: int) -> str:
    return "\n".join("  " * depth + line for line in text.split("\n"))


TEXTS: dict[str, Callable[[str], str]] = {
    "qualify": _qualified,
    "decorrelate": lambda sql: show(query(sql).node),
    "choose_keys": _keyed,
    "share_groups": _keyed,
    "arrange": _arranged,
    "merge": _arranged,
    "fuse": _fused,
    "share": _shared,
    "place": _placed,
}


if __name__ == "__main__":
    for path in sorted(FIXTURES.glob("*.txt")):
        path.write_text("\n\n".join(map(str, _read(path))) + "\n")
