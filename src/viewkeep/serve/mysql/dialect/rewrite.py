"""MySQL's statements as viewkeep's own SQL, by sqlglot and the rules below.

Law: what MySQL means and Spark SQL writes otherwise is rewritten, or refused; a statement that both
read differently is never passed on as it is. Constants in places where another constant cannot
change the rewriting stay open, so that one translation serves all statements of a shape.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.dialects import MySQL
from sqlglot.errors import SqlglotError, UnsupportedError

from viewkeep.serve.mysql.faults import DATABASE_NAME, Fault, no_database, syntax, unsupported
from viewkeep.serve.mysql.literals import Constant, SplitStatement, mysql_text
from viewkeep.types import BOOLEAN, Schema

SYSTEM_SCHEMAS = frozenset({"information_schema", "performance_schema", "mysql", "sys"})
PLACE = "vk"  # the names of constants that stay open: :vk0, :vk1, ...

_LONG = 10_000
_NAME_LENGTH = 64
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_OPEN = (*_COMPARISONS, exp.In, exp.Between, exp.Limit, exp.Offset, exp.Like)
_MODIFIERS = ("operation_modifiers", "hint", "locks")


@dataclass
class Surroundings:
    """What a statement is read in: the tables, the database in use, functions of the session."""

    schema: Callable[[str], Schema | None]
    database: str = DATABASE_NAME
    variable: Callable[[str], object] = lambda name: None
    user_variable: Callable[[str], object] = lambda name: None
    functions: dict[str, Callable[[], object]] = field(default_factory=dict)


def parse(statement: SplitStatement) -> exp.Expr:
    """The tree of a statement with its constants in it; long ones are not gone through again."""
    if not any(isinstance(value, str | bytes) and len(value) > _LONG for value in statement.values):
        return _parsed(statement.text)
    return close_all(parse_open(statement), statement.values)


def parse_open(statement: SplitStatement) -> exp.Expr:
    """The tree of a statement with its constants as places, where that parses; else as `parse`."""
    try:
        return _parsed(statement.written(lambda place, _: f":{PLACE}{place}"))
    except Fault:
        return _parsed(statement.text)


def close_all(tree: exp.Expr, values: tuple[Constant, ...]) -> exp.Expr:
    """The tree with all its constants put in."""
    return _closed(tree, values, lambda place: True)


def _parsed(text: str) -> exp.Expr:
    # sqlglot warns of what it keeps as a plain command; here that is refused by its kind.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        trees = [tree for tree in MySQL().parse(text) if tree is not None]
    except SqlglotError as error:
        detail = getattr(error, "errors", None) or [{}]
        near = str(detail[0].get("highlight") or "").strip()
        reason = str(detail[0].get("description") or error).splitlines()[0].rstrip(". ")
        where = f" near {near!r}" if near else ""
        raise syntax(f"syntax error{where}: {reason}") from error
    except RecursionError as error:
        raise syntax("the statement is nested too deeply") from error
    except IndexError as error:  # sqlglot reads past the end of SHOW CREATE
        raise syntax("the statement ends too early") from error
    if len(trees) != 1:
        raise syntax("one statement is needed here")
    tree: exp.Expr = trees[0]
    return tree


def close(tree: exp.Expr, values: tuple[Constant, ...], around: Surroundings) -> exp.Expr:
    """The tree with the constants put in wherever they may matter for its rewriting."""
    tables = schemas_of(tree, around)
    return _closed(tree, values, lambda place: not _stays_open(place, tables))


def _closed(
    tree: exp.Expr, values: tuple[Constant, ...], wanted: Callable[[exp.Expr], bool]
) -> exp.Expr:
    for place in list(tree.find_all(exp.Placeholder)):
        name = place.name
        if name.startswith(PLACE) and wanted(place):
            made = constant_tree(values[int(name[len(PLACE) :])])
            if place is tree:
                return made
            place.replace(made)
    return tree


def _stays_open(place: exp.Expr, tables: dict[str, Schema]) -> bool:
    top = place.parent
    while isinstance(top, exp.Neg | exp.Paren | exp.Tuple):
        top = top.parent
    if not isinstance(top, _OPEN):
        return False
    if isinstance(top, exp.Limit | exp.Offset):
        return True
    if isinstance(top.parent, exp.Update) and top.expression is place:
        return True  # it becomes a value of the column when it is run
    sides = (top.this, top.args.get("expression"))
    for side in sides:
        # 1 and 0 are TRUE and FALSE to a BOOLEAN, and inside a select list they name a column.
        if isinstance(side, exp.Column) and is_boolean(side, tables):
            return False
    return any(isinstance(side, exp.Column) for side in sides) and not _selected(top)


def _selected(tree: exp.Expr) -> bool:
    while tree.parent is not None:
        if isinstance(tree.parent, exp.Select):
            return tree.arg_key == "expressions"
        tree = tree.parent
    return False


def constant_tree(value: Any) -> exp.Expr:
    """A Python value as a constant of MySQL."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, bytes):
        return exp.HexString(this=value.hex())
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, dt.datetime | dt.date):
        shown = value.isoformat(" ") if isinstance(value, dt.datetime) else value.isoformat()
        kind = "TIMESTAMP" if isinstance(value, dt.datetime) else "DATE"
        return exp.Cast(this=exp.Literal.string(shown), to=exp.DataType.build(kind))
    if value < 0:
        return exp.Neg(this=exp.Literal.number(mysql_text(-value)))
    return exp.Literal.number(mysql_text(value))


