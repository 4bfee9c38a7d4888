"""A small SQL logic test runner: statements, changes, and the rows of views after each step.

A file holds cases that share a preamble. Lines that start with `#` are comments; a blank line ends
a block. The SQL is Spark's dialect.

    statement ok            the statements that follow must be taken
    statement error REGEX   the statement that follows is refused with such a message
    view NAME               CREATE VIEW NAME AS the query that follows; after a line `==== duckdb`
                            the same query for DuckDB, where the dialects differ too much
    late view NAME          the same; it documents that the rows are there before the view
    epoch                   run epochs in this process until all that was written is published
    query TYPES [nosort]    the rows of a view (one word) or of a SELECT, after a line `----`; they
                            are compared sorted, unless `nosort`. TYPES has a letter per column:
                            I INT, BIGINT; R DOUBLE; N DECIMAL; T STRING; B BOOLEAN; D DATE;
                            S TIMESTAMP; X BINARY; A an ARRAY. Values are separated by ` | `
    check                   every view equals DuckDB's answer over the same tables
    block NAME / end        in the preamble: steps that cases run by `run NAME`
    case NAME               a new case

Law: a case that ends well has also passed its closing act: all views are checked, dropped and
created again over the rows that exist, checked, then every base row is deleted and they are checked
once more. So each query is proved incrementally, by loading, and down to nothing.

Cases of one file that have one view `v` and the same changes run side by side, each view under its
case's name with `v_` in front: it is faster, and they share what the planner shares. If an epoch
fails there, they run one by one to find whose it is. Each run starts from an empty database.

`python tests/slt/runner.py --fill FILE ...` writes the expected rows of queries that have none.
They come from DuckDB alone; look them over before they are committed.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .epochs import run_epochs
    from .oracle import Row, Twin, difference, same, to_duckdb
else:
    from epochs import run_epochs
    from oracle import Row, Twin, difference, same, to_duckdb

if TYPE_CHECKING:
    from viewkeep import Database

DUCKDB = "==== duckdb"
LETTERS = {
    "INT": "I",
    "INTEGER": "I",
    "BIGINT": "I",
    "HUGEINT": "I",
    "DOUBLE": "R",
    "DECIMAL": "N",
    "STRING": "T",
    "VARCHAR": "T",
    "BOOLEAN": "B",
    "DATE": "D",
    "TIMESTAMP": "S",
    "BINARY": "X",
    "BLOB": "X",
}


@dataclass(frozen=True)
class Step:
    """One directive: its word, the rest of its line, the SQL below it, the rows expected."""

    kind: str
    rest: str
    sql: str
    line: int
    expected: tuple[str, ...] | None = None


@dataclass
class Case:
    """The steps of a case, after those of the file's preamble."""

    file: Path
    name: str
    line: int
    steps: list[Step] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.file.stem}::{self.name}"


class Failed(AssertionError):
    """A step of a case did not hold."""


# -- reading -----------------------------------------------------------------------------------


def blocks(path: Path) -> Iterator[Step]:
    """The directives of a file."""
    lines = path.read_text().splitlines()
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if not line or line.startswith("#"):
            at += 1
            continue
        kind, _, rest = line.partition(" ")
        begun, at = at + 1, at + 1
        body: list[str] = []
        while at < len(lines) and lines[at].strip():
            if not lines[at].startswith("#"):
                body.append(lines[at])
            at += 1
        expected = None
        if "----" in body:
            cut = body.index("----")
            expected = tuple(body[cut + 1 :])
            body = body[:cut]
        yield Step(kind, rest.strip(), "\n".join(body), begun, expected)


def read_cases(path: Path) -> list[Case]:
    """The cases of a file, each with the preamble and the named blocks it runs put in."""
    preamble: list[Step] = []
    named: dict[str, list[Step]] = {}
    cases: list[Case] = []
    target = preamble
    for step in blocks(path):
        if step.kind == "case":
            cases.append(Case(path, step.rest, step.line, list(preamble)))
            target = cases[-1].steps
        elif step.kind == "block":
            target = named[step.rest] = []
        elif step.kind == "end":
            target = preamble
        elif step.kind == "run":
            target += named[step.rest]
        else:
            target.append(step)
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: cases called the same: {sorted(twice)}")
    return cases


# -- running -----------------------------------------------------------------------------------


@dataclass
class View:
    """A view of a case: its name in the database, and its text for both engines."""

    case: Case
    name: str
    sql: str


