"""Scalar functions: what each is called, how it is typed, and its kernel.

Law: `call` is the only way to build a typed call; it gives each argument the cast its function asks
for, so a kernel never meets a type it did not ask for.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from viewkeep.errors import UnknownName
from viewkeep.expr import Call, Expr, Lit
from viewkeep.ops.functions import (
    arithmetic,
    bits,
    calendar,
    casts,
    conditional,
    hashes,
    instants,
    logic,
    math,
    patterns,
    strings,
)
from viewkeep.ops.functions.coercion import VOID
from viewkeep.ops.functions.function import Function, Site
from viewkeep.types import DataType

FAMILIES: dict[str, tuple[Function, ...]] = {
    "Logic and comparison": logic.FUNCTIONS,
    "Arithmetic": arithmetic.FUNCTIONS,
    "Choice": conditional.FUNCTIONS,
    "Casts": casts.FUNCTIONS,
    "Mathematics": math.FUNCTIONS,
    "Bits": bits.FUNCTIONS,
    "Strings": strings.FUNCTIONS,
    "Patterns": patterns.FUNCTIONS,
    "Hashes": hashes.FUNCTIONS,
    "Dates": calendar.FUNCTIONS,
    "Instants": instants.FUNCTIONS,
}
FUNCTIONS: dict[str, Function] = {
    function.name: function for family in FAMILIES.values() for function in family
}
NAMES: dict[str, Function] = FUNCTIONS | {
    alias: function for function in FUNCTIONS.values() for alias in function.aliases
}
_REPEATED = {"nullif": (0, 0, 1)}
"""Functions that take an argument twice, because it is wanted in two types."""


def call(name: str, args: Sequence[Expr]) -> Expr:
    """A typed call of the function `name` (or an alias of it) with its arguments cast."""
    function = NAMES.get(name)
    if function is None:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise UnknownName(
            f"there is no function {name}", hint=f"Did you mean {near[0]}?" if near else None
        )
    if name in _REPEATED and len(args) == 2:
        args = [args[i] for i in _REPEATED[name]]
    constants = {i: arg.value for i, arg in enumerate(args) if isinstance(arg, Lit)}
    wanted, result = function.resolve([arg.type for arg in args], constants)
    return Call(function.name, tuple(map(cast_to, args, wanted)), result)


def cast_to(expr: Expr, target: DataType) -> Expr:
    """The expression as `target`; itself if it has that type already."""
    if expr.type == target:
        return expr
    if isinstance(expr, Lit) and expr.value is None:
        return Lit(None, target)
    casts.check(expr.type, target)
    return Call("cast", (expr,), target)


__all__ = ["FAMILIES", "FUNCTIONS", "NAMES", "VOID", "Function", "Site", "call", "cast_to"]
