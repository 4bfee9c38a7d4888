"""Statements: syntax trees to values of `sql.statements.nodes`, resolved, typed, or refused.

Law: every part of a statement is either understood or refused with its text, the reason and what
would work. Names are case-insensitive and kept in lower case.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeep.errors import SqlSyntaxError, Unsupported
from viewkeep.plan.arrays import refuse_arrays
from viewkeep.plan.share_groups import NOTHING, Existing
from viewkeep.sql.parse.limits import too_nested
from viewkeep.sql.parse.syntax import parse, text_of
from viewkeep.sql.parse.validate import refuse_rest
from viewkeep.sql.relations.scope import Resolve
from viewkeep.sql.select.query import lower_query
from viewkeep.sql.statements.alter_table import alter_table
from viewkeep.sql.statements.definitions import create, drop, make_view, name_of
from viewkeep.sql.statements.nodes import (
    CreateView,
    Describe,
    Explain,
    Select,
    ShowCreate,
    ShowTables,
    Statement,
)
from viewkeep.sql.statements.writes import delete, insert, update

__all__ = ["analyse", "make_view"]


def analyse(tree: exp.Expr, resolve: Resolve, existing: Existing = NOTHING) -> Statement:
    """The statement that a syntax tree stands for; `resolve` knows the tables and views.

    `existing` are the joins and Aggregates that are kept already, which a new view prefers.
    """
    try:
        refuse_rest(tree)
        statement = _analyse(tree, resolve, existing)
    except RecursionError as error:
        raise too_nested() from error
    if isinstance(statement, CreateView):
        refuse_arrays(statement.view.node)
    elif isinstance(statement, Select):
        refuse_arrays(statement.query.node, [part.name for part in statement.query.order])
    return statement


def _analyse(tree: exp.Expr, resolve: Resolve, existing: Existing) -> Statement:
    if isinstance(tree, exp.Query):
        return Select(lower_query(tree, resolve))
    if isinstance(tree, exp.Create):
        return create(tree, resolve, existing)
    if isinstance(tree, exp.Drop):
        return drop(tree)
    if isinstance(tree, exp.Alter):
        return alter_table(tree, resolve)
    if isinstance(tree, exp.Insert):
        return insert(tree, resolve)
    if isinstance(tree, exp.Update):
        return update(tree, resolve)
    if isinstance(tree, exp.Delete):
        return delete(tree, resolve)
    if isinstance(tree, exp.Describe):
        return _describe(tree)
    if isinstance(tree, exp.Command):
        return _command(tree, resolve, existing)
    raise _not_taken(type(tree).__name__, text_of(tree))


def _describe(tree: exp.Describe) -> Describe:
    kind = str(tree.args.get("kind") or "TABLE").upper()
    if kind != "TABLE":
        raise Unsupported("DESCRIBE takes a table or view", fragment=text_of(tree))
    return Describe(name_of(tree.this))


def _command(tree: exp.Command, resolve: Resolve, existing: Existing) -> Statement:
    word = str(tree.this).upper()
    rest = tree.expression.name if isinstance(tree.expression, exp.Expr) else ""
    first = next(iter(rest.split(None, 1)), "").upper()
    if word == "EXPLAIN":
        if first in ("EXTENDED", "FORMATTED", "CODEGEN", "COST", "ANALYZE"):
            raise Unsupported("EXPLAIN has one form", fragment=first, hint="Leave it out")
        if first == "EXPLAIN":
            raise Unsupported("EXPLAIN explains a view or a query", hint="Write it once")
        inner = parse(rest)
        if len(inner) != 1:
            raise SqlSyntaxError("EXPLAIN takes one statement", fragment=rest or None)
        return Explain(analyse(inner[0], resolve, existing))
    if word == "SHOW" and rest.strip().upper() in ("TABLES", "VIEWS"):
        return ShowTables(views=rest.strip().upper() == "VIEWS")
    if word == "SHOW" and first == "CREATE":
        return _show_create(rest)
    raise _not_taken(word, f"{word} {rest}".strip())


def _show_create(rest: str) -> ShowCreate:
    words = rest.split(None, 2)
    if len(words) < 3 or words[1].upper() not in ("TABLE", "VIEW", "INDEX"):
        raise SqlSyntaxError(
            "SHOW CREATE needs a kind and a name",
            fragment=f"SHOW {rest}",
            hint="Write SHOW CREATE TABLE name or SHOW CREATE VIEW name",
        )
    (selected,) = parse(f"SELECT * FROM {words[2]}")
    tables = list(selected.find_all(exp.Table))
    if len(tables) != 1 or tables[0].alias or len(selected.args["from_"].this.args) == 0:
        raise SqlSyntaxError("SHOW CREATE takes one name", fragment=words[2])
    return ShowCreate(name_of(tables[0]))


def _not_taken(word: str, text: str) -> Unsupported:
    return Unsupported(
        f"{word} statements are not taken",
        fragment=text,
        hint="docs/sql.md lists the statements that are",
    )
