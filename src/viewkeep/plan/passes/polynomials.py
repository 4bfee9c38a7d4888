"""Arguments of SUM that read both sides of a join, as sums of products of what each side computes.

Law: the argument has a value where all its factors have one, and is then the sum of its terms. So
a sum over all pairs of rows is, term by term, the product of one sum for each side, over the rows
in which all factors of that side have values. BIGINT wraps in the same ring; a DECIMAL must not be
rounded anywhere, and have so few digits that no sum of it overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from viewkeep.expr import Call, Expr, Lit
from viewkeep.plan.conditions import arranged, conjunction
from viewkeep.types import BIGINT, BOOLEAN, DataType

S = TypeVar("S")
_MOST_TERMS: Final = 8
_MOST_DIGITS: Final = 18


@dataclass(frozen=True)
class Term(Generic[S]):
    """A product of factors, each with the side that computes it; or minus that."""

    factors: tuple[tuple[Expr, S], ...]
    negative: bool = False

    def of(self, side: S) -> list[Expr]:
        return [factor for factor, owner in self.factors if owner is side]


def polynomial(expr: Expr, owner: Callable[[Expr], S | None]) -> list[Term[S]] | None:
    """The terms of an expression; None if it is no such sum. `owner` is who computes a part."""
    type_ = expr.type
    if type_ != BIGINT and not (type_.is_decimal and type_.precision <= _MOST_DIGITS):
        return None
    return _terms(expr, owner)


def all_known(factors: Iterable[Expr], value: Expr) -> Expr:
    """A value where none of the factors is NULL."""
    known = [Call("is_not_null", (factor,), BOOLEAN) for factor in dict.fromkeys(factors)]
    if not known:
        return value
    return Call("case", (conjunction(known), value, Lit(None, value.type)), value.type)


def product(factors: list[Expr]) -> Expr:
    """The product of what one side computes, exactly."""
    made = factors[0]
    for factor in factors[1:]:
        made = arranged(Call("multiply", (made, factor), _product_type(made.type, factor.type)))
    return made


def _terms(expr: Expr, owner: Callable[[Expr], S | None]) -> list[Term[S]] | None:
    if (side := owner(expr)) is not None:
        return [Term(((expr, side),))]
    if not isinstance(expr, Call) or not _is_exact(expr):
        return None
    parts = [_terms(arg, owner) for arg in expr.args]
    if any(part is None for part in parts):
        return None
    inner = [part for part in parts if part is not None]
    match expr.function:
        case "add":
            made = inner[0] + inner[1]
        case "subtract":
            made = inner[0] + [_negated(term) for term in inner[1]]
        case "negate":
            made = [_negated(term) for term in inner[0]]
        case "multiply":
            made = [
                Term(one.factors + other.factors, one.negative != other.negative)
                for one in inner[0]
                for other in inner[1]
            ]
        case _:
            return None
    return made if len(made) <= _MOST_TERMS else None


def _is_exact(call: Call) -> bool:
    """Whether a result is never rounded, and wraps as sums do."""
    types = [arg.type for arg in call.args]
    if call.type == BIGINT:
        return all(type_ == BIGINT for type_ in types)
    if not call.type.is_decimal or not all(type_.is_decimal for type_ in types):
        return False
    scales = [type_.scale for type_ in types]
    return call.type.scale == (sum(scales) if call.function == "multiply" else max(scales))


def _negated(term: Term[S]) -> Term[S]:
    return Term(term.factors, not term.negative)


def _product_type(one: DataType, other: DataType) -> DataType:
    if not one.is_decimal:
        return BIGINT
    return DataType("DECIMAL", one.precision + other.precision, one.scale + other.scale)
