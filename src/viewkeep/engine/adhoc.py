"""Evaluates a plan once over given rows, with the same operators that keep views.

Law: the result is what the view of the same plan would hold had it seen these rows as insertions.
What an operator will hold is taken from the budget before it is made: the rows of a join are
counted first, and expressions are computed a batch at a time. All rows are held until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from viewkeep.deferred import pl
from viewkeep.engine.batches import filter_batches, project_batches
from viewkeep.engine.budget import Budget
from viewkeep.engine.operators import EXECUTORS
from viewkeep.plan.nodes import Filter, Node, Project, Source, Union, Values, nodes

RowsOf: TypeAlias = "Callable[[Source], pl.DataFrame]"


def evaluate(
    node: Node,
    rows_of: RowsOf,
    known: dict[str, pl.DataFrame] | None = None,
    budget: Budget | None = None,
) -> pl.DataFrame:
    """The rows of a plan node, given the rows of each base table it reads.

    `known` gets the rows of every node below by its id, so that what comes twice is computed once.
    """
    known = {} if known is None else known
    budget = Budget() if budget is None else budget
    for part in nodes([node]):
        if part.id not in known:
            budget.check()
            if isinstance(part, Source):
                known[part.id] = rows_of(part)
                continue
            known[part.id] = evaluated(part, [known[one.id] for one in part.inputs], budget)
    return known[node.id]


def evaluated(node: Node, below: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
    """The rows of a node that is no base table, given those of its inputs."""
    stateless = _STATELESS.get(type(node))
    if stateless is not None:
        return stateless(node, below, budget)
    return EXECUTORS[type(node)].whole(node, below, budget)


def _values(node: Values, below: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
    schema = {column.name: column.type.polars for column in node.columns}
    return pl.DataFrame(node.rows, schema=schema, orient="row")


def _union(node: Union, below: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
    names = [column.name for column in node.columns]
    return pl.concat([rows.select(names) for rows in below])


def _filter(node: Filter, below: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
    return filter_batches(below[0], node.predicate, budget)


def _project(node: Project, below: Sequence[pl.DataFrame], budget: Budget) -> pl.DataFrame:
    outputs = [(out.name, out.expr) for out in node.outputs]
    return project_batches(below[0], outputs, (), budget)


_STATELESS: dict[type, Callable[[Any, Sequence[pl.DataFrame], Budget], pl.DataFrame]] = {
    Values: _values,
    Union: _union,
    Filter: _filter,
    Project: _project,
}
"""Nodes that are no operators."""
