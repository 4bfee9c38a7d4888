"""ALTER TABLE as functions of a table: what it is afterwards, and how its older rows are read.

Law: an alteration makes a new layout if it changes what rows hold, and touches no row. The key of a
table stays what it is, since keys are written in its types; its columns may get other names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from viewkeep.codec.tablerows import RowLayout, StoredColumn, TableHistory, is_wider, widened
from viewkeep.errors import CatalogError
from viewkeep.expr import Scalar
from viewkeep.plan.nodes import Source
from viewkeep.types import Column, DataType, Schema

_MOST_VERSIONS = (1 << 16) - 1


@dataclass(frozen=True)
class AddColumn:
    """A column more, which has `default` in the rows that are there and in new ones without it."""

    column: Column
    default: Scalar = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropColumn:
    """A column less; with `cascade`, without the views that need it."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RenameColumn:
    name: str
    to: str


@dataclass(frozen=True)
class WidenColumn:
    """A type that holds every value of the old one."""

    name: str
    type: DataType


@dataclass(frozen=True)
class SetDefault:
    """What new rows have in a column that they are written without; None: NULL."""

    name: str
    value: Scalar


@dataclass(frozen=True)
class RenameTable:
    to: str


Alteration: TypeAlias = (
    AddColumn | DropColumn | RenameColumn | WidenColumn | SetDefault | RenameTable
)


def altered(source: Source, alteration: Alteration) -> Source:
    """The table after an alteration; itself if there is nothing to do."""
    match alteration:
        case AddColumn():
            return _added(source, alteration)
        case DropColumn(name, if_exists):
            if if_exists and name not in source.schema:
                return source
            return _dropped(source, name)
        case RenameColumn(name, to):
            return _renamed(source, name, to)
        case WidenColumn(name, type):
            return _retyped(source, name, type)
        case SetDefault(name, value):
            _column(source, name)
            return replace(source, history=_with_default(source, name, value))
        case RenameTable(to):
            return replace(source, table=to)


def changed_columns(source: Source, alteration: Alteration) -> set[int]:
    """The numbers of the columns that what reads them must not go on reading as before."""
    if not isinstance(alteration, DropColumn | RenameColumn | WidenColumn):
        return set()
    return {number for name, number in source.rows.columns if name == alteration.name}


def _added(source: Source, wanted: AddColumn) -> Source:
    column, schema, history = wanted.column, source.schema, source.rows
    if column.name in schema:
        if wanted.if_not_exists:
            return source
        raise CatalogError(f"table {source.table} has a column {column.name} already")
    number = history.next_number
    history = replace(history, columns=(*history.columns, (column.name, number)))
    if wanted.default is not None:
        history = replace(
            history,
            missing=(*history.missing, (number, wanted.default)),
            defaults=(*history.defaults, (number, wanted.default)),
        )
    stored = StoredColumn(number, column.type)
    return replace(
        source,
        schema=Schema((*schema.columns, column), schema.key),
        history=_with_layout(source, history, lambda columns: (*columns, stored)),
    )


def _dropped(source: Source, name: str) -> Source:
    _refuse_key(source, name, "dropped")
    schema, history = source.schema, source.rows
    number = source.number_of(name)
    history = replace(
        history,
        columns=tuple((n, known) for n, known in history.columns if known != number),
        missing=tuple(item for item in history.missing if item[0] != number),
        defaults=tuple(item for item in history.defaults if item[0] != number),
    )
    return replace(
        source,
        schema=Schema(tuple(c for c in schema.columns if c.name != name), schema.key),
        history=_with_layout(
            source, history, lambda columns: tuple(c for c in columns if c.number != number)
        ),
    )


def _renamed(source: Source, name: str, to: str) -> Source:
    _column(source, name)
    if to in source.schema:
        raise CatalogError(f"table {source.table} has a column {to} already")
    columns = tuple(
        replace(column, name=to) if column.name == name else column
        for column in source.schema.columns
    )
    key = tuple(to if part == name else part for part in source.schema.key)
    history = source.rows
    numbered = tuple((to if n == name else n, number) for n, number in history.columns)
    return replace(source, schema=Schema(columns, key), history=replace(history, columns=numbered))


def _retyped(source: Source, name: str, type: DataType) -> Source:
    old = _column(source, name).type
    if old == type:
        return source
    _refuse_key(source, name, "given another type")
    if not is_wider(old, type):
        raise CatalogError(
            f"column {name} is {old}, and {type} does not hold all of its values; add a column, "
            f"UPDATE it, and drop this one"
        )
    number, history = source.number_of(name), source.rows

    def wide(values: tuple[tuple[int, Scalar], ...]) -> tuple[tuple[int, Scalar], ...]:
        return tuple((n, widened(v, old, type) if n == number else v) for n, v in values)

    history = replace(history, missing=wide(history.missing), defaults=wide(history.defaults))
    columns = tuple(
        replace(column, type=type) if column.name == name else column
        for column in source.schema.columns
    )
    return replace(
        source,
        schema=Schema(columns, source.schema.key),
        history=_with_layout(
            source,
            history,
            lambda stored: tuple(
                replace(c, type=type) if c.number == number else c for c in stored
            ),
        ),
    )


def _with_default(source: Source, name: str, value: Scalar) -> TableHistory:
    number, history = source.number_of(name), source.rows
    others = tuple(item for item in history.defaults if item[0] != number)
    return replace(history, defaults=(*others, *([] if value is None else [(number, value)])))


def _with_layout(
    source: Source,
    history: TableHistory,
    change: Callable[[tuple[StoredColumn, ...]], tuple[StoredColumn, ...]],
) -> TableHistory:
    newest = history.layouts[-1]
    if newest.version == _MOST_VERSIONS:
        raise CatalogError(
            f"the columns of {source.table} were changed too often; make a new table"
        )
    layout = RowLayout(newest.version + 1, change(newest.columns))
    return replace(history, layouts=(*history.layouts, layout))


def _column(source: Source, name: str) -> Column:
    if name not in source.schema:
        raise CatalogError(
            f"table {source.table} has no column {name}; it has {', '.join(source.schema.names)}"
        )
    return source.schema[name]


def _refuse_key(source: Source, name: str, done: str) -> None:
    _column(source, name)
    if name in source.schema.key:
        raise CatalogError(f"{name} is a key column of {source.table}, which cannot be {done}")