def schemas_of(tree: exp.Expr, around: Surroundings) -> dict[str, Schema]:
    """The schemas of the tables that a statement names, by what it calls them."""
    found: dict[str, Schema] = {}
    for table in tree.find_all(exp.Table):
        schema = around.schema(table.name.lower())
        if schema is not None:
            found[(table.alias or table.name).lower()] = schema
    return found


def is_boolean(column: exp.Column, tables: dict[str, Schema]) -> bool:
    """Whether a column is BOOLEAN, as far as the tables say."""
    name = column.name.lower()
    if column.table:
        schema = tables.get(column.table.lower())
        return schema is not None and name in schema and schema[name].type == BOOLEAN
    return any(name in schema and schema[name].type == BOOLEAN for schema in tables.values())


def is_system(tree: exp.Expr, around: Surroundings) -> bool:
    """Whether a query reads the server's own tables, or none at all; after `localise`."""
    common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [t for t in tree.find_all(exp.Table) if t.db or t.name.lower() not in common]
    system = [t.db.lower() in SYSTEM_SCHEMAS for t in tables]
    if any(system) and not all(system):
        raise unsupported("a query reads tables of the server or yours, not both")
    return all(system)


def localise(tree: exp.Expr, around: Surroundings) -> None:
    """Take away what names this database; other databases are refused."""
    common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if table.name.lower() == "dual" and not table.db:
            parent = table.parent
            if isinstance(parent, exp.From):
                parent.pop()
            continue
        if not isinstance(table.this, exp.Identifier):
            raise unsupported(f"table functions are not taken: {table.sql('mysql')}")
        table.set("hints", None)  # they are about indexes, which there are none of
        database = table.db.lower()
        if not database and table.name.lower() not in common:
            database = around.database
        if database == DATABASE_NAME:
            table.set("db", None)
        elif database in SYSTEM_SCHEMAS:
            table.set("db", exp.to_identifier(database))
        elif database:
            raise no_database(table.db)
    for column in tree.find_all(exp.Column):
        if column.args.get("db"):
            column.set("db", None)


def settle(tree: exp.Expr, around: Surroundings) -> exp.Expr:
    """Variables and functions of the session as the values that they have now."""

    def settled(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.SessionParameter):
            return constant_tree(around.variable(node.name.lower()))
        if isinstance(node, exp.Parameter):
            return constant_tree(around.user_variable(node.name.lower()))
        function = session_function(node, around)
        return node if function is None else constant_tree(function())

    return tree.transform(settled, copy=False)


def session_function(node: exp.Expr, around: Surroundings) -> Callable[[], object] | None:
    """The function of the session that a node calls, or None."""
    name = _SESSION_FUNCTIONS.get(type(node))
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
    return None if name is None else around.functions.get(name)


_SESSION_FUNCTIONS: dict[type, str] = {
    exp.CurrentSchema: "database",
    exp.CurrentVersion: "version",
    exp.CurrentUser: "user",
    exp.CurrentTimestamp: "now",
    exp.CurrentDate: "curdate",
    exp.UtcTimestamp: "now",
    exp.UtcDate: "curdate",
    exp.ConvertTimezone: "convert_tz",
}


def rewrite(tree: exp.Expr, around: Surroundings) -> exp.Expr:
    """The tree in the words of Spark SQL, where sqlglot does not do it by itself."""
    tables = schemas_of(tree, around)
    for select in tree.find_all(exp.Select):
        for modifier in _MODIFIERS:
            if select.args.get(modifier):
                select.set(modifier, None)
        _complete_group(select, tables)
    return tree.transform(lambda node: _rewritten(node, tables), copy=False)


