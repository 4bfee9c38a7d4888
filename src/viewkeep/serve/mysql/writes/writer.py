"""Writes rows into tables for a session: defaults, numbers given out, conflicts.

Law: one statement's rows are written in one call, whole or not at all; only what must look at each
row (IGNORE, ON DUPLICATE KEY UPDATE with other columns or expressions) goes row by row, and then an
error leaves the rows before it written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from viewkeep.access.sessions import Session
from viewkeep.database import Database
from viewkeep.errors import DuplicateKey
from viewkeep.plan.nodes import Source
from viewkeep.serve.mysql.catalog.declare import NOW, Declared, declared_of
from viewkeep.serve.mysql.dialect.rewrite import constant_tree
from viewkeep.serve.mysql.faults import DATABASE_NAME, Fault, unsupported
from viewkeep.serve.mysql.protocol.answers import Done
from viewkeep.serve.mysql.writes.coerce import coerced
from viewkeep.serve.mysql.writes.insertions import DEFAULT, Insertion
from viewkeep.serve.mysql.writes.sequences import Sequences

_ATTEMPTS = 5

Warn = Callable[[int, str], None]
RunTree = Callable[[exp.Expr], int]


class Target:
    """A table that is written, with its columns as they were declared."""

    def __init__(self, db: Database, name: str):
        plan = db.catalog.current()
        source = plan.tables.get(name)
        if source is None:
            if name in plan.views:
                raise Fault(1288, "HY000", f"{name} is a view; write to the tables that it reads")
            raise Fault(1146, "42S02", f"Table '{DATABASE_NAME}.{name}' doesn't exist")
        self.source: Source = source
        self.declared: dict[str, Declared] = {
            column.name: column for column in declared_of(db.store, source)
        }
        self.types = {column.name: column.type for column in source.schema.columns}
        self.automatic = next((c.name for c in self.declared.values() if c.automatic), None)

    @property
    def name(self) -> str:
        return self.source.table

    def column(self, name: str) -> Declared:
        if name not in self.declared:
            raise Fault(1054, "42S22", f"Unknown column '{name}' in '{self.name}'")
        return self.declared[name]

    def coerced(self, name: str, value: Any) -> Any:
        return coerced(value, self.column(name), self.types[name])

    def default(self, name: str) -> Any:
        """The value of a column that a statement leaves out."""
        column = self.declared[name]
        if column.default == NOW and self.types[name].name in ("TIMESTAMP", "DATE"):
            now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
            return now if self.types[name].name == "TIMESTAMP" else now.date()
        if column.default is None and not column.nullable:
            raise Fault(1364, "HY000", f"Field '{name}' doesn't have a default value")
        return None if column.default is None else self.coerced(name, column.default)


class Writer:
    """Writes for one session."""

    def __init__(self, db: Database, sequences: Sequences, warn: Warn, run: RunTree, max_key: int):
        self._db, self._sequences, self._warn, self._run = db, sequences, warn, run
        self._max_key = max_key

    def insert(self, session: Session, insertion: Insertion) -> Done:
        """Do an INSERT or REPLACE."""
        target = Target(self._db, insertion.table)
        columns = _columns(insertion, target)
        rows = [_row(target, columns, row, n) for n, row in enumerate(insertion.rows, 1)]
        self._check_keys(target, rows)
        if insertion.replace:
            first = self._number(target, rows)
            session.put(target.name, rows)
            return Done(len(rows), first, _info(len(rows)))
        if insertion.updates:
            return self._upsert(session, target, insertion, columns, rows)
        if insertion.ignore:
            return self._ignoring(session, target, rows)
        return self._insert(session, target, rows)

    def _check_keys(self, target: Target, rows: list[dict[str, Any]]) -> None:
        for name in target.source.schema.key:
            if target.types[name].name not in ("STRING", "BINARY"):
                continue
            if any(len(row.get(name) or "") > self._max_key for row in rows):
                raise Fault(
                    1071, "42000", f"a text in a key has at most {self._max_key:,} characters here"
                )

    def _insert(self, session: Session, target: Target, rows: list[dict[str, Any]]) -> Done:
        chosen = _chosen(target, rows)
        for attempt in range(_ATTEMPTS):
            numbered = [dict(row) for row in rows]
            first = self._number(target, numbered)
            try:
                session.insert(target.name, numbered)
                return Done(len(rows), first, _info(len(rows)))
            except DuplicateKey:
                # A number that was given out can be taken by a writer who chose it himself.
                if not first or chosen or attempt == _ATTEMPTS - 1:
                    raise
                self._sequences.met(target.source)
        raise AssertionError("the last attempt returns or raises")

    def _ignoring(self, session: Session, target: Target, rows: list[dict[str, Any]]) -> Done:
        try:
            return self._insert(session, target, rows)
        except DuplicateKey:
            pass
        written = first = 0
        for row in rows:
            try:
                done = self._insert(session, target, [row])
                written, first = written + 1, first or done.last_id
            except DuplicateKey as error:
                self._warn(1062, str(error))
        return Done(written, first, _info(len(rows), len(rows) - written))

    def _upsert(
        self,
        session: Session,
        target: Target,
        insertion: Insertion,
        columns: Sequence[str],
        rows: list[dict[str, Any]],
    ) -> Done:
        key = target.source.schema.key
        replaced = {_assigned(update) for update in insertion.updates}
        if (
            all(_takes_new(update, insertion.alias) for update in insertion.updates)
            and replaced | set(key) == set(columns)
            and not _defaults(target, columns)
        ):
            session.put(target.name, [{name: row[name] for name in columns} for row in rows])
            return Done(len(rows), 0, _info(len(rows)))
        affected = first = 0
        for row in rows:
            for _ in range(_ATTEMPTS):
                try:
                    done = self._insert(session, target, [row])
                    affected, first = affected + 1, first or done.last_id
                    break
                except DuplicateKey:
                    update = _update(target, insertion, row)
                    if update is None:
                        break
                    if self._run(update):
                        affected += 2
                        break
        return Done(affected, first, _info(len(rows)))

    def _number(self, target: Target, rows: list[dict[str, Any]]) -> int:
        """Give numbers to the rows that have none; the first of them, or 0."""
        name = target.automatic
        if name is None:
            return 0
        without = [row for row in rows if not row[name]]
        largest = max((row[name] for row in rows if row[name]), default=0)
        if largest > 0:
            self._sequences.passed(target.source, int(largest))
        if not without:
            return 0
        first = self._sequences.take(target.source, len(without))
        for number, row in enumerate(without, first):
            row[name] = target.coerced(name, number)
        return first


def _columns(insertion: Insertion, target: Target) -> Sequence[str]:
    if insertion.columns is None or (insertion.columns == () and not any(insertion.rows)):
        columns: Sequence[str] = list(target.declared) if insertion.columns is None else ()
    else:
        columns = insertion.columns
    for name in columns:
        target.column(name)
        if list(columns).count(name) > 1:
            raise Fault(1110, "42000", f"Column '{name}' specified twice")
    return columns


def _row(
    target: Target, columns: Sequence[str], values: Sequence[Any], line: int
) -> dict[str, Any]:
    if len(values) != len(columns):
        raise Fault(1136, "21S01", f"Column count doesn't match value count at row {line}")
    given = dict(zip(columns, values, strict=True))
    row: dict[str, Any] = {}
    for name in target.declared:
        value = given.get(name, DEFAULT)
        if name == target.automatic and (value is DEFAULT or value is None or value == 0):
            row[name] = None
        elif value is DEFAULT:
            row[name] = target.default(name)
        else:
            row[name] = target.coerced(name, value)
    return row


def _chosen(target: Target, rows: list[dict[str, Any]]) -> bool:
    """Whether the statement names keys itself."""
    return target.automatic is None or any(row[target.automatic] for row in rows)


def _defaults(target: Target, columns: Sequence[str]) -> bool:
    rest = [column for name, column in target.declared.items() if name not in columns]
    return any(column.default is not None for column in rest)


def _assigned(update: exp.EQ) -> str:
    return str(update.this.name).lower()


def _spelt_alike(update: exp.EQ) -> bool:
    """Whether an assignment is `a = a`."""
    return update.expression.name.lower() == _assigned(update) and not update.expression.table


def _takes_new(update: exp.EQ, alias: str) -> bool:
    """Whether an assignment is `a = VALUES(a)`, or `a = new.a`."""
    new = _new_column(update.expression, alias)
    return new is not None and new == _assigned(update)


def _new_column(node: exp.Expr, alias: str) -> str | None:
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "VALUES":
        return node.expressions[0].name.lower() if len(node.expressions) == 1 else None
    if isinstance(node, exp.Values | exp.Tuple) and len(node.expressions) == 1:
        inner = node.expressions[0]
        inner = inner.expressions[0] if isinstance(inner, exp.Tuple) else inner
        return inner.name.lower() if isinstance(node, exp.Values) else None
    if alias and isinstance(node, exp.Column) and node.table.lower() == alias:
        return node.name.lower()
    return None


def _update(target: Target, insertion: Insertion, row: dict[str, Any]) -> exp.Expr | None:
    """The UPDATE of the row that is there; None if all columns are set to themselves."""

    def filled(node: exp.Expr) -> exp.Expr:
        name = _new_column(node, insertion.alias)
        if name is None:
            return node
        target.column(name)
        return constant_tree(row[name])

    assignments = []
    for update in insertion.updates:
        if isinstance(update.expression, exp.Column) and _spelt_alike(update):
            continue
        if _assigned(update) in target.source.schema.key:
            raise unsupported("ON DUPLICATE KEY UPDATE does not change the key")
        assignments.append(
            exp.EQ(this=update.this.copy(), expression=update.expression.copy().transform(filled))
        )
    if not assignments:
        return None
    where = exp.and_(
        *[
            exp.EQ(this=exp.column(name, quoted=True), expression=constant_tree(row[name]))
            for name in target.source.schema.key
        ]
    )
    return exp.Update(
        this=exp.to_table(target.name), expressions=assignments, where=exp.Where(this=where)
    )


def _info(rows: int, duplicates: int = 0) -> str:
    return f"Records: {rows}  Duplicates: {duplicates}  Warnings: {duplicates}" if rows > 1 else ""
