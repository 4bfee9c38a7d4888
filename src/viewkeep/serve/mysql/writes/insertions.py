"""INSERT and REPLACE with VALUES: which rows they name, read without parsing where they are plain.

Law: the rows are the constants as they were written, one list for each row; a place may hold
DEFAULT instead. What does not fit this form (a SELECT, RETURNING) is not an insertion of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from sqlglot import exp

from viewkeep.serve.mysql.dialect.rewrite import Surroundings, localise, parse, settle
from viewkeep.serve.mysql.faults import DATABASE_NAME, Fault, no_database, syntax, unsupported
from viewkeep.serve.mysql.literals import SplitStatement

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_HEAD = re.compile(
    rf"(?P<verb>INSERT|REPLACE)\s+(?P<how>(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\s+)*)"
    rf"(?:INTO\s+)?(?:(?P<database>{_NAME})\s*\.\s*)?(?P<table>{_NAME})\s*"
    rf"(?:\((?P<columns>[^()\0]*)\)\s*)?VALUES?\s*(?=\()",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*(?:([(),])|([-+]?)\0.|(NULL|TRUE|FALSE|DEFAULT)\b)", re.IGNORECASE)
_WORDS = {"NULL": None, "TRUE": True, "FALSE": False}


class _Default(Enum):
    VALUE = "DEFAULT"


DEFAULT: Final = _Default.VALUE


@dataclass(frozen=True)
class Insertion:
    """Rows for a table. `columns` is None for all of them in their order.

    `updates` are the assignments of ON DUPLICATE KEY UPDATE; `alias` is what the new row is called
    in them.
    """

    table: str
    columns: tuple[str, ...] | None
    rows: Sequence[Sequence[Any]]
    ignore: bool = False
    replace: bool = False
    updates: tuple[exp.EQ, ...] = ()
    alias: str = ""


Evaluate = Callable[[list[exp.Expr]], list[Any]]


def insertion_of(
    statement: SplitStatement, around: Surroundings, evaluate: Evaluate, check: Callable[[], None]
) -> Insertion | None:
    """The insertion that a statement is; None if its rows come from a SELECT.

    `evaluate` gives the values of expressions that are no constants. One that has such must be
    parsed; `check` refuses it if it is too long for that.
    """
    plain = _plain(statement)
    if plain is not None:
        return plain
    check()
    tree = parse(_as_insert(statement))
    if not isinstance(tree, exp.Insert):
        raise syntax("this INSERT was not understood")
    localise(tree, around)
    if tree.args.get("returning"):
        raise unsupported("RETURNING is not taken; LAST_INSERT_ID() is the number given out")
    if not isinstance(tree.expression, exp.Values):
        return None
    return _parsed(tree, statement.words[0] == "REPLACE", around, evaluate)


def _plain(statement: SplitStatement) -> Insertion | None:
    """An insertion of constants alone, read off the shape."""
    shape = statement.shape
    head = _HEAD.match(shape)
    if head is None:
        return None
    if head["database"] is not None and _bare(head["database"]) != DATABASE_NAME:
        raise no_database(_bare(head["database"]))
    columns = None
    if head["columns"] is not None:
        names = head["columns"].strip()
        columns = tuple(_bare(name) for name in names.split(",")) if names else ()
    rows = _rows(shape, head.end(), statement)
    if rows is None:
        return None
    return Insertion(
        _bare(head["table"]),
        columns,
        rows,
        ignore="IGNORE" in head["how"].upper(),
        replace=head["verb"].upper() == "REPLACE",
    )


def _rows(shape: str, at: int, statement: SplitStatement) -> list[list[Any]] | None:
    # Constants before VALUES there are none, so those of the rows are all of them.
    constants = iter(statement.values)
    rows: list[list[Any]] = []
    row: list[Any] | None = None
    due = "("  # what must come next: a row, a value, or a separator
    match_item = _ITEM.match
    end = len(shape)
    while at < end:
        match = match_item(shape, at)
        if match is None:
            return None
        at = match.end()
        sign = match[1]
        if sign == "(" and due == "(":
            row, due = [], "value"
        elif sign == ")" and row is not None and (due == "," or not row):
            rows.append(row)
            row, due = None, "row ,"
        elif sign == "," and due == ",":
            due = "value"
        elif sign == "," and due == "row ,":
            due = "("
        elif sign is None and row is not None and due == "value":
            if match[3] is not None:
                word = match[3].upper()
                row.append(DEFAULT if word == "DEFAULT" else _WORDS[word])
            else:
                value = next(constants)
                row.append(_negated(value) if match[2] == "-" else value)
            due = ","
        else:
            return None
    return rows if due == "row ," else None


def _negated(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        raise syntax("a minus stands before a text")
    return -value


def _parsed(tree: exp.Insert, replace: bool, around: Surroundings, evaluate: Evaluate) -> Insertion:
    target = tree.this
    columns = None
    if isinstance(target, exp.Schema):
        columns = tuple(column.name.lower() for column in target.expressions)
        target = target.this
    rows: list[list[Any]] = []
    others: list[tuple[int, int, exp.Expr]] = []
    for row in tree.expression.expressions:
        values: list[Any] = []
        for node in row.expressions if isinstance(row, exp.Tuple) else [row]:
            known, value = _constant(node)
            if not known:
                others.append((len(rows), len(values), settle(node.copy(), around)))
            values.append(value)
        rows.append(values)
    for (line, place, _), value in zip(
        others, evaluate([node for _, _, node in others]), strict=True
    ):
        rows[line][place] = value
    conflict = tree.args.get("conflict")
    return Insertion(
        target.name.lower(),
        columns,
        rows,
        ignore=bool(tree.args.get("ignore")),
        replace=replace,
        updates=() if conflict is None else tuple(conflict.expressions),
        alias=tree.expression.alias.lower(),
    )


def _constant(node: exp.Expr) -> tuple[bool, Any]:
    """Whether a node is plain, and its value."""
    if isinstance(node, exp.Null):
        return True, None
    if isinstance(node, exp.Boolean):
        return True, bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return True, str(node.this)
    if isinstance(node, exp.Literal) and node.name.isdecimal():
        return True, int(node.name)
    if isinstance(node, exp.HexString):
        return True, bytes.fromhex(node.name)
    if isinstance(node, exp.Var | exp.Column) and node.name.upper() == "DEFAULT":
        return True, DEFAULT
    if isinstance(node, exp.Column):
        raise Fault(1054, "42S22", f"Unknown column '{node.name}' in 'VALUES'")
    return False, None


def _as_insert(statement: SplitStatement) -> SplitStatement:
    """REPLACE as INSERT, which is what the parser knows."""
    if statement.words[0] != "REPLACE":
        return statement
    return SplitStatement("INSERT" + statement.shape[len("REPLACE") :], statement.values)


def _bare(name: str) -> str:
    name = name.strip()
    if name.startswith("`"):
        name = name[1:-1].replace("``", "`")
    return name.lower()
