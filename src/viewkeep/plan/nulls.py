"""Which expressions are never NULL, whatever the rows.

Law: a True is certain; a False only says that it is not known. What is known of a node follows from
what is known of its inputs and is kept with the node, so nothing recurses with the depth of a plan
and what is shared is looked at once.
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
    inputs,
)
from viewkeep.types import BIGINT, DOUBLE

_COUNTS = ("count_star", "count", "count_distinct")
_TESTS = ("is_null", "is_not_null", "is_true", "is_false", "null_safe_eq")
_KEPT = "never_null"  # not a field of nodes: it follows from the fields


def never_null(expr: Expr, node: Node) -> bool:
    """Whether an expression over a node's columns has a value in every row."""
    return _has_value(expr, _columns(node))


def _has_value(expr: Expr, known: frozenset[str]) -> bool:
    if isinstance(expr, Lit):
        return expr.value is not None
    if isinstance(expr, Ref):
        return expr.name in known
    if expr.function in _TESTS:
        return True
    if expr.function == "coalesce":
        return any(_has_value(arg, known) for arg in expr.args)
    if expr.function == "cast":
        (given,) = expr.args
        return given.type.is_integer and expr.type in (BIGINT, DOUBLE) and _has_value(given, known)
    return False


def _columns(node: Node) -> frozenset[str]:
    """The columns of a node that are never NULL."""
    waiting = [node]
    while waiting:
        one = waiting[-1]
        unknown = [below for below in inputs(one) if _KEPT not in below.__dict__]
        if _KEPT not in one.__dict__ and unknown:
            waiting.extend(unknown)
            continue
        waiting.pop()
        if _KEPT not in one.__dict__:
            one.__dict__[_KEPT] = frozenset(_of(one, [b.__dict__[_KEPT] for b in inputs(one)]))
    found: frozenset[str] = node.__dict__[_KEPT]
    return found


def _of(node: Node, below: list[frozenset[str]]) -> set[str] | frozenset[str]:
    match node:
        case Source():
            return {column.name for column in node.columns if not column.nullable}
        case Filter() | TopK() | Arrange() | Window():
            return below[0]
        case Project():
            return {out.name for out in node.outputs if _has_value(out.expr, below[0])}
        case Aggregate():
            counts = {call.name for call in node.aggregates if call.function in _COUNTS}
            return counts | {key.name for key in node.keys if _has_value(key.expr, below[0])}
        case Join(kind="inner"):
            ends = [end for m in node.on if not m.null_safe for end in (m.left, m.right)]
            return below[0] | below[1] | {end.name for end in ends if isinstance(end, Ref)}
        case Join():
            return below[0]
        case Union():
            return frozenset.intersection(*below)
    return frozenset()
