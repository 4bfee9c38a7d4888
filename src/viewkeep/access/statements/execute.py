"""Runs SQL statements, one after another, over the catalog, the reader and the writer.

Law: a statement is analysed against the catalog as it is when its turn comes, and is done whole or
not at all; an error leaves the statements before it done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, product
from typing import Any

from sqlglot import exp

from viewkeep.access.definitions import create_statement
from viewkeep.access.duckdb.query import DuckQuery
from viewkeep.access.reads import At, DatabaseReader
from viewkeep.access.relations import TableRelation
from viewkeep.access.results import Result
from viewkeep.access.statements import update_delete
from viewkeep.access.statements.altering import alter_table
from viewkeep.access.statements.cache import SHAPELESS, Analysed, StatementCache, Template
from viewkeep.access.statements.keyed import change, insertion
from viewkeep.access.statements.lookups import OtherReader, PointRead, point_read
from viewkeep.access.statements.prepared import Prepared
from viewkeep.access.statements.queries import check_answer, plan_query, readable, run_query
from viewkeep.access.statements.rewriting import readers_again
from viewkeep.catalog import Catalog
from viewkeep.deferred import pl
from viewkeep.engine.programs import PlanVersion
from viewkeep.engine.rows.show import code as rows_code
from viewkeep.errors import (
    InvalidRow,
    NotReady,
    PlanOutdated,
    SqlError,
    SqlSyntaxError,
    UnknownName,
    Unsupported,
    ViewkeepError,
)
from viewkeep.expr import Expr
from viewkeep.plan.explain import explain
from viewkeep.plan.nodes import Source, View
from viewkeep.plan.program import Program, extend_program
from viewkeep.sql.duckdb_sql.agreed import DiffersError
from viewkeep.sql.duckdb_sql.outside import outside
from viewkeep.sql.expressions.whole_keys import key_values
from viewkeep.sql.parse.parameters import (
    SPARK,
    bound,
    check_count,
    constant_tree,
    parse_as,
)
from viewkeep.sql.parse.syntax import parse, text_of
from viewkeep.sql.parse.templates import PARAMETER, split
from viewkeep.sql.relations.scope import Resolve
from viewkeep.sql.statements import nodes as st
from viewkeep.sql.statements.analyse import analyse, make_view
from viewkeep.sql.statements.bulk_insert import SHORTEST, PlainRows, split_rows, stored_rows
from viewkeep.sql.statements.shapes import InsertShape, LookupShape
from viewkeep.types import DataType

_QUERY_NAME = "query"
_TRIES = 3  # at a query whose views are replaced while it begins
_KEPT = (st.Select, st.Update, st.Delete, DuckQuery)
_MISSING = object()


class StatementRunner:
    """Runs the statements of one database."""

    def __init__(
        self,
        catalog: Catalog,
        reader: DatabaseReader,
        write: update_delete.Write,
        statements: StatementCache,
    ):
        self._catalog, self._reader, self._write = catalog, reader, write
        self._statements = statements

    def run(
        self,
        text: str,
        at: At | None = None,
        parameters: Sequence[object] = (),
        dialect: str = SPARK,
    ) -> Iterator[Result]:
        """Run statements separated by `;`, giving the result of each.

        `at` says what each SELECT sees; see `run_query`. `parameters` are the values for `?`, over
        all the statements.
        """
        known = self.known(text, at, parameters, dialect)
        if known is not None:
            yield known
        else:
            yield from self.parsed(text, at, parameters, dialect)

    def parsed(
        self,
        text: str,
        at: At | None = None,
        parameters: Sequence[object] = (),
        dialect: str = SPARK,
    ) -> Iterator[Result]:
        """As `run`, for statements that are not `known`."""
        if dialect == SPARK and not parameters and len(text) >= SHORTEST:
            rows = split_rows(text)
            inserted = None if rows is None else self.insert_plain(rows)
            if inserted is not None:
                yield inserted
                return
        trees = self._trees(text, parameters, dialect)
        for place, tree in enumerate(trees):
            for left in reversed(range(_TRIES)):
                analysed = self._analyse(tree, self._reader.current())
                if len(trees) == 1 and isinstance(analysed.statement, _KEPT):
                    self._statements.keep(text, parameters, dialect, analysed)
                try:
                    result = self._run(analysed, at)
                    break
                except PlanOutdated:  # a view took over from another one just now
                    if not left:
                        raise
                    tree = self._trees(text, parameters, dialect)[place]
            yield result

    def insert_plain(self, given: PlainRows, longest_key: int | None = None) -> Result | None:
        """The result of an INSERT of many plain rows; None if analysis has to look at them.

        InvalidRow for a text in a key that has more characters than `longest_key`.
        """
        try:
            statement = self._analyse(self._trees(given.head, (), SPARK)[0], self._reader.current())
        except SqlError:
            return None  # the statement as it is written says what is wrong
        insert = statement.statement
        if not isinstance(insert, st.Insert) or insert.query is not None:
            return None
        schema = self._reader.table(insert.table).schema
        stored = stored_rows(given.rows, [schema[name] for name in insert.columns])
        if stored is None:
            return None
        if longest_key is not None:
            places = [insert.columns.index(name) for name in schema.key if name in insert.columns]
            _check_keys(insert.table, stored, places, longest_key)
        return _done(self._insert(replace(insert, rows=stored)), "inserted")

    def one(
        self,
        text: str,
        at: At | None = None,
        parameters: Sequence[object] = (),
        dialect: str = SPARK,
    ) -> Result:
        """Run statements; the result of the last."""
        result = self.known(text, at, parameters, dialect)
        if result is None:
            result = Result(message="(no statement)")
            for result in self.parsed(text, at, parameters, dialect):  # noqa: B007 - the last
                pass
        return result

    def prepare(
        self, text: str, dialect: str = SPARK, begin: Callable[[], None] | None = None
    ) -> Prepared:
        """Make a statement ready; `begin` is called before each run."""
        trees, parameters = self._statements.parsed(text, dialect)
        if len(trees) != 1:
            raise SqlSyntaxError(f"one statement is prepared at a time, not {len(trees)}")
        return Prepared(self, text, dialect, parameters, begin)

    def columns_of(
        self, text: str, dialect: str, parameters: int
    ) -> list[tuple[str, DataType]] | None:
        """The names and types of a SELECT's columns, whatever the values of its parameters."""
        errors: list[SqlError] = []
        # Some places take no NULL, LIMIT among them; DuckDB is asked when no guess will do.
        for ours, guess in product((True, False), (None, 1, "")):
            try:
                (tree,) = self._trees(text, [guess] * parameters, dialect)
                statement = self._analyse(tree, self._reader.current(), ours=ours).statement
            except SqlError as refused:
                errors.append(refused)
                continue
            if isinstance(statement, DuckQuery):
                return statement.columns
            if not isinstance(statement, st.Select):
                return None
            types = {column.name: column.type for column in statement.query.node.columns}
            return [(name, types[inner]) for name, inner in statement.query.columns]
        raise errors[0]

    def is_point(self, template: Template) -> bool:
        """Whether a statement reads at most one row by its key."""
        shape = template.shape
        return isinstance(shape, LookupShape) and self._lookup(shape) is not None

    # -- what is known -------------------------------------------------------------------------

    def known(
        self,
        text: str,
        at: At | None = None,
        parameters: Sequence[object] = (),
        dialect: str = SPARK,
    ) -> Result | None:
        """The result of a statement that needs no parsing any more, else None.

        No such statement changes the catalog.
        """
        template, constants = self.template(text, dialect)
        result = self.shaped(template, constants, parameters, at)
        if result is not None:
            return result
        analysed = self._statements.analysed(text, parameters, dialect)
        if analysed is None or analysed.basis is not self._reader.current():
            return None
        with suppress(PlanOutdated):
            return self._run(analysed, at)
        return None

    def template(self, text: str, dialect: str) -> tuple[Template, list[Any]]:
        """The template of a text, and the constants in it."""
        found = split(text)
        if found is None:
            return SHAPELESS, []
        key, constants = found
        return self._statements.template(key, text, dialect), constants

    def shaped(
        self, template: Template, constants: list[Any], parameters: Sequence[Any], at: At | None
    ) -> Result | None:
        """Run a statement of a plain shape; None if its values, or the catalog, need analysis."""
        if template.shape is None:
            return None
        values = _filled(constants, parameters)
        if values is None:
            return None
        shape = template.shape
        if isinstance(shape, LookupShape):
            return self._looked_up(template, shape, values, at)
        current = self._reader.current()
        if template.checked is not current and not self._check(template, values, current):
            return None
        schema = current.tables[shape.table].schema
        if isinstance(shape, InsertShape):
            statement = insertion(shape, schema, values)
            return None if statement is None else _done(self._insert(statement), "inserted")
        changed = change(shape, schema, values)
        return None if changed is None else self._run(Analysed(current, changed, None), at)

    def _looked_up(
        self, template: Template, shape: LookupShape, values: list[Any], at: At | None
    ) -> Result | None:
        with suppress(OtherReader):
            if template.lookup is not None:
                return template.lookup.run(self._reader, values, at)
        current = self._reader.current()
        if template.checked is not current and not self._check(template, values, current):
            return None
        with suppress(OtherReader, NotReady):
            # The published plan may have moved, and the reader with it.
            template.lookup = lookup = self._lookup(shape)
            return None if lookup is None else lookup.run(self._reader, values, at)
        return None

    def _check(self, template: Template, values: Sequence[object], current: PlanVersion) -> bool:
        """Whether a template's statement can be taken in this catalog."""
        tree = template.tree
        assert tree is not None
        try:
            made = bound(tree, [constant_tree(value) for value in values])
            analyse(made, self._resolver(made), current.program.existing)
        except ViewkeepError:
            return False  # the statement as it is written says what is wrong
        template.checked = current
        return True

    def _lookup(self, shape: LookupShape) -> PointRead | None:
        return point_read(shape, self._reader.open(shape.relation, self._reader.newest()))

    def _trees(self, text: str, parameters: Sequence[object], dialect: str) -> list[exp.Expr]:
        if not parameters and PARAMETER not in text:
            return parse_as(text, dialect)
        trees, count = self._statements.parsed(text, dialect)
        if not parameters and all(isinstance(tree, exp.Create) for tree in trees):
            return [tree.copy() for tree in trees]  # parameters of views have no values
        check_count(count, parameters)
        values = [constant_tree(value) for value in parameters]
        return [bound(tree, values) for tree in trees]

    def _analyse(self, tree: exp.Expr, basis: PlanVersion, *, ours: bool = False) -> Analysed:
        """Analyse a statement; a query that we do not answer goes to DuckDB, unless `ours`."""
        whole = tree.copy() if isinstance(tree, exp.Query) else None  # analysis changes it
        try:
            statement = analyse(tree, self._resolver(tree), basis.program.existing)
        except (Unsupported, UnknownName) as refused:
            if whole is None or ours:
                raise
            return Analysed(basis, self._outside(whole, basis, refused), None)
        planned = plan_query(statement.query) if isinstance(statement, st.Select) else None
        return Analysed(basis, statement, planned)

    def _outside(self, tree: exp.Expr, basis: PlanVersion, refused: SqlError) -> DuckQuery:
        """A query that we do not answer, for DuckDB; the error it was refused with if it may not.

        A function that we do not know may be one that DuckDB does.
        """

        def find(name: str) -> Source | View | None:
            found = basis.tables.get(name) or basis.views.get(name)
            return None if found is None else readable(found)

        try:
            query = outside(tree, find)
        except DiffersError as error:
            if isinstance(refused, UnknownName):
                raise refused from error
            reason = f"{refused.reason}; and DuckDB is not asked: {error}"
            raise type(refused)(reason, fragment=refused.fragment, hint=refused.hint) from error
        if query is None:
            raise refused
        return DuckQuery(query, refused)

    def create_views(self, text: str) -> list[str]:
        """Create the views of some CREATE VIEW statements in one change; their names."""
        basis = self._reader.current()
        made: dict[str, View] = {}
        wanted: list[st.CreateView] = []
        existing = basis.program.existing

        def resolve(name: str) -> Source | View:
            return made.get(name) or self._resolve(name)

        for tree in parse(text):
            statement = analyse(tree, resolve, existing)
            if not isinstance(statement, st.CreateView):
                raise Unsupported(
                    "only views are created together",
                    fragment=text_of(tree)[:80],
                    hint="Run other statements with sql() or execute()",
                )
            name = statement.view.name
            if not (statement.if_not_exists and (name in made or name in basis.views)):
                made[name] = statement.view
                existing = existing.with_view(statement.view)
            wanted.append(statement)
        self._catalog.create_views(wanted, basis)
        return list(made)

    def explain(self, what: str | None, code: bool = False) -> str:
        """How a view, a statement, or (with None) all views are kept; or the `code` that does."""
        current = self._reader.current()
        if what is None:
            kept = list(current.program.placements)
            parts = [_shown(current.program, kept, None, code)] if kept else []
            parts += [f"view {name} has failed" for name in current.failed]
            return "\n\n".join(parts) or "there are no views"
        if len(what.split()) == 1:
            what = what.lower()
        if what in current.program.placements:
            return _shown(current.program, [what], None, code)
        if what in current.views:  # set aside
            program = _program_with(current, current.views[what])
            note = "has failed" if what in current.failed else "waits to be loaded afresh"
            shown = _shown(program, [what], current.program, code)
            return f"{shown}\n\nview {what} {note}"
        if what in current.tables:
            return f"{what} is a base table; EXPLAIN is for views and queries"
        if len(what.split()) == 1:
            raise self._reader.unknown(what)
        existing = current.program.existing
        statements = [analyse(tree, self._resolve, existing) for tree in parse(what)]
        return "\n\n".join(self._explained(statement, code) for statement in statements)

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

    def _run(self, analysed: Analysed, at: At | None) -> Result:
        catalog, basis = self._catalog, analysed.basis
        match analysed.statement:
            case st.CreateTable(name, schema, if_not_exists, options, defaults):
                catalog.create_table(name, schema, if_not_exists, options, defaults)
                return Result(message=f"table {name} is there")
            case st.AlterTable(name) as alter:
                alter_table(catalog, alter, self._resolve)
                return Result(message=f"Changed table {name}.")
            case st.DropTable(name, if_exists):
                catalog.drop_table(name, if_exists)
                return Result(message=f"table {name} is gone")
            case st.CreateView(view) as wanted:
                again = readers_again(wanted, basis, self._resolve)
                beside = catalog.create_views([wanted, *again], basis)
                return Result(message=_created(view.name, beside))
            case st.DropView(name, if_exists):
                catalog.drop_view(name, if_exists)
                return Result(message=f"view {name} is gone")
            case st.Insert() as insert:
                return _done(self._insert(insert), "inserted")
            case st.Update() as update:
                return _done(self._update(update), "updated")
            case st.Delete() as delete:
                return _done(self._delete(delete), "deleted")
            case st.Select(query):
                answer = run_query(self._reader, analysed.planned or plan_query(query), at)
                check_answer(answer.rows)
                return Result(answer.rows, epoch=answer.epoch, how=answer.how)
            case DuckQuery() as query:
                views = any(name in basis.views for name in query.relations)
                answer = query.run(self._reader, at, views)
                return Result(answer.rows, epoch=answer.epoch, how=answer.how)
            case st.Explain(inner):
                lines = self._explained(inner).splitlines()
                return Result(pl.DataFrame({"plan": lines}))
            case st.ShowTables(views):
                return Result(_listed(self._reader.current(), views))
            case st.ShowCreate(name):
                self._resolve(name)  # or UnknownName, with what it may have meant
                text = create_statement(self._reader.current(), name)
                return Result(pl.DataFrame({"createtab_stmt": [text]}))
            case st.Describe(name):
                return Result(self._described(name))

    # -- rows ----------------------------------------------------------------------------------

    def _insert(self, statement: st.Insert) -> int:
        base = self._reader.table(statement.table).base
        if statement.query is not None:
            found = run_query(self._reader, plan_query(statement.query)).rows
            found.columns = list(statement.columns)
            if not statement.replace:
                return self._write(base.inserts(found))
            rest = [name for name in base.names if name not in found.columns]
            blank = base.frame([base.row_codec.blank], rest)
            return self._write(
                base.puts(
                    found.with_columns(blank[name].new_from_index(0, found.height) for name in rest)
                )
            )
        names = statement.columns
        rows = [dict(zip(names, row, strict=True)) for row in statement.rows]
        if statement.replace:
            # A replaced row is the whole new row: columns that are not named become NULL.
            rows = [base.defaults | row for row in rows]
            return self._write(base.puts(rows))
        return self._write(base.inserts(rows))

    def _update(self, statement: st.Update) -> int:
        table = self._reader.table(statement.table)
        return update_delete.update(
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
        return update_delete.delete(
            self._reader.store, table, self._write, statement.predicate, keys
        )

    # -- plans ---------------------------------------------------------------------------------

    def _explained(self, statement: st.Statement, code: bool = False) -> str:
        current = self._reader.current()
        if isinstance(statement, st.Explain):
            return self._explained(statement.statement, code)
        if isinstance(statement, st.CreateView):
            view = statement.view
        elif isinstance(statement, st.Select):
            view = make_view(_QUERY_NAME, "", replace(statement.query, limit=None, offset=0), ())
        else:
            raise Unsupported(
                "EXPLAIN is for SELECT and CREATE VIEW: other statements have no plan"
            )
        return _shown(_program_with(current, view), [view.name], current.program, code)

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


def _filled(values: list[Any], parameters: Sequence[object]) -> list[Any] | None:
    """The constants of a text with values for its parameters; None if their numbers differ."""
    if None in values:
        given = iter(parameters)
        values = [next(given, _MISSING) if value is None else value for value in values]
        if _MISSING in values or next(given, _MISSING) is not _MISSING:
            return None
        return values
    return None if parameters else values


def _check_keys(
    table: str, rows: Sequence[Sequence[Any]], places: Sequence[int], longest: int
) -> None:
    for number, row in enumerate(rows, 1):
        for place in places:
            value = row[place]
            if isinstance(value, str) and len(value) > longest:
                raise InvalidRow(
                    f"{table}, row {number}: a text in a key has at most {longest:,} characters "
                    "here"
                )


def _inserts_query(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Query)


def _keys(predicate: Expr | None, table: TableRelation) -> update_delete.KeyValues | None:
    """The keys that a predicate names, or None if all rows must be looked at."""
    return key_values(predicate, [table.schema[name] for name in table.key])


def _created(name: str, beside: Sequence[str]) -> str:
    if name not in beside:
        return f"view {name} is there; the pipeline will load it"
    others = [other for other in beside if other != name]
    also = f", and with it {', '.join(others)}, which read it" if others else ""
    return f"view {name} answers as before until the new one is loaded and takes its name{also}"


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


def _shown(program: Program, names: list[str], before: Program | None, code: bool) -> str:
    """Views as trees of operators, or as the code that keeps them."""
    return rows_code(program, names) if code else explain(program, names, before)


def _program_with(plan: PlanVersion, view: View) -> Program:
    """The program with one more view; its new state tables get the numbers that come next."""
    following = count(plan.next_number)
    numbers = dict(plan.numbers)

    def number(key: str) -> int:
        if key not in numbers:
            numbers[key] = next(following)
        return numbers[key]

    return extend_program(plan.program, [view], number)
