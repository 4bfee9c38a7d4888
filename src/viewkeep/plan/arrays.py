"""Refuses plans that compute with arrays: an ARRAY is made by an aggregate, carried, and shown.

Law: in a plan that passes, no expression has an ARRAY as an argument, except to ask for NULL or to
choose it, and no rows are grouped, ordered or matched by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeep.errors import Unsupported
from viewkeep.expr import calls
from viewkeep.plan.nodes import CARRIED, Node, nodes

_CARRIES = ("is_null", "is_not_null", "case", "coalesce")


def refuse_arrays(node: Node, order: Iterable[str] = ()) -> None:
    """Refuse a plan that does more with an ARRAY than to show it; `order` is of its result."""
    _refuse_keys(node, order)
    for one in nodes([node]):
        _refuse_keys(one, one.compared)
        for call in calls(one.expressions()):
            if call.function not in _CARRIES and any(arg.type.is_array for arg in call.args):
                raise Unsupported("an ARRAY is shown, not computed with", hint=CARRIED)


def _refuse_keys(node: Node, names: Iterable[str]) -> None:
    arrays = {column.name for column in node.columns if column.type.is_array}
    if arrays.intersection(names):
        raise Unsupported("nothing is grouped, ordered or matched by an ARRAY", hint=CARRIED)
