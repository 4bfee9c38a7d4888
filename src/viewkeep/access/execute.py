"""Runs SQL statements, one after another, over the catalog, the reader and the writer.

Law: a statement is analysed against the catalog as it is when its turn comes, and is done whole or
not at all; an error leaves the statements before it done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import polars as pl
from sqlglot import exp

from viewkeep.access import changes
from viewkeep.access.queries import readable, run_query
from viewkeep.access.readers import TableReader
from viewkeep.access.reads import At, Reader
from viewkeep.access.results import Result
from viewkeep.catalog import Catalog
from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import Unsupported
from viewkeep.expr import Expr
from viewkeep.plan.explain import explain
from viewkeep.plan.nodes import Source, View
from viewkeep.plan.program import Program, compile_program
from viewkeep.sql import statements as st
from viewkeep.sql.analyse import analyse, make_view
from viewkeep.sql.keys import key_values
from viewkeep.sql.parse import parse, text_of
from viewkeep.sql.scope import Resolve

_QUERY_NAME = "query"


class Executor:
    """Runs the statements of one database."""

    def __init__(self, catalog: Catalog, reader: Reader, write: changes.Write):
        self._catalog, self._reader, self._write = catalog, reader, write

    def run(self, text: str, at: At | None = None) -> Iterator[Result]:
        """Run statements separated by `;`, giving the result of each.

        `at` says what each SELECT sees; see `run_query`.
        """
        for tree in parse(text):
            basis = self._reader.current()
            yield self._run(analyse(tree, self._resolver(tree), basis.program.joins), basis, at)

    def create_views(self, text: str) -> list[str]:
        """Create the views of some CREATE VIEW statements in one change; their names."""
        basis = self._reader.current()
        made: dict[str, View] = {}
        wanted: list[st.CreateView] = []

        def resolve(name: str) -> Source | View:
            return made.get(name) or self._resolve(name)

        for tree in parse(text):
            statement = analyse(tree, resolve, basis.program.joins)
            if not isinstance(statement, st.CreateView):
                raise Unsupported(
                    "only views are created together",
                    fragment=text_of(tree)[:80],
                    hint="Run other statements with sql() or execute()",
                )
            name = statement.view.name
            if not (statement.if_not_exists and (name in made or name in basis.views)):
                made[name] = statement.view
            wanted.append(statement)
        self._catalog.create_views(wanted, basis)
        return list(made)

    def explain(self, what: str | None) -> str:
        """How a view, a statement, or (with None) all views are kept."""
        current = self._reader.current()
        if what is None:
            return explain(current.program, list(current.views)) or "there are no views"
        if what in current.views:
            return explain(current.program, [what])
        if what in current.tables:
            return f"{what} is a base table; EXPLAIN is for views and queries"
        if len(what.split()) == 1:
            raise self._reader.unknown(what)
        joins = current.program.joins
        statements = [analyse(tree, self._resolve, joins) for tree in parse(what)]
        return "\n\n".join(self._explained(statement) for statement in statements)

    def _resolve(self, name: str) -> Source | View:
        current = self._reader.current()
        found = current.tables.get(name) or current.views.get(name)
        if found is None:
            raise self._reader.unknown(name)
        return found

    def _resolver(self, tree: exp.Expr) -> Resolve:
        """How names are resolved: a query that is run reads views like tables."""
        if not isinstance(tree, exp.Query) and not _inserts_query(tree):
            return self._resolve

        return lambda name: readable(self._resolve(name))

    def _run(self, statement: st.Statement, basis: PlanVersion, at: At | None) -> Result:
        catalog = self._catalog
        match statement:
            case st.CreateTable(name, schema, if_not_exists):
                catalog.create_table(name, schema, if_not_exists)
                return Result(message=f"table {name} is there")
            case st.DropTable(name, if_exists):
                catalog.drop_table(name, if_exists)
                return Result(message=f"table {name} is gone")
            case st.CreateView(view, if_not_exists, or_replace):
                catalog.create_view(view, if_not_exists, or_replace, basis)
                return Result(message=f"view {view.name} is there; the pipeline will load it")
            case st.DropView(name, if_exists):
                catalog.drop_view(name, if_exists)
                return Result(message=f"view {name} is gone")
            case st.Insert():
                return _done(self._insert(statement), "inserted")
            case st.Update():
                return _done(self._update(statement), "updated")
            case st.Delete():
                return _done(self._delete(statement), "deleted")
            case st.Select(query):
                answer = run_query(self._reader, query, at)
                return Result(answer.rows, epoch=answer.epoch, how=answer.how)
            case st.Explain(inner):
                lines = self._explained(inner).splitlines()
                return Result(pl.DataFrame({"plan": lines}))
            case st.ShowTables(views):
                return Result(_listed(self._reader.current(), views))
            case st.Describe(name):
                return Result(self._described(name))

    # -- rows ----------------------------------------------------------------------------------

    def _insert(self, statement: st.Insert) -> int:
        base = self._reader.table(statement.table).base
        if statement.query is not None:
            found = run_query(self._reader, statement.query).rows
            found.columns = list(statement.columns)
            if not statement.replace:
                return self._write(base.inserts(found))
            rest = [name for name in base.names if name not in found.columns]
            return self._write(base.puts(found.with_columns(pl.lit(None).alias(n) for n in rest)))
        names = statement.columns
        rows = [dict(zip(names, row, strict=True)) for row in statement.rows]
        if statement.replace:
            # A replaced row is the whole new row: columns that are not named become NULL.
            rows = [dict.fromkeys(base.names) | row for row in rows]
            return self._write(base.puts(rows))
        return self._write(base.inserts(rows))

    def _update(self, statement: st.Update) -> int:
        table = self._reader.table(statement.table)
        return changes.update(
            self._reader.store,
            table,
            self._write,
            dict(statement.assignments),
            statement.predicate,
            _keys(statement.predicate, table),
        )

    def _delete(self, statement: st.Delete) -> int:
        table = self._reader.table(statement.table)
        keys = _keys(statement.predicate, table)
        return changes.delete(self._reader.store, table, self._write, statement.predicate, keys)

    # -- plans ---------------------------------------------------------------------------------

    def _explained(self, statement: st.Statement) -> str:
        current = self._reader.current()
        if isinstance(statement, st.Explain):
            return self._explained(statement.statement)
        if isinstance(statement, st.CreateView):
            view = statement.view
        elif isinstance(statement, st.Select):
            view = make_view(_QUERY_NAME, "", replace(statement.query, limit=None, offset=0), ())
        else:
            raise Unsupported(
                "EXPLAIN is for SELECT and CREATE VIEW: other statements have no plan"
            )
        return explain(_program_with(current, view), [view.name], current.program)

    def _described(self, name: str) -> pl.DataFrame:
        found = self._resolve(name)
        schema = found.schema
        shown = found.visible if isinstance(found, View) else schema.names
        key = {column: place for place, column in enumerate(schema.key, 1)}
        return pl.DataFrame(
            {
                "column": list(shown),
                "type": [str(schema[column].type) for column in shown],
                "nullable": [schema[column].nullable and column not in key for column in shown],
                "key": [key.get(column) for column in shown],
            },
            schema_overrides={"key": pl.Int64},
        )


def _inserts_query(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Query)


def _keys(predicate: Expr | None, table: TableReader) -> changes.KeyValues | None:
    """The keys that a predicate names, or None if all rows must be looked at."""
    return key_values(predicate, [table.schema[name] for name in table.key])


def _done(rows: int, verb: str) -> Result:
    return Result(message=f"{rows:,} {'row' if rows == 1 else 'rows'} {verb}", affected=rows)


def _listed(plan: PlanVersion, views: bool) -> pl.DataFrame:
    if views:
        names = sorted(plan.views)
        columns = {"name": names, "sql": [plan.views[name].sql for name in names]}
    else:
        names = sorted(plan.tables)
        columns = {"name": names, "key": [", ".join(plan.tables[n].schema.key) for n in names]}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def _program_with(plan: PlanVersion, view: View) -> Program:
    """The program with one more view; its new state tables get the numbers that come next."""
    following = count(plan.next_number)
    numbers = dict(plan.numbers)

    def number(key: str) -> int:
        if key not in numbers:
            numbers[key] = next(following)
        return numbers[key]

    views = {**plan.views, view.name: view}
    return compile_program(views.values(), number)
