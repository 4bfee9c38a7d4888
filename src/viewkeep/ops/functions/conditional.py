"""CASE, COALESCE and the other choices between values.

Law: the result has the common type of all branches, and a branch not taken has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from viewkeep.deferred import pl
from viewkeep.ops.functions.coercion import VOID, compared, widest
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowform import RowForm, RowSite, below, equal
from viewkeep.ops.functions.signatures import mismatch
from viewkeep.types import BOOLEAN, STRING, DataType


def _common(name: str, given: Sequence[DataType], *, strings: bool = True) -> DataType:
    common = widest(given, strings=strings)
    if common is None:
        raise mismatch(name, given, "values of a common type")
    return STRING if common == VOID else common


def _branches(given: Sequence[DataType], constants: Constants) -> Signature:
    conditions, values = given[:-1:2], (*given[1::2], given[-1])
    if len(given) < 3 or len(given) % 2 == 0 or any(t not in (BOOLEAN, VOID) for t in conditions):
        raise mismatch("CASE", given, "WHEN conditions (BOOLEAN) with THEN values, and ELSE")
    common = _common("CASE", values)
    return (BOOLEAN, common) * len(conditions) + (common,), common


def _case(site: Site) -> pl.Expr:
    chosen = site.args[-1]
    for at in range(len(site.args) - 3, -1, -2):
        chosen = pl.when(site.args[at]).then(site.args[at + 1]).otherwise(chosen)
    return chosen


def _same(name: str, at_least: int, at_most: int | None, strings: bool = True) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) < at_least or (at_most is not None and len(given) > at_most):
            raise mismatch(name, given, f"at least {at_least} values")
        common = _common(name, given, strings=strings)
        return (common,) * len(given), common

    return resolve


def _null_if(given: Sequence[DataType], constants: Constants) -> Signature:
    # The result is the first value uncast, so it is passed once more for the comparison.
    common = compared(given[1], given[2]) if len(given) == 3 else None
    if common is None:
        raise mismatch("nullif", given[1:], "two comparable values")
    common = STRING if common == VOID else common
    first = STRING if given[0] == VOID else given[0]
    return (first, common, common), first


def _kernel_null_if(site: Site) -> pl.Expr:
    first, one, other = site.args
    if 1 in site.constants:  # stands right, as in comparisons
        one, other = other, one
    return pl.when(~(one == other).fill_null(False)).then(first)


def _nvl2(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) != 3:
        raise mismatch("nvl2", given, "three values")
    common = _common("nvl2", given[1:])
    return (STRING if given[0] == VOID else given[0], common, common), common


def _extreme(better: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Build:
    def build(site: Site) -> pl.Expr:
        def pick(best: pl.Expr, arg: pl.Expr) -> pl.Expr:
            return pl.when(best.is_null() | better(arg, best)).then(arg).otherwise(best)

        return reduce(pick, site.args)

    return build


def _row_case(site: RowSite) -> str:
    branches = [
        f"{site.args[at + 1]} if {site.args[at]} else " for at in range(0, len(site.args) - 1, 2)
    ]
    return "".join(branches) + site.args[-1]


def _row_coalesce(site: RowSite) -> str:
    *others, last = site.args
    return "".join(f"{arg} if {site.is_known(at)} else " for at, arg in enumerate(others)) + last


def _row_null_if(site: RowSite) -> str:
    first, a, b = site.args
    are_equal = f"{site.is_known(1)} and {site.is_known(2)} and {equal(a, b, site.types[1])}"
    return f"None if {are_equal} else {first}"


def _row_extreme(form: Callable[[str, str, DataType], str]) -> RowForm:
    """Of two values the better, of three the better of that and the third, and so on."""

    def write(site: RowSite) -> str:
        best = site.first
        for at, arg in enumerate(site.args[1:], start=1):
            kept = f"best{at}"
            better = f"{site.is_known(at)} and {form(arg, kept, site.result)}"
            best = f"({arg} if ({kept} := {best}) is None or {better} else {kept})"
        return best

    return write


FUNCTIONS = (
    Function(
        "case",
        _branches,
        _case,
        "The value of the first condition that is TRUE, else the ELSE.",
        "CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END",
        ("if", "iff"),
        row=_row_case,
        sees_nulls=True,
    ),
    Function(
        "coalesce",
        _same("coalesce", 1, None),
        lambda s: pl.coalesce(*s.args),
        "The first value that is not NULL.",
        "coalesce(NULL, 2)",
        ("nvl", "ifnull"),
        row=_row_coalesce,
        sees_nulls=True,
    ),
    Function(
        "nullif",
        _null_if,
        _kernel_null_if,
        "NULL if both are equal, else the first.",
        "nullif(1, 2)",
        row=_row_null_if,
        sees_nulls=True,
    ),
    Function(
        "nvl2",
        _nvl2,
        lambda s: pl.when(s.first.is_not_null()).then(s.args[1]).otherwise(s.args[2]),
        "The second if the first is not NULL, else the third.",
        "nvl2(NULL, 1, 2)",
        row=lambda s: f"{s.args[1]} if {s.is_known(0)} else {s.args[2]}",
        sees_nulls=True,
    ),
    Function(
        "greatest",
        _same("greatest", 2, None, False),
        _extreme(lambda a, b: a > b),
        "The greatest value, NULLs left out.",
        "greatest(1, NULL, 3)",
        row=_row_extreme(lambda a, b, t: below(b, a, t)),
        sees_nulls=True,
    ),
    Function(
        "least",
        _same("least", 2, None, False),
        _extreme(lambda a, b: a < b),
        "The least value, NULLs left out.",
        "least(1, NULL, 3)",
        row=_row_extreme(below),
        sees_nulls=True,
    ),
)
