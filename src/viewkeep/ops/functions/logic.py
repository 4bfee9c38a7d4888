"""AND, OR, NOT, comparisons and tests for NULL, in three-valued logic.

Law: NULL stands for unknown; only `<=>`, IS NULL and the other IS tests never give NULL.
NaN equals itself and is above all numbers; -0.0 equals 0.0; strings compare by their bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import polars as pl

from viewkeep.ops.functions.coercion import VOID, compared, widest
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.signatures import mismatch
from viewkeep.types import BOOLEAN, STRING, DataType


def _truths(name: str, at_least: int, at_most: int | None = None) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        fits = at_least <= len(given) and (at_most is None or len(given) <= at_most)
        if not fits or not all(t in (BOOLEAN, VOID) for t in given):
            raise mismatch(name.upper(), given, "conditions (BOOLEAN)")
        return (BOOLEAN,) * len(given), BOOLEAN

    return resolve


def _comparison(name: str) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        common = compared(*given) if len(given) == 2 else None
        if common is None:
            raise mismatch(name, given, "two values of comparable types")
        common = STRING if common == VOID else common
        return (common, common), BOOLEAN

    return resolve


def _any_one(name: str) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 1:
            raise mismatch(name, given, "one value")
        return (STRING if given[0] == VOID else given[0],), BOOLEAN

    return resolve


def _in(given: Sequence[DataType], constants: Constants) -> Signature:
    common = widest(given)
    if len(given) < 2 or common is None:
        raise mismatch("IN", given, "a value and a list of values of a common type")
    common = STRING if common == VOID else common
    return (common,) * len(given), BOOLEAN


def _one_of(site: Site) -> pl.Expr:
    return _joined(operator.or_, [site.first == arg for arg in site.args[1:]])


def _joined(operation: Callable[[pl.Expr, pl.Expr], pl.Expr], parts: Sequence[pl.Expr]) -> pl.Expr:
    """All parts as a tree of even depth: polars takes the cube of a chain's length."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return operation(_joined(operation, parts[:half]), _joined(operation, parts[half:]))


def _two(operation: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Build:
    return lambda site: operation(site.args[0], site.args[1])


FUNCTIONS = (
    Function(
        "and",
        _truths("and", 1),
        lambda s: _joined(operator.and_, s.args),
        "TRUE if all are, FALSE if one is FALSE, else NULL.",
        "TRUE AND NULL",
    ),
    Function(
        "or",
        _truths("or", 1),
        lambda s: _joined(operator.or_, s.args),
        "TRUE if one is, FALSE if all are FALSE, else NULL.",
        "TRUE OR NULL",
    ),
    Function("not", _truths("not", 1, 1), lambda s: ~s.first, "The opposite.", "NOT TRUE"),
    Function("eq", _comparison("="), _two(lambda a, b: a == b), "`a = b`.", "1 = 1.0"),
    Function("ne", _comparison("<>"), _two(lambda a, b: a != b), "`a <> b`.", "1 <> 2"),
    Function("lt", _comparison("<"), _two(lambda a, b: a < b), "`a < b`.", "1 < 2"),
    Function("le", _comparison("<="), _two(lambda a, b: a <= b), "`a <= b`.", "1 <= 2"),
    Function("gt", _comparison(">"), _two(lambda a, b: a > b), "`a > b`.", "1 > 2"),
    Function("ge", _comparison(">="), _two(lambda a, b: a >= b), "`a >= b`.", "1 >= 2"),
    Function(
        "null_safe_eq",
        _comparison("<=>"),
        _two(lambda a, b: a.eq_missing(b)),
        "`a <=> b`: like `=`, but NULL equals NULL.",
        "NULL <=> NULL",
        ("equal_null",),
    ),
    Function(
        "is_null",
        _any_one("IS NULL"),
        lambda s: s.first.is_null(),
        "Whether it is NULL.",
        "NULL IS NULL",
        ("isnull",),
    ),
    Function(
        "is_not_null",
        _any_one("IS NOT NULL"),
        lambda s: s.first.is_not_null(),
        "Whether it is not NULL.",
        "1 IS NOT NULL",
        ("isnotnull",),
    ),
    Function(
        "is_true",
        _truths("is_true", 1, 1),
        lambda s: s.first.fill_null(False),
        "TRUE if TRUE, else FALSE.",
        "(NULL IS TRUE)",
    ),
    Function(
        "is_false",
        _truths("is_false", 1, 1),
        lambda s: ~s.first.fill_null(True),
        "TRUE if FALSE, else FALSE.",
        "(FALSE IS FALSE)",
    ),
    Function(
        "in",
        _in,
        _one_of,
        "Whether it equals one of the list; NULL if only a NULL could make it so.",
        "2 IN (1, 2)",
    ),
)