class Runner:
    """Runs cases in one database, with DuckDB in step.

    `proof` may prove the views in a further way, before the closing act.
    """

    def __init__(
        self, make: Callable[[], Database], proof: Callable[[Database], None] | None = None
    ):
        self.make, self.db, self.twin, self.proof = make, make(), Twin(), proof
        self.broken = False  # an epoch failed: it would be tried again for ever
        self.views: dict[str, View] = {}
        self.failures: dict[str, Failed] = {}  # case id -> what did not hold

    def close(self) -> None:
        self.twin.close()
        self.db.close()

    def run(self, cases: list[Case]) -> dict[str, Failed]:
        """Run cases; those that failed, by id."""
        for group in grouped(cases):
            if len(group) == 1 or not self._side_by_side(group):
                for case in group:
                    self._alone(case)
        return self.failures

    def _side_by_side(self, cases: list[Case]) -> bool:
        """Run cases of the same steps at once; False if an epoch failed, whosesoever it is."""
        self._clear()
        for steps in zip(*(case.steps for case in cases), strict=True):
            if steps[0].kind == "epoch":
                try:
                    self._epoch()
                except Exception:
                    return False
            elif steps[0].kind in ("view", "query"):
                for case, step in zip(cases, steps, strict=True):
                    self._guarded(case, step, f"v_{case.name}")
            else:
                self._step(cases[0], steps[0], "")
        try:
            self._closing_act()
        except Exception:
            return False
        return True

    def _alone(self, case: Case) -> None:
        self.failures.pop(case.id, None)
        self._clear()
        for step in case.steps:
            if case.id not in self.failures:
                self._guarded(case, step, None)
        if self.views and case.id not in self.failures:
            try:
                self._closing_act()
            except Exception as error:
                self._note(case, f"{case.file.name}:{case.line}: closing act of {case.name}", error)

    def _guarded(self, case: Case, step: Step, only: str | None) -> None:
        """Run a step; what it raises is the case's failure."""
        if case.id in self.failures:
            return
        try:
            self._step(case, step, only)
        except Exception as error:
            place = f"{case.file.name}:{step.line}: {step.kind} {step.rest}\n{step.sql}"
            self._note(case, place, error)

    def _note(self, case: Case, place: str, error: Exception) -> None:
        made = Failed(f"{place}\n{type(error).__name__}: {error}")
        made.__cause__ = error
        self.failures.setdefault(case.id, made)

    def _step(self, case: Case, step: Step, only: str | None) -> None:
        """Run a step of a case whose only view is called `only`, if that is given."""
        match step.kind, step.rest.split(" ", 1):
            case "statement", ["ok"]:
                self.db.sql(step.sql)
                self.twin.run(step.sql)
            case "statement", ["error", pattern]:
                self._refused(step.sql, pattern)
            case ("view", [name]) | ("late", ["view", name]):
                self._create(View(case, only or name, step.sql))
            case "epoch", _:
                self._epoch()
            case "check", _:
                self._check()
            case "query", [types, *options]:
                self._query(step, only or step.sql.strip(), types, options == ["nosort"])
            case _:
                raise ValueError(f"no such directive: {step.kind} {step.rest}")

    def _refused(self, text: str, pattern: str) -> None:
        from viewkeep.errors import ViewkeepError

        try:
            self.db.sql(text)
        except ViewkeepError as error:
            if not re.search(pattern, str(error)):
                raise Failed(f"refused with another message than /{pattern}/: {error}") from error
        else:
            raise Failed("it was taken, not refused")

    def _create(self, view: View) -> None:
        ours, _, theirs = view.sql.partition(DUCKDB)
        self.db.sql(f"CREATE VIEW {view.name} AS {ours}")
        self.views[view.name] = view  # from here on it must be dropped, whatever DuckDB says
        self.twin.create_view(view.name, ours, theirs.strip() or None)

    def _epoch(self) -> None:
        try:
            run_epochs(self.db.store)
        except Exception:
            self.broken = True
            raise

    def _query(self, step: Step, text: str, types: str, ordered: bool) -> None:
        is_view = text in self.views
        result = self.db.scan(text) if is_view else self.db.sql(text)
        if is_view:
            schema = self.db.schema(text)
            found = "".join(_letter(schema[name].type.name) for name in result.columns)
            if found != types:
                raise Failed(f"the columns are of types {found}, not {types}")
        if step.expected is None:
            raise Failed("there are no expected rows; fill them in with --fill")
        shown = [shown_row(row) for row in result.tuples()]
        expected = list(step.expected)
        if not ordered:
            shown, expected = sorted(shown), sorted(expected)
        if shown != expected and not _nearly(shown, expected, types):
            raise Failed("\n".join(["found:", *shown, "expected:", *expected]))

    def _check(self) -> None:
        """Every view equals DuckDB's recomputation; the case of one that does not has failed."""
        for name, view in self.views.items():
            found = self.db.scan(name).tuples()
            if wrong := difference(found, self.twin.rows(f"SELECT * FROM {name}")):
                place = f"{view.case.file.name}:{view.case.line}: {view.case.name}\n{view.sql}"
                self._note(view.case, place, Failed(f"{name} differs from DuckDB: {wrong}"))

    def _closing_act(self) -> None:
        self._epoch()
        self._check()
        if self.proof is not None:
            self.proof(self.db)
        again = list(self.views.values())
        self._drop_views()
        for view in again:
            self._create(view)
        self._epoch()
        self._check()
        for table in self.db.tables():
            self.db.sql(f"DELETE FROM {table}")
            self.twin.run(f"DELETE FROM {table}")
        self._epoch()
        self._check()

    def _drop_views(self) -> None:
        for name in reversed(self.views):
            self.db.sql(f"DROP VIEW IF EXISTS {name}")
        self.views = {}
        self.twin.drop_views()

    def _clear(self) -> None:
        """Forget what the cases before left, whole or broken."""
        if self.broken:
            self.db.close()
            self.db, self.broken = self.make(), False
        else:
            for name in reversed(list(self.db.catalog.current().views)):
                self.db.sql(f"DROP VIEW {name}")
            for table in self.db.tables():
                self.db.sql(f"DROP TABLE {table}")
        self.views = {}
        self.twin.close()
        self.twin = Twin()


