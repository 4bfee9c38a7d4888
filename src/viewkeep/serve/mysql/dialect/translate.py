"""Translations of statements, each made once for all statements that differ by constants alone.

Law: a translation depends on the statement's shape, on the constants that it did not leave open,
and on the plan version, never on the open constants. So a statement met before is not parsed again.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from viewkeep.access.results import Result
from viewkeep.deferred import pl
from viewkeep.serve.mysql.dialect import rewrite
from viewkeep.serve.mysql.dialect.rewrite import PLACE, Surroundings
from viewkeep.serve.mysql.faults import DATABASE_NAME, Fault, unsupported
from viewkeep.serve.mysql.literals import Constant, SplitStatement, mysql_text
from viewkeep.serve.mysql.protocol.answers import Header, RowsAnswer
from viewkeep.serve.mysql.protocol.fields import field_of
from viewkeep.sql.parse.validate import refuse_rest

_KEPT = 2_000
_LONGEST_SHAPE = 20_000
_LONGEST = 2_000  # characters of constants that a translation is kept for
_PLACES = re.compile(rf":{PLACE}(\d+)")


@dataclass
class Translation:
    """A statement in viewkeep's SQL, with `?` for the constants at `places`.

    `names` are what MySQL calls the columns of a query, None if they have their own names. `reads`
    are the tables and views that it names.
    """

    text: str
    places: tuple[int, ...]
    names: tuple[str, ...] | None
    reads: frozenset[str]
    system: exp.Expr | None = None  # a query for the server itself
    assigned: tuple[tuple[int, str], ...] = ()  # open constants that a column is set to
    nulled: tuple[str, ...] = ()  # columns that are set to NULL
    is_point: bool | None = None  # reads one row by its key; None until that is known
    header: Header | None = None  # of the last answer, which had these columns:
    columns: tuple[list[str], list[pl.DataType]] | None = None

    def rows(self, result: Result) -> RowsAnswer:
        """A result as the answer to the statement."""
        columns = (result.columns, result.types)
        if self.header is None or self.columns != columns:
            names = self.names or columns[0]
            pairs = zip(names, columns[1], strict=True)
            self.header = Header([field_of(name, type) for name, type in pairs])
            self.columns = columns
        return RowsAnswer(self.header, result.tuples())

    def values(self, statement: SplitStatement) -> list[Any]:
        """The values for the `?` of the text."""
        given = statement.values
        return [given[place] for place in self.places]


class Translator:
    """Keeps the translations of all sessions of a server."""

    def __init__(self) -> None:
        self._closed: OrderedDict[tuple[str, int], tuple[int, ...]] = OrderedDict()
        self._points: dict[str, int] = {}
        self._lock = threading.Lock()  # translations are made in threads
        self._made: OrderedDict[tuple[str, int, tuple[Constant, ...]], Translation] = OrderedDict()

    def find(self, statement: SplitStatement, version: int) -> Translation | None:
        """The translation of a statement, if there is one for this plan version."""
        closed = self._closed.get((statement.shape, version))
        if closed is None:
            return None
        fixed = tuple([statement.values[place] for place in closed])
        return self._made.get((statement.shape, version, fixed))

    def find_point(self, statement: SplitStatement) -> Translation | None:
        """A translation that was a read by key when it was made; the plan may be another now."""
        newest = self._points.get(statement.shape)
        if newest is None:
            return None
        found = self.find(statement, newest)
        return found if found is not None and found.is_point else None

    def note_point(self, statement: SplitStatement, version: int) -> None:
        """A translation of this plan version reads one row by its key."""
        if len(self._points) >= _KEPT:
            self._points.clear()
        self._points[statement.shape] = version

    def make(
        self,
        statement: SplitStatement,
        version: int,
        around: Surroundings,
    ) -> Translation:
        """Translate a query, UPDATE or DELETE, and keep it if it is good again."""
        try:
            return self._make(statement, version, around)
        except Fault as fault:
            # The constants that were taken out go back into what is said.
            fault.message = _PLACES.sub(
                lambda place: mysql_text(statement.values[int(place[1])])[:60], fault.message
            )
            raise

    def _make(self, statement: SplitStatement, version: int, around: Surroundings) -> Translation:
        tree = rewrite.parse_open(statement)
        rewrite.localise(tree, around)
        system = isinstance(tree, exp.Query) and rewrite.is_system(tree, around)
        session = _of_session(tree, around)
        if system:
            tree = rewrite.close_all(tree, statement.values)
            made = Translation("", (), None, frozenset(), tree)
            if not session:
                self._keep(statement, version, made, around)
            return made
        _check_parts(tree)
        tree = rewrite.close(tree, statement.values, around)
        tree = rewrite.settle(tree, around)
        tree = rewrite.rewrite(tree, around)
        refuse_rest(tree)
        names = rewrite.name_columns(tree) if isinstance(tree, exp.Query) else None
        text = rewrite.spark_sql(tree)
        places = tuple(int(number) for number in _PLACES.findall(text))
        reads = frozenset(table.name.lower() for table in tree.find_all(exp.Table))
        made = Translation(
            _PLACES.sub("?", text),
            places,
            None if names is None else tuple(names),
            reads,
            assigned=_assigned(tree),
            nulled=_nulled(tree),
        )
        if not session:
            self._keep(statement, version, made, around)
        return made

    def _keep(
        self, statement: SplitStatement, version: int, made: Translation, around: Surroundings
    ) -> None:
        if len(statement.shape) > _LONGEST_SHAPE:
            return
        places = set(made.places)
        closed = tuple(n for n in range(len(statement.values)) if n not in places)
        fixed = tuple(statement.values[place] for place in closed)
        if around.database != DATABASE_NAME:
            return  # names are read differently there
        if sum(len(value) for value in fixed if isinstance(value, str | bytes)) > _LONGEST:
            return
        with self._lock:
            self._closed[statement.shape, version] = closed
            self._made[statement.shape, version, fixed] = made
            for kept in (self._closed, self._made):
                while len(kept) > _KEPT:
                    kept.popitem(last=False)


def _check_parts(tree: exp.Expr) -> None:
    """Refuse parts of a change that its translation would leave out."""
    if not isinstance(tree, exp.Update | exp.Delete):
        return
    for name, value in tree.args.items():
        if value and name not in ("this", "expressions", "where"):
            shown = name.rstrip("_").upper()
            raise unsupported(f"{shown} is not taken in {type(tree).__name__.upper()}")


def _assigned(tree: exp.Expr) -> tuple[tuple[int, str], ...]:
    if not isinstance(tree, exp.Update):
        return ()
    return tuple(
        (int(part.expression.name[len(PLACE) :]), part.this.name.lower())
        for part in tree.expressions
        if isinstance(part, exp.EQ) and isinstance(part.expression, exp.Placeholder)
    )


def _nulled(tree: exp.Expr) -> tuple[str, ...]:
    if not isinstance(tree, exp.Update):
        return ()
    parts = [part for part in tree.expressions if isinstance(part, exp.EQ)]
    return tuple(part.this.name.lower() for part in parts if isinstance(part.expression, exp.Null))


def _of_session(tree: exp.Expr, around: Surroundings) -> bool:
    """Whether a statement asks for what only this session knows, at this moment."""
    for node in tree.walk():
        if isinstance(node, exp.SessionParameter | exp.Parameter):
            return True
        if rewrite.session_function(node, around) is not None:
            return True
    return False
