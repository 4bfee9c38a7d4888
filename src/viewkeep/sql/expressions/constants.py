"""Constants as they are written: numbers with the types that Spark gives them, text, bytes."""

from __future__ import annotations

import math
from decimal import Decimal

from sqlglot import exp

from viewkeep.errors import TypeMismatch
from viewkeep.expr import Lit
from viewkeep.ops.functions import VOID
from viewkeep.types import BIGINT, BINARY, BOOLEAN, DOUBLE, INT, STRING, decimal


def constant(tree: exp.Expr) -> Lit | None:
    """The constant that a syntax tree is; None if it is none."""
    if isinstance(tree, exp.Literal):
        return Lit(tree.name, STRING) if tree.is_string else number(tree.name)
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal):
        # The sign belongs to the number, or the least INT and BIGINT could not be written.
        return None if tree.this.is_string else number(f"-{tree.this.name}")
    if isinstance(tree, exp.Boolean):
        return Lit(bool(tree.this), BOOLEAN)
    if isinstance(tree, exp.Null):
        return Lit(None, VOID)
    if isinstance(tree, exp.HexString):
        return Lit(bytes.fromhex(tree.name), BINARY)
    if isinstance(tree, exp.RawString):
        return Lit(tree.name, STRING)
    return None


def position(tree: exp.Expr) -> int | None:
    """The integer that an item of ORDER BY or GROUP BY is, which points at the select list."""
    found = constant(tree) if isinstance(tree, exp.Literal | exp.Neg) else None
    return found.value if found is not None and type(found.value) is int else None


def number(text: str) -> Lit:
    """A number: INT, BIGINT or DECIMAL by its size, DECIMAL with a point, DOUBLE with an e."""
    if "e" in text.lower():
        value = float(text)
        if math.isinf(value):
            raise TypeMismatch(f"{text} is too large for DOUBLE")
        return Lit(value + 0.0, DOUBLE)
    exact = Decimal(text)
    if "." not in text:
        if -(2**31) <= exact < 2**31:
            return Lit(int(exact), INT)
        if -(2**63) <= exact < 2**63:
            return Lit(int(exact), BIGINT)
    scale = -int(exact.as_tuple().exponent)
    digits = max(len(exact.as_tuple().digits), scale, 1)
    if digits > 38:
        raise TypeMismatch(f"{text} has {digits} digits; a DECIMAL has 38")
    return Lit(exact, decimal(digits, scale))
