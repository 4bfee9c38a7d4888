"""ALTER TABLE and RENAME TABLE as MySQL writes them: changes of a table, and of what was declared.

Law: a statement is done whole or refused. The record of what was declared has the new columns
before the table has them, and loses the old ones after it, so whoever dies in between leaves
columns that are all declared. No row is rewritten: rows that are there have a new column's DEFAULT,
or, as in MySQL, 0 or an empty text if it is NOT NULL without one.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from viewkeep.access.statements.altering import alter_table
from viewkeep.database import Database
from viewkeep.errors import UnknownName, ViewkeepError
from viewkeep.expr import Scalar
from viewkeep.plan.alterations import (
    AddColumn,
    Alteration,
    DropColumn,
    RenameColumn,
    RenameTable,
    SetDefault,
    WidenColumn,
    altered,
)
from viewkeep.plan.nodes import Source, View
from viewkeep.serve.mysql.catalog import declare
from viewkeep.serve.mysql.catalog.declare import NOW, Declared
from viewkeep.serve.mysql.faults import DATABASE_NAME, Fault, unsupported
from viewkeep.serve.mysql.literals import SplitStatement
from viewkeep.serve.mysql.writes.coerce import RANGES, coerced
from viewkeep.sql.statements.nodes import AlterTable
from viewkeep.types import Column, DataType

Warn = Callable[[str], None]

_RENAME = re.compile(
    r"RENAME\s+TABLE\s+(?P<old>(?:`[^`]+`|[\w$.])+)\s+TO\s+(?P<new>(?:`[^`]+`|[\w$.])+)",
    re.IGNORECASE,
)
_NO_COLUMNS = ("INDEX", "CONSTRAINT", "FOREIGN KEY", "CHECK")
_EMPTY: dict[str, Scalar] = {
    "BOOLEAN": False,
    "INT": 0,
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "STRING": "",
    "BINARY": b"",
}


def renaming(statement: SplitStatement) -> SplitStatement:
    """RENAME TABLE as ALTER TABLE."""
    match = _RENAME.fullmatch(statement.shape)
    if match is None:
        raise unsupported("RENAME TABLE takes one table: RENAME TABLE a TO b")
    return SplitStatement(f"ALTER TABLE {match['old']} RENAME TO {match['new']}", ())


def alter(db: Database, tree: exp.Alter, ignore_constraints: bool, warn: Warn) -> None:
    """Run an ALTER TABLE, whose names are those of this database."""
    name = tree.this.name.lower()
    plan = db.catalog.current()
    source = plan.tables.get(name)
    if source is None and name in plan.views:
        raise Fault(1347, "HY000", f"'{DATABASE_NAME}.{name}' is a view: CREATE OR REPLACE VIEW")
    if source is None:
        raise Fault(1146, "42S02", f"Table '{DATABASE_NAME}.{name}' doesn't exist")
    change = TableChange(db, source, ignore_constraints, warn)
    actions, options = tree.args.get("actions") or [], tree.args.get("options") or []
    if not actions and not options:
        raise unsupported(f"this ALTER TABLE is not supported: {_text(tree)}")
    for option in options:
        warn(f"it is left out: {_text(option)}")
    for action in actions:
        change.take(action)
    change.commit()


class TableChange:
    """The changes of a table that a statement makes, one after another, all or none."""

    def __init__(self, db: Database, source: Source, ignore_constraints: bool, warn: Warn):
        self._db, self._old, self._source = db, source, source
        self._ignore, self._warn = ignore_constraints, warn
        self._before = declare.saved(db.store, source.number)
        self._declared = {column.name: column for column in self._before}
        self._alterations: list[Alteration] = []
        self._misfits: list[tuple[str, str]] = []  # a column as it was, and what no row may be

    def take(self, action: exp.Expr) -> None:
        """One more change, over those before."""
        match action:
            case exp.AddConstraint():
                for part in action.expressions:
                    declare.constraint(part, self._ignore, self._warn)
            case exp.RenameIndex():
                self._warn(f"there are no secondary indexes: {_text(action)}")
            case exp.Drop() if str(action.args.get("kind")).upper() in _NO_COLUMNS:
                self._warn(f"it was not kept: {_text(action)}")
            case exp.ColumnDef():
                self._add(action)
            case exp.Drop() if str(action.args.get("kind")).upper() == "COLUMN":
                for column in action.args.get("tables") or [action.this]:
                    self._drop(column.name.lower(), bool(action.args.get("exists")))
            case exp.RenameColumn():
                self._rename(action.this.name.lower(), action.args["to"].name.lower())
            case exp.AlterColumn() if action.args.get("drop"):
                self._set_default(action.this.name.lower(), None)
            case exp.AlterColumn() if action.args.get("default") is not None:
                name = action.this.name.lower()
                self._set_default(name, declare.default_of(action.args["default"], name))
            case exp.ModifyColumn():
                self._modify(action)
            case exp.AlterRename():
                self._do(RenameTable(action.this.name.lower()))
            case _:
                raise unsupported(
                    f"this change of a table is not supported: {_text(action)}. Columns can be "
                    "added, dropped, renamed and given a wider type or another DEFAULT"
                )

    def commit(self) -> None:
        """Make the changes."""
        self._check_rows()
        store, number = self._db.store, self._old.number
        known = {column.name for column in self._before}
        after = tuple(c for c in self._declared.values() if c.name in self._source.schema)
        both = (*self._before, *(column for column in after if column.name not in known))
        declare.save_again(store, number, self._before, both)
        if self._alterations:
            wanted = AlterTable(self._old.table, tuple(self._alterations))
            try:
                alter_table(self._db.catalog, wanted, self._resolve)
            except ViewkeepError:
                declare.save_again(store, number, both, self._before)
                raise
        declare.save_again(store, number, both, after)

    def _resolve(self, name: str) -> Source | View:
        plan = self._db.catalog.current()
        found = plan.tables.get(name) or plan.views.get(name)
        if found is None:
            raise UnknownName(f"no table or view is called {name}")
        return found

    def _do(self, alteration: Alteration) -> None:
        self._source = altered(self._source, alteration)
        self._alterations.append(alteration)

    def _declared_of(self, name: str) -> Declared:
        if name not in self._source.schema:
            raise Fault(1054, "42S22", f"Unknown column '{name}' in '{self._old.table}'")
        return self._declared.get(name) or declare.undeclared(self._source, name)

    def _column(self, part: exp.ColumnDef) -> tuple[Declared, DataType]:
        key: list[str] = []
        found, type = declare.column_of(part, key, self._ignore, self._warn)
        if key:
            raise unsupported(
                f"the PRIMARY KEY of {self._old.table} cannot be changed: {_text(part)}. Create "
                "another table, and INSERT INTO it ... SELECT"
            )
        if part.args.get("position") is not None:
            self._warn(f"a column keeps its place, and a new one comes last: {_text(part)}")
        return found, type

    def _add(self, part: exp.ColumnDef) -> None:
        column, type = self._column(part)
        if column.name in self._source.schema:
            if part.args.get("exists"):
                return
            raise Fault(1060, "42S21", f"Duplicate column name '{column.name}'")
        if column.automatic:
            raise Fault(
                1075, "42000", "AUTO_INCREMENT is for one integer column that is the primary key"
            )
        value = self._first_value(column, type)
        self._do(AddColumn(Column(column.name, type), value))
        if value is not None and column.default in (None, NOW):
            self._do(SetDefault(column.name, None))  # it is for the rows that are there
        self._declared[column.name] = column

    def _first_value(self, column: Declared, type: DataType) -> Scalar:
        """What the rows that are there have in a new column."""
        if column.default == NOW:
            now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
            if type.name not in ("TIMESTAMP", "DATE"):
                raise Fault(1067, "42000", f"Invalid default value for '{column.name}'")
            return now.date() if type.name == "DATE" else now
        if column.default is not None:
            return _coerced(column, type)
        if column.nullable:
            return None
        if type.is_decimal:
            return Decimal(0).quantize(Decimal(1).scaleb(-type.scale))
        if type.name not in _EMPTY:
            raise Fault(
                1067,
                "42000",
                f"column '{column.name}' is NOT NULL: the rows of {self._old.table} need a DEFAULT",
            )
        return _EMPTY[type.name]

    def _drop(self, name: str, if_exists: bool) -> None:
        if name not in self._source.schema and not if_exists:
            raise Fault(1091, "42000", f"Can't DROP '{name}'; check that column/key exists")
        self._do(DropColumn(name, if_exists))
        self._declared.pop(name, None)

    def _rename(self, name: str, to: str) -> None:
        column = self._declared_of(name)
        if name == to:
            return
        if to in self._source.schema:
            raise Fault(1060, "42S21", f"Duplicate column name '{to}'")
        self._do(RenameColumn(name, to))
        self._declared.pop(name, None)
        self._declared[to] = replace(column, name=to)

    def _set_default(self, name: str, text: str | None) -> None:
        column = replace(self._declared_of(name), default=text)
        self._declared[name] = column
        if name not in self._source.schema.key:
            self._do(SetDefault(name, _kept_default(column, self._source.schema[name].type)))

    def _modify(self, action: exp.ModifyColumn) -> None:
        column, type = self._column(action.this)
        before = action.args.get("rename_from")
        name = column.name if before is None else before.name.lower()
        old = self._declared_of(name)
        is_key = name in self._source.schema.key
        if column.automatic and not old.automatic:
            raise unsupported("AUTO_INCREMENT is declared when a table is created")
        if is_key:
            column = replace(column, nullable=False)
        self._rename(name, column.name)
        if type != self._source.schema[column.name].type:
            self._do(WidenColumn(column.name, type))
        self._misfits += [(name, misfit) for misfit in _misfits(name, old, column)]
        self._declared[column.name] = column
        if not is_key:
            self._do(SetDefault(column.name, _kept_default(column, type)))

    def _check_rows(self) -> None:
        """Fault if a row does not fit what is declared now."""
        known = [(n, misfit) for n, misfit in self._misfits if n in self._old.schema]
        if not known:
            return
        table = self._old.table.replace("`", "``")
        where = " OR ".join(misfit for _, misfit in known)
        found = self._db.sql(f"SELECT 1 AS n FROM `{table}` WHERE {where} LIMIT 1")
        if len(found):
            names = ", ".join(dict.fromkeys(name for name, _ in known))
            raise Fault(1265, "01000", f"Data truncated for column '{names}': some rows do not fit")


def _coerced(column: Declared, type: DataType) -> Scalar:
    try:
        value: Scalar = coerced(column.default, column, type)
    except Fault as fault:
        raise Fault(1067, "42000", f"Invalid default value for '{column.name}'") from fault
    return value


def _kept_default(column: Declared, type: DataType) -> Scalar:
    """The DEFAULT that the table itself keeps: a constant."""
    return None if column.default in (None, NOW) else _coerced(column, type)


def _misfits(name: str, old: Declared, new: Declared) -> list[str]:
    """Which values of a column the new declaration does not have, as SQL."""
    quoted = "`" + name.replace("`", "``") + "`"
    found = []
    if old.nullable and not new.nullable:
        found.append(f"{quoted} IS NULL")
    if new.length is not None and (old.length is None or new.length < old.length):
        function = "octet_length" if "binary" in new.type or "blob" in new.type else "char_length"
        found.append(f"{function}({quoted}) > {new.length}")
    if new.type in RANGES:
        low, high = RANGES[new.type]
        known = RANGES.get(old.type)
        if known is None or low > known[0] or high < known[1]:
            found.append(f"{quoted} NOT BETWEEN {low} AND {high}")
    return found


def _text(tree: exp.Expr) -> str:
    return str(tree.sql("mysql"))[:200]
