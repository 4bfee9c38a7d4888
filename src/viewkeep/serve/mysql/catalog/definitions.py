"""CREATE, DROP and ALTER: MySQL's statements about tables and views, as viewkeep's.

Law: a statement is done whole or refused; what is left out of it is a warning that the client can
ask for.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from viewkeep.access.sessions import Session
from viewkeep.database import Database
from viewkeep.serve.mysql.catalog import declare
from viewkeep.serve.mysql.catalog.alter import alter, renaming
from viewkeep.serve.mysql.dialect.rewrite import Surroundings, localise, parse, rewrite, spark_sql
from viewkeep.serve.mysql.faults import DATABASE_NAME, unsupported
from viewkeep.serve.mysql.literals import SplitStatement

Warn = Callable[[str], None]
_VIEW_PARTS = ("this", "kind", "expression", "exists", "replace")


def define(
    db: Database,
    session: Session,
    statement: SplitStatement,
    around: Surroundings,
    ignore_constraints: bool,
    warn: Warn,
) -> None:
    """Run a CREATE, DROP, ALTER, RENAME or TRUNCATE."""
    if statement.words[:2] == ["RENAME", "TABLE"]:
        statement = renaming(statement)
    tree = parse(statement)
    if isinstance(tree, exp.Create):
        _create(db, session, tree, around, ignore_constraints, warn)
    elif isinstance(tree, exp.Drop):
        _drop(db, session, tree, around, warn)
    elif isinstance(tree, exp.Alter):
        localise(tree, around)
        alter(db, tree, ignore_constraints, warn)
    else:
        raise unsupported(f"this statement is not supported: {statement.text[:80]}")


def _create(
    db: Database,
    session: Session,
    tree: exp.Create,
    around: Surroundings,
    ignore_constraints: bool,
    warn: Warn,
) -> None:
    kind = str(tree.args.get("kind") or "").upper()
    if kind in ("DATABASE", "SCHEMA"):
        if tree.this.name.lower() == DATABASE_NAME and tree.args.get("exists"):
            return
        raise unsupported(f"there is one database, {DATABASE_NAME}")
    if kind == "INDEX":
        text = tree.sql("mysql")
        if tree.args.get("unique") and not ignore_constraints:
            raise unsupported(
                f"only the primary key is unique: {text}. Leave it out, or SET "
                "viewkeep_constraints = 'ignore' to have such clauses left out with a warning"
            )
        warn(f"there are no secondary indexes, a view keeps rows in another order: {text}")
        return
    localise(tree, around)
    if kind == "TABLE":
        table = declare.table_of(tree, ignore_constraints, warn)
        if table.if_not_exists and table.name in db.catalog.current().tables:
            warn(f"Table '{table.name}' already exists")
            return
        session.sql(table.sql)
        source = db.catalog.current().tables.get(table.name)
        if source is not None:
            declare.save(db.store, source.number, table.columns)
    elif kind == "VIEW":
        for part in list(tree.args):
            if part not in _VIEW_PARTS:
                tree.set(part, None)
        session.sql(spark_sql(rewrite(tree, around)))
    else:
        raise unsupported(f"CREATE {kind} is not taken")


def _drop(db: Database, session: Session, tree: exp.Drop, around: Surroundings, warn: Warn) -> None:
    kind = str(tree.args.get("kind") or "").upper()
    if kind == "INDEX":
        warn("there are no secondary indexes")
        return
    if kind not in ("TABLE", "VIEW"):
        raise unsupported(f"DROP {kind} is not taken")
    localise(tree, around)
    exists = "IF EXISTS " if tree.args.get("exists") else ""
    targets = tree.args.get("tables") or tree.args.get("expressions") or []
    names = [table.name.lower() for table in ([tree.this] if tree.this else []) + list(targets)]
    for name in dict.fromkeys(names):
        quoted = name.replace("`", "``")
        source = db.catalog.current().tables.get(name)
        session.sql(f"DROP {kind} {exists}`{quoted}`")
        if source is not None:
            declare.forget(db.store, source.number)
