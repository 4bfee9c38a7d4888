"""Kinds of values, and what functions make of them in Spark and in DuckDB alike.

Law: a rule gives the kind of the result for arguments of which both engines make the same, and None
for others. Kinds are wider than types: engines differ between kinds, seldom within one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from viewkeep.types import DataType

Kind: TypeAlias = str
Rule: TypeAlias = Callable[[Sequence[Kind]], Kind | None]

NUMBERS = ("integer", "decimal", "double")  # each takes in those before it
TIMES = ("date", "timestamp")
NULL = "null"
_ORDERED = (*NUMBERS, *TIMES, "string")


def kind_of(type_: DataType) -> Kind:
    """The kind of a column's values."""
    if type_.is_integer:
        return "integer"
    if type_.is_decimal:
        return "decimal"
    return "array" if type_.is_array else type_.name.lower()


def common(kinds: Sequence[Kind]) -> Kind | None:
    """The kind that values of several kinds have together, if both engines agree on it."""
    left = [kind for kind in kinds if kind != NULL]
    if not left:
        return NULL
    for family in (NUMBERS, TIMES):
        if all(kind in family for kind in left):
            return max(left, key=family.index)
    return left[0] if len(set(left)) == 1 and left[0] not in ("array", "interval") else None


def _of(*taken: Kind, gives: Kind | None = None) -> Rule:
    """One argument of some kinds; the result is of its kind unless another is given."""

    def rule(kinds: Sequence[Kind]) -> Kind | None:
        return (gives or kinds[0]) if len(kinds) == 1 and kinds[0] in (*taken, NULL) else None

    return rule


def _alike(kinds: Sequence[Kind]) -> Kind | None:
    return common(kinds)


def _none(gives: Kind) -> Rule:
    return lambda kinds: None if kinds else gives


def _compared(gives: Kind | None = None) -> Rule:
    def rule(kinds: Sequence[Kind]) -> Kind | None:
        return (gives or kinds[0]) if common(kinds) else None

    return rule


def _shifted(kinds: Sequence[Kind]) -> Kind | None:
    return kinds[0] if len(kinds) == 1 or (len(kinds) == 2 and kinds[1] == "integer") else None


AGGREGATES: dict[str, Rule] = {
    "count": lambda kinds: "integer" if len(kinds) == 1 else None,
    "sum": _of(*NUMBERS),
    "avg": _of("integer", "double", gives="double"),
    "min": _of(*_ORDERED),
    "max": _of(*_ORDERED),
    "bit_and": _of("integer"),
    "bit_or": _of("integer"),
    "bit_xor": _of("integer"),
    "bool_and": _of("boolean"),
    "bool_or": _of("boolean"),
    "count_if": _of("boolean", gives="integer"),
}
ARRAYS = ("array_agg", "collect_list")
WINDOWS: dict[str, Rule] = {
    name: AGGREGATES[name] for name in ("count", "sum", "avg", "min", "max")
} | {
    "row_number": _none("integer"),
    "rank": _none("integer"),
    "dense_rank": _none("integer"),
    "percent_rank": _none("double"),
    "cume_dist": _none("double"),
    "ntile": _of("integer"),
    "lag": _shifted,
    "lead": _shifted,
    "first_value": _of(*_ORDERED, "boolean"),
    "last_value": _of(*_ORDERED, "boolean"),
}
SCALARS: dict[str, Rule] = {
    "abs": _of(*NUMBERS),
    "coalesce": _alike,
    "nvl": _alike,
    "ifnull": _alike,
    "nullif": _compared(),
    "greatest": _alike,
    "least": _alike,
    "length": _of("string", gives="integer"),
    "char_length": _of("string", gives="integer"),
    "repeat": lambda kinds: "string" if list(kinds) == ["string", "integer"] else None,
    "year": _of(*TIMES, gives="integer"),
    "month": _of(*TIMES, gives="integer"),
    "day": _of(*TIMES, gives="integer"),
    "rand": _none("double"),
    "random": _none("double"),
    "uuid": _none("string"),
    "now": _none("timestamp"),
    "current_timestamp": _none("timestamp"),
    "current_date": _none("date"),
}
FUNCTIONS = (*AGGREGATES, *ARRAYS, *WINDOWS, *SCALARS)
