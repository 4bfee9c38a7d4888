"""Projections that follow one another become one."""

from __future__ import annotations

from viewkeep.plan.conditions import is_small, rewritten, rewritten_small
from viewkeep.plan.nodes import Aggregate, Named, Node, Project, is_narrowing, over, projected
from viewkeep.plan.passes.goal import Goal


def merge_projects(node: Node, goal: Goal) -> Node:
    """Same rows, same columns: no projection stands on another, under an Aggregate, or idle."""
    return _merged(node)


def _merged(node: Node) -> Node:
    node = over(node, tuple(map(_merged, node.inputs)))
    if isinstance(node, Project):
        return merged_project(node)
    if isinstance(node, Aggregate) and isinstance(node.input, Project):
        return _merged_aggregate(node, node.input)
    return node


def merged_project(node: Project) -> Node:
    if isinstance(node.input, Project):
        by = {out.name: out.expr for out in node.input.outputs}
        made = [(out.name, rewritten_small(out.expr, by)) for out in node.outputs]
        outputs = [Named(name, expr) for name, expr in made if expr is not None]
        if len(outputs) == len(made) and is_small(out.expr for out in outputs):
            return merged_project(projected(node.input.input, outputs))
    # A union puts the columns of its inputs into one order itself.
    if is_narrowing(node) and len(node.columns) == len(node.input.columns):
        return node.input
    return node


def _merged_aggregate(node: Aggregate, below: Project) -> Node:
    by = {out.name: out.expr for out in below.outputs}
    if any(rewritten_small(expr, by) is None for expr in node.expressions()):
        return node
    made = node.mapped(lambda expr: rewritten(expr, by), (below.input,))
    return made if is_small(made.expressions()) else node