def _rewritten(node: exp.Expr, tables: dict[str, Schema]) -> exp.Expr:
    if isinstance(node, exp.Length) and node.args.get("binary"):
        return exp.Anonymous(this="OCTET_LENGTH", expressions=[node.this])
    if isinstance(node, exp.Collate):
        return _under_collation(node)
    if isinstance(node, exp.Alias) and isinstance(node.args.get("alias"), exp.Literal):
        node.set("alias", exp.to_identifier(node.alias, quoted=True))  # a name in single quotes
    if isinstance(node, exp.Like) and _is_binary_cast(node.expression):
        node.set("expression", node.expression.this)
    if isinstance(node, exp.Cast) and _is_binary_cast(node) and _compared(node):
        return _inner(node)
    if isinstance(node, exp.EQ | exp.NEQ):
        for column, other in ((node.this, node.expression), (node.expression, node.this)):
            if isinstance(column, exp.Column) and is_boolean(column, tables):
                truth = _truth(other)
                if truth is not None:
                    other.replace(truth)
    if isinstance(node, exp.Xor):
        return _xor(node)
    return node


def _is_binary_cast(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.is_type("binary") and not node.to.expressions


def _compared(node: exp.Expr) -> bool:
    return isinstance(node.parent, (*_COMPARISONS, exp.Like, exp.Ordered))


def _under_collation(node: exp.Collate) -> exp.Expr:
    name = node.expression.name.lower()
    if not name.endswith("_bin"):
        raise unsupported(
            f"text is compared byte by byte, so there is no collation {name}; "
            "compare LOWER(x) with a text in lower case"
        )
    return _inner(node)


def _inner(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this
    return inner


def _truth(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Literal) and not node.is_string and node.name in ("0", "1"):
        return exp.Boolean(this=node.name == "1")
    return None


def _xor(node: exp.Xor) -> exp.Expr:
    left, right = (exp.paren(side.copy()) for side in (node.this, node.expression))
    either = exp.Or(this=left, expression=right)
    both = exp.And(this=left.copy(), expression=right.copy())
    return exp.paren(exp.And(this=exp.paren(either), expression=exp.Not(this=exp.paren(both))))


def _complete_group(select: exp.Select, tables: dict[str, Schema]) -> None:
    """Add to GROUP BY what it determines: all columns of a table whose key is grouped by."""
    group = select.args.get("group")
    if group is None or not group.expressions:
        return
    grouped = {_spelt(part) for part in group.expressions if isinstance(part, exp.Column)}
    for column in list(_outside_aggregates(select)):
        if _spelt(column) in grouped or not column.table:
            continue
        schema = tables.get(column.table.lower())
        if schema is None or column.name.lower() not in schema:
            continue
        if all((column.table.lower(), name) in grouped for name in schema.key):
            grouped.add(_spelt(column))
            group.append("expressions", column.copy())


def _outside_aggregates(select: exp.Select) -> Iterator[exp.Column]:
    parts = [*select.expressions, select.args.get("having"), select.args.get("order")]
    for part in parts:
        if part is None:
            continue
        for node in part.walk(prune=lambda node: isinstance(node, exp.AggFunc | exp.Query)):
            if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
                yield node


def _spelt(column: exp.Column) -> tuple[str, str]:
    return column.table.lower(), column.name.lower()


def name_columns(tree: exp.Expr) -> list[str] | None:
    """Give each item of a query a name of its own; what MySQL calls them, None with a `*`."""
    first = tree
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    if not isinstance(first, exp.Select):
        return None
    if any(item.is_star for item in first.expressions):
        return None
    shown, taken, items = [], set(), []
    for item in first.expressions:
        if isinstance(item, exp.Column | exp.Alias):
            name = item.alias_or_name
        else:  # as in MySQL, what has no name is called by its text
            text = item.name if isinstance(item, exp.Literal) else item.sql("mysql")
            name = text[:_NAME_LENGTH]
        shown.append(name)
        own, number = name.lower(), 1
        while own in taken:
            number += 1
            own = f"{name.lower()}_{number}"
        taken.add(own)
        if item.alias_or_name.lower() != own or isinstance(item, exp.Literal):
            bare = item.this if isinstance(item, exp.Alias) else item
            item = exp.alias_(bare, exp.to_identifier(own, quoted=True))
        items.append(item)
    first.set("expressions", items)
    return shown


def spark_sql(tree: exp.Expr) -> str:
    """The text of a rewritten tree in Spark's dialect; what has no words there is refused."""
    try:
        return tree.sql("spark", comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise unsupported(f"not taken: {error}") from error
    except RecursionError as error:
        raise syntax("the statement is nested too deeply") from error
