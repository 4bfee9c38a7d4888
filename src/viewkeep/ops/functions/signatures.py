"""Typing rules that many functions share, and the errors they raise.

Law: a rule either gives one type per argument, or raises TypeMismatch with what the function takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeep.errors import TypeMismatch
from viewkeep.expr import Scalar
from viewkeep.ops.functions.coercion import VOID, accepts
from viewkeep.ops.functions.function import Constants, Resolve, Signature
from viewkeep.types import DOUBLE, STRING, DataType


def mismatch(name: str, types: Sequence[DataType], takes: str) -> TypeMismatch:
    """The error of a function that was given types it does not take."""
    given = ", ".join("NULL" if t == VOID else str(t) for t in types) or "nothing"
    return TypeMismatch(f"{name}({given}) has no meaning", hint=f"{name} takes {takes}")


def fixed(name: str, *types: DataType, result: DataType, optional: int = 0) -> Resolve:
    """A function of arguments of fixed types, of which the last `optional` may be left out."""

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        fits = len(types) - optional <= len(given) <= len(types)
        if not fits or not all(map(accepts, given, types)):
            takes = ", ".join(map(str, types))
            raise mismatch(name, given, f"({takes})" + (" or fewer" if optional else ""))
        return types[: len(given)], result

    return resolve


def numeric(name: str, result: Callable[[DataType], DataType]) -> Resolve:
    """A function of one number of any numeric type; a string is taken as DOUBLE."""

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) != 1 or not (given[0].is_numeric or given[0] in (STRING, VOID)):
            raise mismatch(name, given, "one number")
        type_ = given[0] if given[0].is_numeric else DOUBLE
        return (type_,), result(type_)

    return resolve


def constant_text(name: str, constants: Constants, position: int, what: str) -> str:
    """The text constant at `position`; the error says what it is for."""
    return str(_constant(name, constants, position, what, str))


def constant_int(name: str, constants: Constants, position: int, what: str) -> int:
    """The integer constant at `position`; the error says what it is for."""
    value = _constant(name, constants, position, what, int)
    assert isinstance(value, int)
    return value


def _constant(
    name: str, constants: Constants, position: int, what: str, kind: type[Scalar]
) -> Scalar:
    value = constants.get(position)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeMismatch(
            f"the {what} of {name} must be a constant",
            hint=f"Write it as a literal, since the {what} is compiled once for all rows",
        )
    return value
