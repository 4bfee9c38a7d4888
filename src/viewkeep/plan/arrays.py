"""Refuses plans that compute with arrays: an ARRAY is made by an aggregate, carried, and shown.

Law: in a plan that passes, no expression has an ARRAY as an argument, except to ask for NULL or to
choose it, and no rows are grouped, ordered or matched by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, calls
from viewkeep.plan.nodes import (
    Aggregate,
    Arrange,
    Filter,
    Join,
    Node,
    Project,
    TopK,
    Union,
    Window,
    nodes,
)

_CARRIES = ("is_null", "is_not_null", "case", "coalesce")
_HINT = "Use its elements before they are collected, or STRING_AGG"


def refuse_arrays(node: Node, order: Iterable[str] = ()) -> None:
    """Refuse a plan that does more with an ARRAY than to show it; `order` is of its result."""
    _refuse_keys(node, order)
    for one in nodes([node]):
        _refuse_keys(one, _keys(one))
        for call in calls(_expressions(one)):
            if call.function not in _CARRIES and any(arg.type.is_array for arg in call.args):
                raise Unsupported("an ARRAY is shown, not computed with", hint=_HINT)


def _refuse_keys(node: Node, names: Iterable[str]) -> None:
    arrays = {column.name for column in node.columns if column.type.is_array}
    if arrays.intersection(names):
        raise Unsupported("nothing is grouped, ordered or matched by an ARRAY", hint=_HINT)


def _keys(node: Node) -> Iterator[str]:
    if isinstance(node, Arrange | TopK | Window | Aggregate | Union):
        yield from node.row_key
    if isinstance(node, TopK | Window):
        yield from node.partition
        yield from (part.name for part in node.order)


def _expressions(node: Node) -> Iterator[Expr]:
    match node:
        case Filter():
            yield node.predicate
        case Project():
            yield from (out.expr for out in node.outputs)
        case Aggregate():
            yield from (key.expr for key in node.keys)
            yield from (call.argument for call in node.aggregates if call.argument is not None)
        case Join():
            for match in node.on:
                if match.left.type.is_array:
                    raise Unsupported("nothing is matched by an ARRAY", hint=_HINT)
                yield from (match.left, match.right)
        case Window():
            for call in node.calls:
                if any(argument.type.is_array for argument in call.arguments):
                    raise Unsupported(f"{call.function} of an ARRAY is not taken", hint=_HINT)
                yield from call.arguments
