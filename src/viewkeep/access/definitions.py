"""The statements that create a database's tables and views again.

Law: run in order over an empty database, they give tables and views of the same names, columns and
keys, and every view has the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlglot import exp

from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import UnknownName
from viewkeep.expr import Scalar
from viewkeep.plan.nodes import CellSource, Source, View
from viewkeep.sql.parse.parameters import constant_tree
from viewkeep.sql.parse.syntax import parse, text_of
from viewkeep.types import Column, Schema


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


def create_table(name: str, schema: Schema, defaults: Mapping[str, Scalar] | None = None) -> str:
    """CREATE TABLE of a base table."""
    columns = [f"{_quoted(c.name)} {c.type}{_default(c, defaults or {})}" for c in schema.columns]
    key = ", ".join(map(_quoted, schema.key))
    return f"CREATE TABLE {_quoted(name)} ({', '.join(columns)}, PRIMARY KEY ({key}))"


def create_view(view: View) -> str:
    """CREATE VIEW, or CREATE INDEX, of a view."""
    if view.statement and not has_star(view.statement):
        return view.statement
    # Of a version that kept the query alone, or of all columns that there were then.
    names = ", ".join(map(_quoted, view.visible))
    return f"CREATE VIEW {_quoted(view.name)} ({names}){_partial(view)} AS {view.sql}"


def _partial(view: View) -> str:
    if view.wanted is None:
        return ""
    return f" WITH (partial = {_text(', '.join(view.wanted.values))})"


def has_star(statement: str) -> bool:
    """Whether a statement means columns that it does not name."""
    if "*" not in statement:
        return False
    (tree,) = parse(statement)
    stars = (star.parent for star in tree.find_all(exp.Star))
    return any(not isinstance(above, exp.Func) for above in stars)


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
    text = create_table(table.table, table.schema, defaults_of(table))
    options = _options(table)
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


def defaults_of(table: Source) -> dict[str, Scalar]:
    """The defaults of columns that have one."""
    given = dict(table.rows.defaults)
    return {name: given[number] for name, number in table.rows.columns if number in given}


def _default(column: Column, defaults: Mapping[str, Scalar]) -> str:
    value = defaults.get(column.name)
    return "" if value is None else f" DEFAULT {text_of(constant_tree(value))}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
