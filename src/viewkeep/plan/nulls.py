"""Which expressions are never NULL, whatever the rows.

Law: a True is certain; a False only says that it is not known.
"""

from __future__ import annotations

from viewkeep.expr import Expr, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    Arrange,
    Filter,
    Join,
    Node,
    Project,
    Source,
    TopK,
    Union,
    Window,
)
from viewkeep.types import BIGINT, DOUBLE

_COUNTS = ("count_star", "count", "count_distinct")
_TESTS = ("is_null", "is_not_null", "is_true", "is_false", "null_safe_eq")


def never_null(expr: Expr, node: Node) -> bool:
    """Whether an expression over a node's columns has a value in every row."""
    if isinstance(expr, Lit):
        return expr.value is not None
    if isinstance(expr, Ref):
        return _column(expr.name, node)
    if expr.function in _TESTS:
        return True
    if expr.function == "coalesce":
        return any(never_null(arg, node) for arg in expr.args)
    if expr.function == "cast":
        (given,) = expr.args
        return given.type.is_integer and expr.type in (BIGINT, DOUBLE) and never_null(given, node)
    return False


def _column(name: str, node: Node) -> bool:
    match node:
        case Source():
            return any(c.name == name and not c.nullable for c in node.columns)
        case Filter() | TopK() | Arrange():
            return _column(name, node.input)
        case Window():
            return any(c.name == name for c in node.input.columns) and _column(name, node.input)
        case Project():
            return any(o.name == name and never_null(o.expr, node.input) for o in node.outputs)
        case Aggregate():
            if any(call.name == name and call.function in _COUNTS for call in node.aggregates):
                return True
            return any(key.name == name and never_null(key.expr, node.input) for key in node.keys)
        case Join():
            ends = [ref for m in node.on if not m.null_safe for ref in (m.left, m.right)]
            if node.kind == "inner" and any(e == Ref(name, e.type) for e in ends):
                return True
            if any(column.name == name for column in node.left.columns):
                return _column(name, node.left)
            return node.kind == "inner" and _column(name, node.right)
        case Union():
            return all(_column(name, part) for part in node.inputs)
    return False
