"""AND, OR, NOT, comparisons and tests for NULL, in three-valued logic.

Law: NULL stands for unknown; only `<=>`, IS NULL and the other IS tests never give NULL.
NaN equals itself and is above all numbers; -0.0 equals 0.0; strings compare by their bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from viewkeep.deferred import pl
from viewkeep.ops.functions.coercion import VOID, compared, widest
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowform import RowForm, RowSite, below, equal
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


def _two(
    operation: Callable[[pl.Expr, pl.Expr], pl.Expr],
    mirrored: Callable[[pl.Expr, pl.Expr], pl.Expr] | None = None,
) -> Build:
    """A comparison of two; `mirrored` is the same with its sides changed.

    A constant stands right: where it stands left of values that turn out to be equal, polars gives
    one value and no column.
    """

    def build(site: Site) -> pl.Expr:
        one, other = site.args
        if 0 in site.constants and 1 not in site.constants:
            return (mirrored or operation)(other, one)
        return operation(one, other)

    return build


def _row_all(site: RowSite) -> str:
    doubts = site.nulls()
    if not doubts:
        return " and ".join(site.args)
    tests = [_known(site, at, f"not {arg}") for at, arg in enumerate(site.args)]
    return f"False if {' or '.join(tests)} else None if {' or '.join(doubts)} else True"


def _row_any(site: RowSite) -> str:
    if not (doubts := site.nulls()):
        return " or ".join(site.args)
    return f"True if {' or '.join(site.args)} else None if {' or '.join(doubts)} else False"


def _known(site: RowSite, at: int, test: str) -> str:
    return f"({site.args[at]} is not None and {test})" if site.maybe_null[at] else test


def _compares(form: Callable[[str, str, DataType], str]) -> RowForm:
    """The row form of a comparison; arrays are compared by the kernel alone."""

    def write(site: RowSite) -> str | None:
        a, b = site.args
        return None if site.types[0].is_array else form(a, b, site.types[0])

    return write


def _not(source: str) -> str:
    return f"not {source}"


def _row_one_of(site: RowSite) -> str | None:
    type_ = site.types[0]
    if type_.is_array:
        return None
    tests = [
        _known(site, at, equal(site.first, arg, type_))
        for at, arg in enumerate(site.args[1:], start=1)
        if arg != "None"
    ]
    found = f"True if {' or '.join(tests) or False}"
    doubts = " or ".join(site.nulls(*range(1, len(site.args))))
    value = f"{found} else None if {doubts} else False" if doubts else f"{found} else False"
    return f"None if {site.first} is None else {value}" if site.maybe_null[0] else value


FUNCTIONS = (
    Function(
        "and",
        _truths("and", 1),
        lambda s: _joined(operator.and_, s.args),
        "TRUE if all are, FALSE if one is FALSE, else NULL.",
        "TRUE AND NULL",
        row=_row_all,
        sees_nulls=True,
    ),
    Function(
        "or",
        _truths("or", 1),
        lambda s: _joined(operator.or_, s.args),
        "TRUE if one is, FALSE if all are FALSE, else NULL.",
        "TRUE OR NULL",
        row=_row_any,
        sees_nulls=True,
    ),
    Function(
        "not",
        _truths("not", 1, 1),
        lambda s: ~s.first,
        "The opposite.",
        "NOT TRUE",
        row=lambda s: f"not {s.first}",
    ),
    Function(
        "eq",
        _comparison("="),
        _two(lambda a, b: a == b),
        "`a = b`.",
        "1 = 1.0",
        row=_compares(equal),
    ),
    Function(
        "ne",
        _comparison("<>"),
        _two(lambda a, b: a != b),
        "`a <> b`.",
        "1 <> 2",
        row=_compares(lambda a, b, t: _not(equal(a, b, t))),
    ),
    Function(
        "lt",
        _comparison("<"),
        _two(lambda a, b: a < b, lambda a, b: a > b),
        "`a < b`.",
        "1 < 2",
        row=_compares(below),
    ),
    Function(
        "le",
        _comparison("<="),
        _two(lambda a, b: a <= b, lambda a, b: a >= b),
        "`a <= b`.",
        "1 <= 2",
        row=_compares(lambda a, b, t: _not(below(b, a, t))),
    ),
    Function(
        "gt",
        _comparison(">"),
        _two(lambda a, b: a > b, lambda a, b: a < b),
        "`a > b`.",
        "1 > 2",
        row=_compares(lambda a, b, t: below(b, a, t)),
    ),
    Function(
        "ge",
        _comparison(">="),
        _two(lambda a, b: a >= b, lambda a, b: a <= b),
        "`a >= b`.",
        "1 >= 2",
        row=_compares(lambda a, b, t: _not(below(a, b, t))),
    ),
    Function(
        "null_safe_eq",
        _comparison("<=>"),
        _two(lambda a, b: a.eq_missing(b)),
        "`a <=> b`: like `=`, but NULL equals NULL.",
        "NULL <=> NULL",
        ("equal_null",),
        row=_compares(equal),
        sees_nulls=True,
    ),
    Function(
        "is_null",
        _any_one("IS NULL"),
        lambda s: s.first.is_null(),
        "Whether it is NULL.",
        "NULL IS NULL",
        ("isnull",),
        row=lambda s: f"not ({s.is_known(0)})",
        sees_nulls=True,
    ),
    Function(
        "is_not_null",
        _any_one("IS NOT NULL"),
        lambda s: s.first.is_not_null(),
        "Whether it is not NULL.",
        "1 IS NOT NULL",
        ("isnotnull",),
        row=lambda s: s.is_known(0),
        sees_nulls=True,
    ),
    Function(
        "is_true",
        _truths("is_true", 1, 1),
        lambda s: s.first.fill_null(False),
        "TRUE if TRUE, else FALSE.",
        "(NULL IS TRUE)",
        row=lambda s: f"True if {s.first} else False",
        sees_nulls=True,
    ),
    Function(
        "is_false",
        _truths("is_false", 1, 1),
        lambda s: ~s.first.fill_null(True),
        "TRUE if FALSE, else FALSE.",
        "(FALSE IS FALSE)",
        row=lambda s: f"{s.is_known(0)} and not {s.first}",
        sees_nulls=True,
    ),
    Function(
        "in",
        _in,
        _one_of,
        "Whether it equals one of the list; NULL if only a NULL could make it so.",
        "2 IN (1, 2)",
        row=_row_one_of,
        sees_nulls=True,
    ),
)
