"""Statements of a few plain shapes, whose numbered places may hold any value.

Law: a shape is found only where every place stands beside a column: compared with it, stored in it,
or as LIMIT. There a constant decides nothing but itself, so one shape serves all its values.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from viewkeep.sql.parse.parameters import place_of

_COMPARED: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@dataclass(frozen=True)
class Placeholder:
    """Where a value comes from: the numbered place, and whether a minus stands before it."""

    number: int
    negative: bool = False


@dataclass(frozen=True)
class Condition:
    """A column compared with a place; `place` is None for IS NULL and IS NOT NULL."""

    column: str
    function: str
    place: Placeholder | None = None


@dataclass(frozen=True)
class LookupShape:
    """SELECT columns FROM relation WHERE conditions, joined by AND."""

    relation: str
    columns: tuple[tuple[str, str], ...] | None  # visible and own name; None: all
    conditions: tuple[Condition, ...]
    limit: Placeholder | None


@dataclass(frozen=True)
class InsertShape:
    """INSERT [OR REPLACE] INTO table [(columns)] VALUES rows of places; None is NULL."""

    table: str
    columns: tuple[str, ...] | None
    rows: tuple[tuple[Placeholder | None, ...], ...]
    replace: bool


@dataclass(frozen=True)
class ChangeShape:
    """UPDATE of columns to places, or without assignments DELETE, by conditions."""

    table: str
    assignments: tuple[tuple[str, Placeholder | None], ...]
    conditions: tuple[Condition, ...]


Shape = LookupShape | InsertShape | ChangeShape


class _Other(Exception):
    """The tree has no such shape."""


def shape_of(tree: exp.Expr) -> Shape | None:
    """The shape of a tree, or None."""
    try:
        if isinstance(tree, exp.Select):
            return _lookup(tree)
        if isinstance(tree, exp.Insert):
            return _rows(tree)
        if isinstance(tree, exp.Update | exp.Delete):
            return _changes(tree)
    except _Other:
        pass
    return None


def _only(tree: exp.Expr, *parts: str) -> None:
    for name, value in tree.args.items():
        if value and name not in parts:
            raise _Other


def _lookup(tree: exp.Select) -> LookupShape:
    _only(tree, "expressions", "from_", "where", "limit", "order")
    if tree.args.get("from_") is None:
        raise _Other
    name, alias = _relation(tree.args["from_"].this)
    order = tree.args.get("order")
    for part in order.expressions if order is not None else ():
        _column(part.this, alias)
    limit = tree.args.get("limit")
    return LookupShape(
        name,
        _items(tree, alias),
        _conditions(tree.args.get("where"), alias),
        None if limit is None else _limit(limit),
    )


def _limit(tree: exp.Expr) -> Placeholder:
    place = _place(tree.expression) if isinstance(tree, exp.Limit) else None
    if place is None or place.negative:
        raise _Other
    return place


def _items(tree: exp.Select, alias: str) -> tuple[tuple[str, str], ...] | None:
    items = tree.expressions
    if len(items) == 1 and isinstance(items[0], exp.Star):
        _only(items[0])
        return None
    found = []
    for item in items:
        named = isinstance(item, exp.Alias)
        column = _column(item.this if named else item, alias)
        found.append((item.alias.lower() if named else column, column))
    return tuple(found)


def _rows(tree: exp.Insert) -> InsertShape:
    _only(tree, "this", "expression", "alternative")
    alternative = str(tree.args.get("alternative") or "").upper()
    target, values = tree.this, tree.args.get("expression")
    if alternative not in ("", "REPLACE") or not isinstance(values, exp.Values):
        raise _Other
    _only(values, "expressions")
    columns = None
    if isinstance(target, exp.Schema):
        _only(target, "this", "expressions")
        if not all(isinstance(column, exp.Identifier) for column in target.expressions):
            raise _Other
        columns = tuple(column.name.lower() for column in target.expressions)
        target = target.this
    name, _ = _relation(target)
    rows = []
    for row in values.expressions:
        if not isinstance(row, exp.Tuple):
            raise _Other
        rows.append(tuple(_value(value) for value in row.expressions))
    return InsertShape(name, columns, tuple(rows), alternative == "REPLACE")


def _changes(tree: exp.Update | exp.Delete) -> ChangeShape:
    _only(tree, "this", "expressions", "where")
    name, alias = _relation(tree.this)
    assignments = []
    for part in tree.expressions:
        if not isinstance(part, exp.EQ):
            raise _Other
        assignments.append((_column(part.this, alias), _value(part.expression)))
    return ChangeShape(name, tuple(assignments), _conditions(tree.args.get("where"), alias))


def _relation(tree: exp.Expr) -> tuple[str, str]:
    """The name of a table and what it is called in the statement."""
    if not isinstance(tree, exp.Table) or not isinstance(tree.this, exp.Identifier):
        raise _Other
    _only(tree, "this", "alias")
    alias = tree.args.get("alias")
    if alias is not None:
        _only(alias, "this")
    return tree.name.lower(), (tree.alias or tree.name).lower()


def _column(tree: exp.Expr, alias: str) -> str:
    if not isinstance(tree, exp.Column) or not isinstance(tree.this, exp.Identifier):
        raise _Other
    _only(tree, "this", "table")
    if tree.table and tree.table.lower() != alias:
        raise _Other
    return tree.name.lower()


def _conditions(where: exp.Expr | None, alias: str) -> tuple[Condition, ...]:
    if where is None:
        raise _Other
    return tuple(_condition(part, alias) for part in _parts(where.this))


def _parts(tree: exp.Expr) -> list[exp.Expr]:
    """The conditions that AND connects, in order."""
    found, waiting = [], [tree]
    while waiting:
        tree = waiting.pop()
        if isinstance(tree, exp.Paren):
            waiting.append(tree.this)
        elif isinstance(tree, exp.And):
            waiting += [tree.expression, tree.this]
        else:
            found.append(tree)
    return found


def _condition(tree: exp.Expr, alias: str) -> Condition:
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        return Condition(_column(tree.this, alias), "is_null")
    if isinstance(tree, exp.Not) and isinstance(tree.this, exp.Is):
        inner = _condition(tree.this, alias)
        return Condition(inner.column, "is_not_null")
    function = _COMPARED.get(type(tree))
    if function is None:
        raise _Other
    place = _place(tree.expression)
    if place is not None:
        return Condition(_column(tree.this, alias), function, place)
    place = _place(tree.this)
    if place is None:
        raise _Other
    return Condition(_column(tree.expression, alias), _MIRRORED.get(function, function), place)


def _value(tree: exp.Expr) -> Placeholder | None:
    """A place, or None for NULL."""
    if isinstance(tree, exp.Null):
        return None
    place = _place(tree)
    if place is None:
        raise _Other
    return place


def _place(tree: exp.Expr) -> Placeholder | None:
    if isinstance(tree, exp.Neg):
        inner = _place(tree.this)
        return None if inner is None or inner.negative else Placeholder(inner.number, True)
    number = place_of(tree)
    return None if number is None else Placeholder(number)
