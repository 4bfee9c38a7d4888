"""Values on their way into a column: as the column's type, unchanged, or refused.

A view may turn what it cannot cast into NULL; a write must not, so nothing is lost silently.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from viewkeep.errors import TypeMismatch, UnknownName
from viewkeep.expr import Expr, Lit, Scalar
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.ops.functions.coercion import decimal_of
from viewkeep.types import BIGINT, DATE, DOUBLE, STRING, TIMESTAMP, Column, DataType

TOO_FINE = re.compile(r"\.\d{6}\d*[1-9]")  # a time of more than microseconds


def stored_value(constant: Expr, column: Column, text: str) -> Scalar:
    """The constant as a value of the column; TypeMismatch if that would change it."""
    if not isinstance(constant, Lit):
        raise UnknownName("a constant is needed here", fragment=text)
    if constant.value is None or constant.type == VOID:
        return None
    if constant.type == column.type:
        return constant.value
    stored = None
    if _may_become(constant.type, column.type):
        stored = evaluate_one(cast_to(constant, column.type), {})
    if stored is None or not _same(constant.value, stored, constant.type):
        raise TypeMismatch(
            f"column {column.name} is {column.type} and cannot hold this {constant.type} as it is",
            fragment=text,
            hint=f"Write CAST(... AS {column.type}) if the nearest value will do"
            if constant.type.is_numeric and column.type.is_numeric
            else None,
        )
    return stored


def assignable(given: DataType, column: DataType) -> bool:
    """Whether a column may be given an expression of a type: whole digits may run out (NULL, as in
    all arithmetic), but nothing is rounded, cut or wrapped, save that a DOUBLE is the nearest one
    to a DECIMAL.
    """
    if given in (column, VOID):
        return True
    if not given.is_numeric or not column.is_numeric:
        return (given, column) == (DATE, TIMESTAMP)
    if column == DOUBLE:
        return given != BIGINT
    if column.is_decimal:
        return given != DOUBLE and decimal_of(given).scale <= column.scale
    return (given.name, column.name) == ("INT", "BIGINT")


def _may_become(given: DataType, wanted: DataType) -> bool:
    if given.is_numeric:
        return wanted.is_numeric
    if given == STRING:
        return wanted in (DATE, TIMESTAMP)
    return (given, wanted) == (DATE, TIMESTAMP)


def _same(value: Scalar, stored: Scalar, given: DataType) -> bool:
    if isinstance(value, str):
        if isinstance(stored, dt.datetime):
            return not TOO_FINE.search(value)
        return re.search(r"\d[ T]", value.strip()) is None  # a time of day would be lost
    if given.is_decimal and given.scale and isinstance(stored, float):
        return float(str(value)) == stored  # the nearest DOUBLE is what was asked for
    if isinstance(value, int | float | Decimal):
        return value == stored
    return True
