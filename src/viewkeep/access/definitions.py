"""The statements that create a database's tables and views again.

Law: run in order over an empty database, they give tables and views of the same names, columns and
keys, and every view has the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import UnknownName
from viewkeep.plan.nodes import CellSource, Source, View
from viewkeep.types import Schema


def create_statements(plan: PlanVersion) -> list[str]:
    """CREATE statements of all tables, then of all views, each after those that it reads."""
    tables = [_create(plan.tables[name]) for name in sorted(plan.tables)]
    return [*tables, *(create_view(view) for view in in_order(plan.views.values()))]


def create_statement(plan: PlanVersion, name: str) -> str:
    """The CREATE statement of one table or view."""
    name = name.lower()
    if name in plan.views:
        return create_view(plan.views[name])
    if name in plan.tables:
        return _create(plan.tables[name])
    raise UnknownName(f"no table or view is called {name}")


def create_table(name: str, schema: Schema) -> str:
    """CREATE TABLE of a base table."""
    columns = [f"{_quoted(c.name)} {c.type}" for c in schema.columns]
    key = ", ".join(map(_quoted, schema.key))
    return f"CREATE TABLE {_quoted(name)} ({', '.join(columns)}, PRIMARY KEY ({key}))"


def create_view(view: View) -> str:
    """CREATE VIEW, or CREATE INDEX, of a view."""
    if view.statement:
        return view.statement
    # Made by a version that kept the query alone.
    names = ", ".join(map(_quoted, view.visible))
    return f"CREATE VIEW {_quoted(view.name)} ({names}) AS {view.sql}"


def in_order(views: Iterable[View]) -> Iterator[View]:
    """Views, each after those that it reads; the others by name."""
    left = {view.name: view for view in sorted(views, key=lambda view: view.name)}
    stack = list(reversed(left))
    while stack:
        view = left.get(stack[-1])
        if view is None:
            stack.pop()
        elif waits := [name for name in view.reads if name in left]:
            stack += waits
        else:
            yield left.pop(stack.pop())


def _create(table: Source) -> str:
    text, options = create_table(table.table, table.schema), _options(table)
    using = options.pop("using", None)
    if using is not None:
        text += f" USING {using}"
    if options:
        pairs = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in options.items())
        text += f" OPTIONS ({pairs})"
    return text


def _options(table: Source) -> dict[str, str]:
    return dict(table.options) if isinstance(table, CellSource) else {}


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
