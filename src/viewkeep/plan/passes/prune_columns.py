"""Columns that nobody reads are not computed, and not kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from viewkeep.expr import Expr, references
from viewkeep.plan.conditions import reads
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Fence,
    Filter,
    Join,
    Node,
    Project,
    Source,
    TopK,
    Union,
    Values,
    Window,
    inputs,
)
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.matches import covers
from viewkeep.plan.passes.rebuild import (
    is_narrowing,
    names,
    narrowed,
    over,
    projected,
    united,
)


def prune_columns(node: Node, goal: Goal) -> Node:
    """Same rows, the wanted columns: what is computed is read above, or is part of a row key.

    Inputs of joins, TopK and Window, which keep rows, have the needed columns alone. A left join
    that gives each row at most one partner of whom nothing is read goes away.
    """
    return pruned(node, goal.wanted)


def needs(node: Node, needed: Collection[str]) -> tuple[set[str], ...]:
    """The columns that a node reads of each input, to have the needed ones and its row key.

    That is at least one column: rows without columns are no rows.
    """
    return tuple(
        read if read or below.row_key else {min(names(below))}
        for below, read in zip(inputs(node), _reads(node, needed), strict=True)
    )


def _reads(node: Node, needed: Collection[str]) -> tuple[set[str], ...]:
    match node:
        case Source() | Values() | Arrange() | Fence():
            return ()
        case Filter():
            return ({*needed, *references(node.predicate)},)
        case Project():
            held = {*needed, *node.row_key}
            return (_read(out.expr for out in node.outputs if out.name in held),)
        case Union():
            kept = {*needed, *node.row_key, *(name for b in node.inputs for name in b.row_key)}
            return (kept & names(node),) * len(node.inputs)
        case Aggregate():
            calls = _kept(node, needed)
            read = _read(key.expr for key in node.keys)
            read |= _read(call.argument for call in calls if call.argument is not None)
            return (read | _read(part.expr for call in calls for part in call.by),)
        case TopK():
            return ({*needed, *node.partition, *(part.name for part in node.order)},)
        case Window():
            read = {*needed, *node.partition, *(part.name for part in node.order)}
            read -= {call.name for call in node.calls}
            calls_read = [call for call in node.calls if call.name in needed]
            return (read | _read(arg for call in calls_read for arg in call.arguments),)
        case Join():
            left = {*needed, *_read(match.left for match in node.on)} & names(node.left)
            right = _read(match.right for match in node.on)
            right |= set(needed) & names(node.right) if node.shows_right else set()
            return left, right


def pruned(node: Node, needed: Collection[str]) -> Node:
    """The node with the needed columns, its row key, and maybe others that cost nothing."""
    if isinstance(node, Values):
        return _pruned_values(node, needed)
    if is_narrowing(node):
        return pruned(inputs(node)[0], needed)
    if isinstance(node, Window):
        node = replace(node, calls=tuple(call for call in node.calls if call.name in needed))
        if not node.calls:
            return pruned(node.input, needed)
    if isinstance(node, Aggregate):
        node = replace(node, aggregates=_kept(node, needed))
    if isinstance(node, Join) and _is_idle(node, needed):
        return pruned(node.left, needed)
    read = needs(node, needed)
    below = tuple(map(pruned, inputs(node), read))
    if isinstance(node, Join | TopK | Window | Union):
        below = tuple(map(narrowed, below, read))
    if isinstance(node, Project):
        return _pruned_project(node, below[0], needed)
    if isinstance(node, Union):
        return united(below, node.row_key, read[0])
    return over(node, below)


def _read(exprs: Iterable[Expr]) -> set[str]:
    return {name for expr in exprs for name in references(expr)}


def _pruned_values(node: Values, needed: Collection[str]) -> Node:
    kept = [i for i, c in enumerate(node.columns) if c.name in needed or c.name in node.row_key]
    kept = kept or [0]
    columns = tuple(node.columns[i] for i in kept)
    return Values(columns, tuple(tuple(row[i] for i in kept) for row in node.rows), node.row_key)


def _kept(node: Aggregate, needed: Collection[str]) -> tuple[AggregateCall, ...]:
    calls = tuple(call for call in node.aggregates if call.name in needed)
    return calls or (() if node.keys else node.aggregates[:1])


def _is_idle(node: Join, needed: Collection[str]) -> bool:
    """Whether a join neither adds nor removes rows, nor a column that is needed."""
    if node.kind != "left" or names(node.right) & set(needed):
        return False
    return covers([match.right for match in node.on], node.right)


def _pruned_project(node: Project, below: Node, needed: Collection[str]) -> Node:
    have, held = names(below), {*needed, *node.row_key}
    outputs = [out for out in node.outputs if out.name in held and reads(out.expr, have)]
    outputs = outputs or [out for out in node.outputs if reads(out.expr, have)][:1]
    made = projected(below, outputs)
    return below if is_narrowing(made) else made
