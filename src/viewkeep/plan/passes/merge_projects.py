"""Projections that follow one another become one."""

from __future__ import annotations

from dataclasses import replace

from viewkeep.plan.conditions import is_small, rewritten, rewritten_small
from viewkeep.plan.nodes import Aggregate, Arrange, Named, Node, Project, inputs
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.rebuild import is_narrowing, over, projected


def merge_projects(node: Node, goal: Goal) -> Node:
    """Same rows, same columns: no projection stands on another, under an Aggregate, or idle."""
    return _merged(node)


def _merged(node: Node) -> Node:
    if isinstance(node, Arrange):
        return node
    node = over(node, tuple(map(_merged, inputs(node))))
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
    read = [key.expr for key in node.keys]
    read += [call.argument for call in node.aggregates if call.argument is not None]
    read += [part.expr for call in node.aggregates for part in call.by]
    if any(rewritten_small(expr, by) is None for expr in read):
        return node
    keys = tuple(Named(key.name, rewritten(key.expr, by)) for key in node.keys)
    calls = tuple(
        replace(
            call,
            argument=None if call.argument is None else rewritten(call.argument, by),
            by=tuple(replace(part, expr=rewritten(part.expr, by)) for part in call.by),
        )
        for call in node.aggregates
    )
    exprs = [key.expr for key in keys]
    exprs += [call.argument for call in calls if call.argument is not None]
    if not is_small(exprs + [part.expr for call in calls for part in call.by]):
        return node
    return Aggregate(below.input, keys, calls)
