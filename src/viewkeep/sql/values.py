"""Constants on their way into a column: the value as the column's type, unchanged, or refused.

A view may turn what it cannot cast into NULL; a write must not, so nothing is lost silently.
"""

from __future__ import annotations

from viewkeep.errors import TypeMismatch, UnknownName
from viewkeep.expr import Expr, Lit, Scalar
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.types import Column, DataType


def stored_value(constant: Expr, column: Column, text: str) -> Scalar:
    """The constant as a value of the column; TypeMismatch if that would change it."""
    if not isinstance(constant, Lit):
        raise UnknownName("a constant is needed here", fragment=text)
    if constant.value is None or constant.type == VOID:
        return None
    if constant.type == column.type:
        return constant.value
    if not _may_become(constant.type, column.type):
        raise _mismatch(column, constant.type, text)
    stored = evaluate_one(cast_to(constant, column.type), {})
    if stored is None:
        raise _mismatch(column, constant.type, text)
    if constant.type.is_numeric and column.type.name != "DOUBLE" and stored != constant.value:
        raise _mismatch(column, constant.type, text)
    return stored


def _may_become(given: DataType, wanted: DataType) -> bool:
    if given.is_numeric:
        return wanted.is_numeric
    if given.name == "STRING":
        return wanted.name in ("DATE", "TIMESTAMP")
    return given.name == "DATE" and wanted.name == "TIMESTAMP"


def _mismatch(column: Column, given: DataType, text: str) -> TypeMismatch:
    return TypeMismatch(
        f"column {column.name} is {column.type} and cannot hold this {given} as it is",
        fragment=text,
    )
