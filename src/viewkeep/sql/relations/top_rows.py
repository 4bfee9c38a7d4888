"""Conditions on row numbers as TOP-K: the rows numbered 1 to n are the first n of each partition.

Law: Filter(Window(rows), number <= n and rest) = Filter(Window(TopK(rows, n)), rest), since a row's
number does not depend on the rows after it. Functions of other windows, and others of the same
window, do depend on them, so they are computed below the TopK.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeep.expr import Call, Expr, Lit, Ref, references
from viewkeep.plan.nodes import Node, TopK, Window, WindowCall
from viewkeep.types import INT


def first_rows(node: Node, conditions: Sequence[Expr]) -> tuple[Node, tuple[Expr, ...]]:
    """The rows of a node with a row number bounded from above, and the conditions left to check."""
    windows = list(_stack(node))
    for window in windows:
        for call in window.calls:
            if call.function != "row_number":
                continue
            most = [bound for one in conditions if (bound := _most(one, call.name)) is not None]
            others = [w for w in windows if w is not window]
            if most and not any(_reads(other, call.name) for other in others):
                return _cut(windows, window, call, min(most)), tuple(
                    one for one in conditions if not _holds(one, call.name, min(most))
                )
    return node, tuple(conditions)


def _stack(node: Node) -> Iterator[Window]:
    while isinstance(node, Window):
        yield node
        node = node.input


def _cut(windows: Sequence[Window], window: Window, call: WindowCall, most: int) -> Node:
    """The stack of windows with the call on top of it, over the first rows of each partition."""
    node = windows[-1].input
    for below in reversed(windows):
        calls = below.calls
        if below is window:
            calls = tuple(one for one in calls if one.name != call.name)
        if calls:
            node = Window(node, below.partition, below.order, calls)
    top = TopK(node, window.partition, window.order, max(most, 0))
    return Window(top, window.partition, window.order, (call,))


def _reads(window: Window, name: str) -> bool:
    """Whether a window is computed from a column."""
    ordered = (part.name for part in window.order)
    inner = (found for call in window.calls for arg in call.arguments for found in references(arg))
    return name in (*window.partition, *ordered, *inner)


def _compared(condition: Expr, name: str) -> tuple[str, int] | None:
    """A comparison of a column with a whole number: the function and the number."""
    if not isinstance(condition, Call) or len(condition.args) != 2:
        return None
    left, right = condition.args
    if left != Ref(name, INT) or not isinstance(right, Lit) or right.type != INT:
        return None
    return (condition.function, right.value) if isinstance(right.value, int) else None


def _most(condition: Expr, name: str) -> int | None:
    found = _compared(condition, name)
    if found is None or found[0] not in ("le", "lt", "eq"):
        return None
    return found[1] - (found[0] == "lt")


def _holds(condition: Expr, name: str, most: int) -> bool:
    """Whether a condition is true of all numbers from 1 to `most`."""
    found = _compared(condition, name)
    if found is None:
        return False
    function, number = found
    if function == "eq":
        return number == most == 1
    return function in ("le", "lt") and number - (function == "lt") >= most
