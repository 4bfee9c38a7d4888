"""Which types meet in an operator, as Spark decides with ANSI mode off.

Law: every rule is symmetric, and a type meets itself as itself. VOID, the type of a bare NULL,
gives way to any other type and never leaves the analysis of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeep.expr import Scalar
from viewkeep.types import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP, DataType, decimal

VOID = DataType("VOID")
_RANK = {"INT": 1, "BIGINT": 2, "DECIMAL": 3, "DOUBLE": 4}


def decimal_of(type_: DataType, constant: Scalar = None) -> DataType:
    """The DECIMAL that holds every value of a numeric type, or just an integer constant."""
    if type_.is_decimal:
        return type_
    if isinstance(constant, int) and not isinstance(constant, bool):
        return decimal(len(str(abs(constant))), 0)
    return decimal(20 if type_ == BIGINT else 10, 0)


def bounded(precision: int, scale: int) -> DataType:
    """DECIMAL(precision, scale) with both cut at 38."""
    return decimal(min(precision, 38), min(scale, 38))


def adjusted(precision: int, scale: int) -> DataType:
    """An arithmetic result type: past 38 digits the fraction gives way, down to 6 places."""
    if precision <= 38:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(38, max(38 - whole, min(scale, 6)))


def wider_decimal(a: DataType, b: DataType) -> DataType:
    """The DECIMAL with the integer digits and the scale of both; past 38 digits the scale gives."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale > 38:
        scale = max(0, 38 - whole)
    return decimal(min(whole + scale, 38), scale)


def wider(a: DataType, b: DataType, *, strings: bool = True) -> DataType | None:
    """The common type of two branches (CASE, COALESCE, IN); None if there is none.

    With `strings`, a string meets a number or a time as a string.
    """
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if a.is_numeric and b.is_numeric:
        if DOUBLE in (a, b):
            return DOUBLE
        if a.is_decimal or b.is_decimal:
            return wider_decimal(decimal_of(a), decimal_of(b))
        return a if _RANK[a.name] > _RANK[b.name] else b
    if {a, b} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if strings and STRING in (a, b):
        other = b if a == STRING else a
        return STRING if other.is_numeric or other in (DATE, TIMESTAMP) else None
    return None


def widest(types: Iterable[DataType], *, strings: bool = True) -> DataType | None:
    """The common type of many branches; None if there is none."""
    common: DataType | None = VOID
    for type_ in types:
        if common is not None:
            common = wider(common, type_, strings=strings)
    return common


def compared(a: DataType, b: DataType) -> DataType | None:
    """The type in which two values are compared by = < > and the like; None if they cannot be."""
    if STRING in (a, b) and a != b:
        other = b if a == STRING else a
        if other == VOID:
            return STRING
        if other.is_array:
            return None
        return DOUBLE if other.is_decimal else other
    return wider(a, b, strings=False)


def accepts(given: DataType, wanted: DataType) -> bool:
    """Whether a function that takes `wanted` may be given `given`, by an implicit cast."""
    if given in (wanted, VOID):
        return True
    if wanted == STRING:
        return True
    if given == STRING:
        return wanted.is_numeric or wanted in (DATE, TIMESTAMP) or wanted.name == "BINARY"
    if given.is_numeric and wanted.is_numeric:
        return True
    return {given, wanted} == {DATE, TIMESTAMP}


def integer_of(type_: DataType) -> DataType:
    """The integer type that a function of integers computes in for an argument of this type."""
    return INT if type_ in (INT, VOID) else BIGINT
