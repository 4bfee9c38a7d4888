"""Sums in parts that are multiplied by counts and summed again, without losing a digit.

Law: with fewer than 2^63 rows no part ever overflows. A DECIMAL of up to 19 digits, times any
number of rows, has at most 38; a longer one is split into its quotient by 10^19 units and the
remainder, and `joined_parts` puts the sums of both together: NULL if they have more than 38
digits, as a SUM that is kept in one piece has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from viewkeep.expr import Call, Expr, Lit
from viewkeep.plan.conditions import arranged
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, INT, DataType, decimal

_MOST_DIGITS: Final = 19
_COUNT = decimal(19, 0)
_TOTAL = decimal(38, 0)


@dataclass(frozen=True)
class SumPart:
    """An expression whose sum is one part of a sum, and what the part is called."""

    name: str
    expr: Expr


def is_summable(type_: DataType) -> bool:
    """Whether sums of a type can be made of parts."""
    if type_.is_decimal:
        return type_.precision <= 37
    return type_.is_integer or type_ == DOUBLE


def parts_of(argument: Expr, function: str) -> list[SumPart]:
    """The parts of a SUM or AVG: two of a long DECIMAL, else one."""
    type_ = argument.type
    if function == "avg" and type_ == BIGINT:  # its sum must not wrap
        return [SumPart("wide sum", Call("cast", (argument,), _COUNT))]
    if not type_.is_decimal or type_.precision <= _MOST_DIGITS:
        return [SumPart("sum", argument)]
    unit = _unit(type_.scale)
    high = Call("cast", (Call("int_divide", (argument, unit), BIGINT),), _COUNT)
    low = Call("remainder", (argument, unit), decimal(max(19, type_.scale), type_.scale))
    return [SumPart("high sum", high), SumPart("low sum", low)]


def joined_parts(sums: Sequence[Expr]) -> Expr:
    """The sum that the sums of the parts make."""
    if len(sums) == 1:
        return sums[0]
    high, low = sums
    scale, unit = low.type.scale, _unit(low.type.scale)
    carried = Call("cast", (Call("int_divide", (low, unit), BIGINT),), _COUNT)
    high = Call("add", (high, carried), _TOTAL)
    low = Call("remainder", (low, unit), decimal(max(19, scale), scale))
    # One unit moves from the high part to the low, lest the high one alone has too many digits.
    positive = Call("gt", (high, Lit(Decimal(0), _TOTAL)), BOOLEAN)
    one = Call("case", (positive, Lit(Decimal(1), _COUNT), Lit(Decimal(-1), _COUNT)), _COUNT)
    total = decimal(38, scale)
    high = Call("multiply", (Call("subtract", (high, one), _TOTAL), unit), total)
    low = Call("add", (low, Call("multiply", (one, unit), total)), total)
    return Call("add", (high, low), total)


def average(total: Expr, count: Expr | None, type_: DataType) -> Expr:
    """A total, divided by a count if there is one, as a type; NULL where it does not fit."""
    if count is None:
        return cast(total, type_)
    if not type_.is_decimal:
        return Call("divide", (cast(total, DOUBLE), cast(count, DOUBLE)), type_)
    return Call("divide", (total, cast(count, _COUNT)), type_)


def sum_type(type_: DataType) -> DataType:
    """The type of a part's sum, which holds it whatever it is multiplied by."""
    if type_.is_decimal:
        return decimal(38, type_.scale)
    return BIGINT if type_.is_integer else type_


def whole(value: Expr) -> Expr:
    """A value of one row as a sum of it."""
    return cast(value, BIGINT) if value.type == INT else value


def times(value: Expr, count: Expr) -> Expr:
    """A sum or a count, as many times."""
    type_ = value.type
    if type_.is_decimal:
        args = (value, cast(count, _COUNT))
        return Call("multiply", args, decimal(38, type_.scale))
    return arranged(Call("multiply", (value, cast(count, type_)), type_))


def exact_product(left: Expr, right: Expr, type_: DataType) -> Expr:
    """The product of two sums as a type that holds it."""
    if not type_.is_decimal:
        return arranged(Call("multiply", (left, right), type_))
    args = [cast(one, _COUNT) if one.type == BIGINT else one for one in (left, right)]
    return Call("multiply", (args[0], args[1]), type_)


def negated(value: Expr) -> Expr:
    """Minus a sum."""
    return Call("negate", (value,), value.type)


def counted_if(value: Expr) -> Expr:
    """1 for a row in which an expression has a value, else 0."""
    known = Call("is_not_null", (value,), BOOLEAN)
    return Call("case", (known, Lit(1, BIGINT), Lit(0, BIGINT)), BIGINT)


def or_else(value: Expr, otherwise: int) -> Expr:
    """A count, or this where it is NULL."""
    return Call("coalesce", (value, Lit(otherwise, BIGINT)), BIGINT)


def _unit(scale: int) -> Lit:
    type_ = decimal(max(20, scale), scale)
    return Lit(Decimal(10**_MOST_DIGITS).scaleb(-scale), type_)


def cast(value: Expr, type_: DataType) -> Expr:
    """A value as a type."""
    return value if value.type == type_ else Call("cast", (value,), type_)
