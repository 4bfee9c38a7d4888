"""Which expressions are never NULL, whatever the rows.

Law: a True is certain; a False only says that it is not known. What is known of a node follows from
what is known of its inputs and is kept with the node, so nothing recurses with the depth of a plan
and what is shared is looked at once.
"""

from __future__ import annotations

from collections.abc import Collection

from viewkeep.expr import Expr, Lit, Ref
from viewkeep.plan.nodes.node import Node
from viewkeep.types import BIGINT, DOUBLE

_TESTS = ("is_null", "is_not_null", "is_true", "is_false", "null_safe_eq")
_KEPT = "#never_null"  # not a field of nodes: it follows from the fields


def never_null(expr: Expr, node: Node) -> bool:
    """Whether an expression over a node's columns has a value in every row."""
    return has_value(expr, _columns(node))


def has_value(expr: Expr, known: Collection[str]) -> bool:
    """Whether an expression has a value where these columns have one."""
    if isinstance(expr, Lit):
        return expr.value is not None
    if isinstance(expr, Ref):
        return expr.name in known
    if expr.function in _TESTS:
        return True
    if expr.function == "coalesce":
        return any(has_value(arg, known) for arg in expr.args)
    if expr.function == "cast":
        (given,) = expr.args
        return given.type.is_integer and expr.type in (BIGINT, DOUBLE) and has_value(given, known)
    return False


def _columns(node: Node) -> frozenset[str]:
    """The columns of a node that are never NULL."""
    waiting = [node]
    while waiting:
        one = waiting[-1]
        unknown = [below for below in one.inputs if _KEPT not in below.__dict__]
        if _KEPT not in one.__dict__ and unknown:
            waiting.extend(unknown)
            continue
        waiting.pop()
        if _KEPT not in one.__dict__:
            known = [below.__dict__[_KEPT] for below in one.inputs]
            one.__dict__[_KEPT] = frozenset(one.never_null(known))
    found: frozenset[str] = node.__dict__[_KEPT]
    return found
