"""A table of a program compared with the one that is there: the changes of ALTER TABLE in between.

Law: after the changes the table has the columns, types, key and defaults of the program. What ALTER
TABLE cannot do is refused with all differences, and so is what loses values, unless that is wanted.
"""

from __future__ import annotations

from viewkeep.access.definitions import defaults_of
from viewkeep.codec.tablerows import is_wider
from viewkeep.errors import CatalogError
from viewkeep.plan.alterations import (
    AddColumn,
    Alteration,
    DropColumn,
    SetDefault,
    WidenColumn,
    altered,
)
from viewkeep.plan.nodes import CellSource, Source
from viewkeep.sql.statements.nodes import CreateTable


def table_changes(
    known: Source, wanted: CreateTable, *, drop_columns: bool = False
) -> tuple[Alteration, ...]:
    """What makes the table that is there the one that a program has."""
    here, there = known.schema, wanted.schema
    if here == there and defaults_of(known) == dict(wanted.defaults):
        return ()
    if isinstance(known, CellSource):
        raise _refused(known, wanted, "its columns are the store's own")
    gone = [name for name in here.names if name not in there]
    new = [column for column in there.columns if column.name not in here]
    if here.key != there.key:
        raise _refused(known, wanted, "a key cannot be changed: make another table")
    for column in there.columns:
        if column.name in here and here[column.name].type != column.type:
            if column.name in here.key:
                raise _refused(known, wanted, "the types of a key cannot be changed")
            if not is_wider(here[column.name].type, column.type):
                raise _refused(
                    known, wanted, f"{column.type} does not hold all values of {column.name}"
                )
    if [*(n for n in here.names if n in there), *(c.name for c in new)] != list(there.names):
        raise _refused(known, wanted, "ALTER TABLE adds columns at the end and moves none")
    if gone and not drop_columns:
        raise _refused(
            known, wanted, f"--prune drops {', '.join(gone)}, with the values in all rows"
        )
    return (
        *(DropColumn(name) for name in gone),
        *(
            WidenColumn(column.name, column.type)
            for column in there.columns
            if column.name in here and here[column.name].type != column.type
        ),
        *(AddColumn(column, dict(wanted.defaults).get(column.name)) for column in new),
        *_defaults(known, wanted),
    )


def told(alterations: tuple[Alteration, ...]) -> str:
    """The changes in words."""
    parts = []
    for alteration in alterations:
        match alteration:
            case DropColumn(name):
                parts.append(f"drops {name} with its values")
            case WidenColumn(name, type):
                parts.append(f"{name} becomes {type}")
            case AddColumn(column, None):
                parts.append(f"adds {column.name} {column.type}")
            case AddColumn(column, value):
                parts.append(f"adds {column.name} {column.type}, {value!r} in all rows")
            case SetDefault(name, None):
                parts.append(f"{name} has no default")
            case SetDefault(name, value):
                parts.append(f"the default of {name} becomes {value!r}")
    return "; ".join(parts)


def _defaults(known: Source, wanted: CreateTable) -> list[Alteration]:
    """The defaults of columns that stay, where they change."""
    given = dict(wanted.defaults)
    made: list[Alteration] = []
    for name in known.schema.names:
        if name not in wanted.schema or name in known.schema.key:
            continue
        old, new = known.schema[name].type, wanted.schema[name].type
        kept = altered(known, WidenColumn(name, new)) if old != new else known
        if defaults_of(kept).get(name) != given.get(name):
            made.append(SetDefault(name, given.get(name)))
    return made


def _refused(known: Source, wanted: CreateTable, why: str) -> CatalogError:
    return CatalogError(
        f"table {known.table} is another one in the program: {_differ(known, wanted)} ({why})"
    )


def _differ(known: Source, wanted: CreateTable) -> str:
    """How a table's columns differ from those of a program."""
    here = {column.name: str(column.type) for column in known.schema.columns}
    there = {column.name: str(column.type) for column in wanted.schema.columns}
    parts = [f"it adds {name} {type}" for name, type in there.items() if name not in here]
    parts += [f"it lacks {name}" for name in here if name not in there]
    parts += [
        f"{name} is {here[name]} here and {type} there"
        for name, type in there.items()
        if here.get(name, type) != type
    ]
    if known.schema.key != wanted.schema.key:
        parts.append(
            f"the key is ({', '.join(known.schema.key)}) here and "
            f"({', '.join(wanted.schema.key)}) there"
        )
    given, wanted_defaults = defaults_of(known), dict(wanted.defaults)
    parts += [
        f"the default of {name} is {given.get(name)!r} here and {wanted_defaults.get(name)!r} there"
        for name in here
        if name in there and given.get(name) != wanted_defaults.get(name)
    ]
    return "; ".join(parts) or "the columns have another order"
