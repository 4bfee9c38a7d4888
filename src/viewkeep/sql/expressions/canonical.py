"""Typed expressions in canonical form: equal computations that are spelt differently are equal.

Constants are folded, a constant stands right of a comparison, AND and OR are flat, and the
arguments of commutative functions are in the order of their texts.
"""

from __future__ import annotations

from viewkeep.expr import Call, Expr, Lit
from viewkeep.ops.functions import call
from viewkeep.plan.conditions import (
    MIRRORED,
    NEUTRAL,
    arranged,
    conjunction,
    conjuncts,
    connected,
    fold,
)
from viewkeep.sql.parse.limits import check_expression
from viewkeep.types import BOOLEAN

__all__ = ["conjunction", "conjuncts", "fold", "make"]

# Of comparisons too: NULL stays NULL, and NaN has a place in the order.
_OPPOSITE = {
    "is_null": "is_not_null", "is_not_null": "is_null", "eq": "ne", "ne": "eq",
    "lt": "ge", "ge": "lt", "gt": "le", "le": "gt",
}  # fmt: skip


def make(name: str, *args: Expr) -> Expr:
    """A call in canonical form."""
    if name in MIRRORED and isinstance(args[0], Lit) and not isinstance(args[1], Lit):
        name, args = MIRRORED[name], (args[1], args[0])
    made = call(name, args)
    if not isinstance(made, Call):
        return made
    check_expression(made)
    # The casts that the function asked for may be of constants.
    made = arranged(Call(made.function, tuple(fold(arg) for arg in made.args), made.type))
    if made.function in NEUTRAL:
        return connected(made.function, made.args)
    if made.function == "in":
        return _one_of(made)
    if made.function == "case":
        return _chosen(made)
    if made.function == "not" and isinstance(made.args[0], Call):
        return _negated(made, made.args[0])
    return fold(made)


def _negated(made: Call, inner: Call) -> Expr:
    if inner.function == "not":
        return inner.args[0]
    if inner.function in _OPPOSITE:
        return Call(_OPPOSITE[inner.function], inner.args, BOOLEAN)
    return made


def _chosen(made: Call) -> Expr:
    """CASE without branches that are never taken, or that stand after one always taken."""
    kept: list[Expr] = []
    default = made.args[-1]
    for condition, value in zip(made.args[:-1:2], made.args[1::2], strict=True):
        if condition == Lit(True, BOOLEAN):
            default = value
            break
        if not isinstance(condition, Lit):
            kept += [condition, value]
    return Call("case", (*kept, default), made.type) if kept else default


def _one_of(made: Call) -> Expr:
    value, *options = made.args
    if not all(isinstance(option, Lit) for option in options):
        return connected("or", [make("eq", value, option) for option in options])
    distinct = sorted(dict.fromkeys(options), key=str)
    if len(distinct) == 1:
        return make("eq", value, distinct[0])
    return fold(Call("in", (value, *distinct), BOOLEAN))