def grouped(cases: list[Case]) -> list[list[Case]]:
    """Cases that may run side by side: one view called `v`, and otherwise the same steps."""
    found: dict[object, list[Case]] = {}
    for case in cases:
        views = [step.rest for step in case.steps if step.kind in ("view", "late")]
        queries = [step.sql.strip() for step in case.steps if step.kind == "query"]
        same: object = case.id
        if views == ["v"] and set(queries) == {"v"}:
            same = tuple(
                step.kind if step.kind in ("view", "query") else (step.kind, step.rest, step.sql)
                for step in case.steps
            )
        found.setdefault(same, []).append(case)
    return list(found.values())


# -- values ------------------------------------------------------------------------------------


def shown_row(row: Row) -> str:
    return " | ".join(map(shown_value, row))


def shown_value(value: Any) -> str:
    """A value as it is written in a file."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value + 0.0:.12g}"
    if isinstance(value, bytes):
        return value.hex() or "(empty)"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    return str(value) or "(empty)"


def _letter(kind: str) -> str:
    """The letter of a type of ours or of DuckDB's."""
    return "A" if kind.startswith("ARRAY<") or kind.endswith("[]") else LETTERS[kind]


def _nearly(found: list[str], expected: list[str], types: str) -> bool:
    """Equal but for the last digits of doubles."""
    if len(found) != len(expected) or "R" not in types:
        return False
    for mine, theirs in zip(found, expected, strict=True):
        ours, others = mine.split(" | "), theirs.split(" | ")
        if len(ours) != len(others) or len(ours) != len(types):
            return False
        for letter, a, b in zip(types, ours, others, strict=True):
            if a != b and (letter != "R" or "NULL" in (a, b) or not same(float(a), float(b))):
                return False
    return True


# -- filling -----------------------------------------------------------------------------------


def fill(path: Path) -> None:
    """Write DuckDB's rows below the queries of a file that have none."""
    answers: dict[int, tuple[str, list[str]]] = {}
    for case in read_cases(path):
        twin, views = Twin(), set[str]()
        for step in case.steps:
            ours, _, theirs = step.sql.partition(DUCKDB)
            words = step.rest.split()
            if step.kind == "statement" and words == ["ok"]:
                twin.run(step.sql)
            elif step.kind in ("view", "late"):
                try:
                    twin.create_view(words[-1], ours, theirs.strip() or None)
                except Exception as error:
                    print(f"{path.name}:{step.line}: {case.name}: {error}")
                views.add(words[-1])
            elif step.kind == "query" and step.expected is None:
                text = step.sql.strip()
                asked = f"SELECT * FROM {text}" if text in views else to_duckdb(text)
                try:
                    relation = twin.connection.execute(asked)
                except Exception as error:
                    print(f"{path.name}:{step.line}: {case.name}: {error}")
                    continue
                described = relation.description or []
                kinds = "".join(_letter(re.sub(r"\(.*", "", str(c[1]))) for c in described)
                rows = [shown_row(row) for row in relation.fetchall()]
                options = "" if "nosort" not in words else " nosort"
                rows = rows if options else sorted(rows)
                answer = (f"query {kinds}{options}", rows)
                if answers.setdefault(step.line, answer) != answer:
                    raise ValueError(f"{path.name}:{step.line} differs between cases")
        twin.close()
    lines = path.read_text().splitlines()
    for line in sorted(answers, reverse=True):
        head, rows = answers[line]
        lines[line - 1] = head
        end = line
        while end < len(lines) and lines[end].strip():
            end += 1
        lines[end:end] = ["----", *rows]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--fill"]:
        raise SystemExit("usage: python tests/slt/runner.py --fill FILE ...")
    for given in sys.argv[2:]:
        fill(Path(given))
