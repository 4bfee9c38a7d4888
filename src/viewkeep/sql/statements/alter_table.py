"""ALTER TABLE: one statement with one or more changes of a table, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from viewkeep.errors import Unsupported
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
from viewkeep.plan.nodes import Source
from viewkeep.sql.expressions.type_names import type_of
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.scope import Resolve
from viewkeep.sql.statements.create_table import column_of, default_of
from viewkeep.sql.statements.definitions import name_of
from viewkeep.sql.statements.nodes import AlterTable

_HINT = (
    "Write ADD COLUMN, DROP COLUMN, RENAME COLUMN a TO b, RENAME TO t, or ALTER COLUMN with TYPE, "
    "SET DEFAULT or DROP DEFAULT"
)


def alter_table(tree: exp.Alter, resolve: Resolve) -> AlterTable:
    """The changes that a statement asks for."""
    if str(tree.args.get("kind") or "").upper() != "TABLE":
        raise Unsupported("ALTER is for tables", fragment=text_of(tree), hint=_HINT)
    name = name_of(tree.this)
    source = resolve(name)
    if not isinstance(source, Source):
        hint = "Replace it: CREATE OR REPLACE VIEW"
        raise Unsupported(f"{name} is a view, and ALTER is for tables", hint=hint)
    made, known = list[Alteration](), source
    for action in tree.args.get("actions") or ():
        for alteration in _alterations(action, known):
            made.append(alteration)
            known = altered(known, alteration)
    return AlterTable(name, tuple(made))


def _alterations(action: exp.Expr, source: Source) -> Iterator[Alteration]:
    match action:
        case exp.Schema():
            for part in action.expressions:
                yield _added(part)
        case exp.ColumnDef():
            yield _added(action)
        case exp.Drop() if str(action.args.get("kind") or "").upper() == "COLUMN":
            exists, cascade = bool(action.args.get("exists")), bool(action.args.get("cascade"))
            for column in action.args.get("tables") or [action.this]:
                yield DropColumn(column.name.lower(), exists, cascade)
        case exp.RenameColumn():
            yield RenameColumn(action.this.name.lower(), action.args["to"].name.lower())
        case exp.AlterRename():
            yield RenameTable(name_of(action.this))
        case exp.AlterColumn():
            yield _changed(action, source)
        case _:
            raise Unsupported("this change is not taken", fragment=text_of(action), hint=_HINT)


def _added(tree: exp.Expr) -> AddColumn:
    if not isinstance(tree, exp.ColumnDef):
        raise Unsupported("a column is added", fragment=text_of(tree), hint=_HINT)
    column, default, is_key = column_of(tree)
    if is_key:
        raise Unsupported("a table's key stays what it is", fragment=text_of(tree))
    if not column.nullable:
        raise Unsupported("only key columns are NOT NULL", fragment=text_of(tree))
    return AddColumn(column, default, bool(tree.args.get("exists")))


def _changed(action: exp.AlterColumn, source: Source) -> Alteration:
    name = action.this.name.lower()
    given = {part for part, value in action.args.items() if value} - {"this"}
    if given == {"dtype"}:
        return WidenColumn(name, type_of(action.args["dtype"]))
    if given == {"drop"}:
        return SetDefault(name, None)
    if given == {"default"} and name in source.schema:
        return SetDefault(name, default_of(action.args["default"], source.schema[name]))
    if given == {"default"}:
        return SetDefault(name, None)  # of a column that is not there: refused with the others
    raise Unsupported("this change is not taken", fragment=text_of(action), hint=_HINT)
