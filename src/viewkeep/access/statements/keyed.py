"""INSERT of constants, and UPDATE or DELETE by plain conditions, out of a shape and its values.

Law: the statement made is the one that analysis makes of the same text; where a value needs more
than its own type, or is to be refused, None is given and analysis decides.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

from viewkeep.access.statements.lookups import UNFIT, fitting
from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.plan.conditions import conjunction
from viewkeep.sql.statements.nodes import Delete, Insert, Update
from viewkeep.sql.statements.shapes import ChangeShape, Condition, InsertShape, Placeholder
from viewkeep.types import BOOLEAN, DataType, Schema


def insertion(shape: InsertShape, schema: Schema, values: Sequence[Any]) -> Insert | None:
    """INSERT of these values."""
    names = schema.names if shape.columns is None else shape.columns
    types = [schema[name].type for name in names]
    rows = []
    for places in shape.rows:
        row = []
        for place, type_ in zip(places, types, strict=True):
            value = _stored(values, place, type_)
            if value is UNFIT:
                return None
            row.append(value)
        rows.append(tuple(row))
    return Insert(shape.table, tuple(names), tuple(rows), replace=shape.replace)


def change(shape: ChangeShape, schema: Schema, values: Sequence[Any]) -> Update | Delete | None:
    """UPDATE or DELETE with these values."""
    conditions = []
    for condition in shape.conditions:
        made = _condition(condition, schema[condition.column].type, values)
        if made is None:
            return None
        conditions.append(made)
    predicate = conjunction(conditions)
    if not shape.assignments:
        return Delete(shape.table, predicate)
    assignments = []
    for name, place in shape.assignments:
        type_ = schema[name].type
        value = _stored(values, place, type_)
        if value is UNFIT:
            return None
        assignments.append((name, Lit(value, type_)))
    return Update(shape.table, tuple(assignments), predicate)


def _stored(values: Sequence[Any], place: Placeholder | None, type_: DataType) -> Any:
    """A value that a column takes as it stands, NULL included."""
    if place is None:
        return None
    value = values[place.number]
    if value is None:
        return UNFIT if place.negative else None
    if type_.name == "DOUBLE":
        plain = type(value) is float and math.isfinite(value) and not place.negative
        return value + 0.0 if plain else UNFIT
    if type_.name == "TIMESTAMP":
        plain = type(value) is dt.datetime and value.tzinfo is None
        return value if plain and not place.negative else UNFIT
    return fitting(values, place, type_)


def _condition(condition: Condition, type_: DataType, values: Sequence[Any]) -> Expr | None:
    column = Ref(condition.column, type_)
    if condition.place is None:
        return Call(condition.function, (column,), BOOLEAN)
    value = fitting(values, condition.place, type_)
    if value is UNFIT:
        return None
    return Call(condition.function, (column, Lit(value, type_)), BOOLEAN)
