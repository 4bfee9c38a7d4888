"""Typed expressions in canonical form: equal computations that are spelt differently are equal.

Constants are folded, a constant stands right of a comparison, AND and OR are flat, and the
arguments of commutative functions are in the order of their texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from viewkeep.expr import Call, Expr, Lit
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import call
from viewkeep.types import BOOLEAN

_COMMUTATIVE = {"eq", "ne", "null_safe_eq", "add", "multiply", "bitand", "bitor", "bitxor"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_OPPOSITE = {"is_null": "is_not_null", "is_not_null": "is_null"}
_NEUTRAL = {"and": True, "or": False}


def make(name: str, *args: Expr) -> Expr:
    """A call in canonical form."""
    if name in _COMMUTATIVE and len(args) == 2:
        args = tuple(sorted(args, key=_constants_last))
    elif name in _MIRRORED and isinstance(args[0], Lit) and not isinstance(args[1], Lit):
        name, args = _MIRRORED[name], (args[1], args[0])
    made = call(name, args)
    if not isinstance(made, Call):
        return made
    # The casts that the function asked for may be of constants.
    made = Call(made.function, tuple(fold(arg) for arg in made.args), made.type)
    if made.function in _NEUTRAL:
        return _connected(made.function, made.args)
    if made.function == "in":
        return _one_of(made)
    if made.function == "case":
        return _chosen(made)
    if made.function == "not" and isinstance(made.args[0], Call):
        return _negated(made, made.args[0])
    return fold(made)


def fold(expr: Expr) -> Expr:
    """A call of constants as the constant it gives; there is one NaN and one zero."""
    if isinstance(expr, Call) and all(isinstance(arg, Lit) for arg in expr.args):
        value = evaluate_one(expr, {})
        if isinstance(value, float):
            value = math.nan if math.isnan(value) else value + 0.0
        return Lit(value, expr.type)
    return expr


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The conditions that a conjunction is made of, in canonical order, each once."""
    return expr.args if isinstance(expr, Call) and expr.function == "and" else (expr,)


def conjunction(parts: Iterable[Expr]) -> Expr:
    """One condition that is true where all of them are; TRUE if there are none."""
    return _connected("and", parts)


def _connected(name: str, args: Iterable[Expr]) -> Expr:
    """AND or OR of conditions: flat, sorted, each once, without what does not matter."""
    neutral = _NEUTRAL[name]
    found: dict[Expr, None] = {}
    for arg in args:
        inner = arg.args if isinstance(arg, Call) and arg.function == name else (arg,)
        found.update(dict.fromkeys(inner))
    found.pop(Lit(neutral, BOOLEAN), None)
    decided = Lit(not neutral, BOOLEAN)
    if decided in found:
        return decided
    if not found:
        return Lit(neutral, BOOLEAN)
    parts = tuple(sorted(found, key=str))
    return parts[0] if len(parts) == 1 else Call(name, parts, BOOLEAN)


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
        return _connected("or", [make("eq", value, option) for option in options])
    distinct = sorted(dict.fromkeys(options), key=str)
    if len(distinct) == 1:
        return make("eq", value, distinct[0])
    return fold(Call("in", (value, *distinct), BOOLEAN))


def _constants_last(expr: Expr) -> tuple[bool, str]:
    return isinstance(expr, Lit), str(expr)
