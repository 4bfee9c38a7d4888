"""A plan as text: an indented tree, one line per node, the result first.

Law: equal plans have equal texts. Columns that are passed on as they are stand without their
expression, so a line says what its node does and no more.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeep.plan.nodes import Node


def show(node: Node) -> str:
    """The tree of a plan, without a line break at its end."""
    return "\n".join(_lines(node, 0))


def _lines(node: Node, depth: int) -> Iterator[str]:
    yield "  " * depth + node.line
    for below in node.inputs:
        yield from _lines(below, depth + 1)
