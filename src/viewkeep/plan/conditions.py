"""Conditions and other expressions in canonical form, also after columns were put in for others.

Law: AND and OR are flat, sorted and without repetitions; the arguments of commutative functions
are in the order of their texts, constants last; a call of constants is the constant it gives. So
the form depends on what is computed, not on the way it was come by.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from viewkeep import interrupts
from viewkeep.errors import Unsupported
from viewkeep.expr import MOST_DEEP, Call, Expr, Lit, Ref, calls, rebuilt, references
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.sizes import constant_bytes
from viewkeep.types import BOOLEAN

TRUE = Lit(True, BOOLEAN)
COMMUTATIVE = frozenset(
    {"eq", "ne", "null_safe_eq", "add", "multiply", "bitand", "bitor", "bitxor"}
)
MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
NEUTRAL = {"and": True, "or": False}

MOST_CONSTANT = 16 << 20  # bytes of a text that is made of constants when a statement is planned
_MOST_CALLS = 2_000
# Functions that are NULL if one argument is.
_STRICT = frozenset(
    {
        "eq", "ne", "lt", "le", "gt", "ge", "not", "cast",
        "add", "subtract", "multiply", "divide", "remainder", "int_divide", "negate",
        "abs", "round", "ceil", "floor", "concat", "upper", "lower", "length", "substring", "trim",
        "startswith", "endswith", "contains", "like", "ilike", "rlike",
        "year", "quarter", "month", "day", "date_trunc", "date_add", "date_sub", "datediff",
    }
)  # fmt: skip


def fold(expr: Expr) -> Expr:
    """A call of constants as the constant it gives; there is one NaN and one zero."""
    if isinstance(expr, Call) and all(isinstance(arg, Lit) for arg in expr.args):
        if (size := constant_bytes(expr)) > MOST_CONSTANT:
            raise Unsupported(
                f"{expr.function} of constants makes a text of up to {size:,} bytes, and "
                f"{MOST_CONSTANT:,} are the limit"
            )
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
    return connected("and", parts)


def disjunction(parts: Iterable[Expr]) -> Expr:
    """One condition that is true where any of them is; FALSE if there are none."""
    return connected("or", parts)


def connected(name: str, args: Iterable[Expr]) -> Expr:
    """AND or OR of conditions: flat, sorted, each once, without what does not matter."""
    neutral = NEUTRAL[name]
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


def arranged(call: Call) -> Call:
    """A call with the arguments of a commutative function in order, a constant on the right."""
    if len(call.args) != 2:
        return call
    left, right = call.args
    if call.function in COMMUTATIVE:
        args = tuple(sorted(call.args, key=constants_last))
        return call if args == call.args else Call(call.function, args, call.type)
    if call.function in MIRRORED and isinstance(left, Lit) and not isinstance(right, Lit):
        return Call(MIRRORED[call.function], (right, left), call.type)
    return call


def constants_last(expr: Expr) -> tuple[bool, str]:
    """The order of the arguments of commutative functions."""
    return isinstance(expr, Lit), str(expr)


def rewritten(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """The expression with columns replaced by what `by` says of them, in canonical form again."""
    interrupts.check()

    def made(call: Call, args: tuple[Expr, ...]) -> Expr:
        if call.function in NEUTRAL:
            return connected(call.function, args)
        if args == call.args:
            return call
        return fold(arranged(Call(call.function, args, call.type)))

    return rebuilt(
        expr, lambda leaf: by.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf, made
    )


def rewritten_small(expr: Expr, by: Mapping[str, Expr]) -> Expr | None:
    """As `rewritten`; None if the expression would become too large or too deep.

    What is put in for columns may double an expression at each step, without end.
    """
    sizes: dict[int, tuple[int, int]] = {}

    def measure(arg: Expr) -> tuple[int, int]:
        put = by.get(arg.name, arg) if isinstance(arg, Ref) else arg
        if put is not arg:
            return (put.size, put.depth) if isinstance(put, Call) else (0, 0)
        return sizes[id(arg)] if isinstance(arg, Call) else (0, 0)

    for call in calls([expr]):
        inner = [measure(arg) for arg in call.args]
        size, depth = sum(s for s, _ in inner), max((d for _, d in inner), default=0)
        sizes[id(call)] = size + 1, depth + 1
    size, depth = measure(expr)
    return rewritten(expr, by) if size <= _MOST_CALLS and depth <= MOST_DEEP else None


def reads(expr: Expr, columns: Collection[str]) -> bool:
    """Whether an expression reads nothing but these columns."""
    return all(name in columns for name in references(expr))


def is_small(exprs: Iterable[Expr]) -> bool:
    """Whether expressions have so few calls that they may well be computed again elsewhere."""
    found = [expr for expr in exprs if isinstance(expr, Call)]
    return sum(call.size for call in found) < _MOST_CALLS and all(
        call.depth <= MOST_DEEP for call in found
    )


def is_null_with(expr: Expr, columns: Collection[str]) -> bool:
    """Whether an expression is surely NULL in a row where all these columns are NULL."""
    if isinstance(expr, Ref):
        return expr.name in columns
    if isinstance(expr, Lit):
        return expr.value is None
    if expr.function in _STRICT:
        return any(is_null_with(arg, columns) for arg in expr.args)
    if expr.function == "in":
        return is_null_with(expr.args[0], columns)
    if expr.function in ("and", "or", "coalesce"):
        return all(is_null_with(arg, columns) for arg in expr.args)
    return False


def rejects(condition: Expr, columns: Collection[str]) -> bool:
    """Whether a condition is surely not true in a row where all these columns are NULL."""
    if is_null_with(condition, columns):
        return True
    if isinstance(condition, Lit):
        return condition.value is not True
    if not isinstance(condition, Call):
        return False
    match condition.function:
        case "and":
            return any(rejects(arg, columns) for arg in condition.args)
        case "or":
            return all(rejects(arg, columns) for arg in condition.args)
        case "is_true":
            return rejects(condition.args[0], columns)
        case "is_not_null" | "is_false":
            return is_null_with(condition.args[0], columns)
    return False
