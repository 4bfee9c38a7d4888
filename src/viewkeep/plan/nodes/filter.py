"""SELECTION."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeep.expr import Expr, references
from viewkeep.plan.conditions import TRUE, conjunction, conjuncts
from viewkeep.plan.nodes.facts import of_one_column
from viewkeep.plan.nodes.node import Change, Node, StepNode
from viewkeep.types import Column


@dataclass(frozen=True, eq=False)
class Filter(StepNode):
    """SELECTION: the rows for which `predicate` is true."""

    input: Node
    predicate: Expr

    computes = False

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return self.input.row_key

    @property
    def line(self) -> str:
        return f"filter {self.predicate}"

    @property
    def title(self) -> str:
        return f"σ SELECTION {self.predicate}"

    def expressions(self) -> Iterator[Expr]:
        yield self.predicate

    def mapped(self, change: Change, inputs: tuple[Node, ...]) -> Node:
        return Filter(inputs[0], change(self.predicate))

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        return ({*needed, *references(self.predicate)},)

    def moved(self, condition: Expr) -> Expr | None:
        return condition

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return below[0]

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        return (*below[0], *filter(of_one_column, conjuncts(self.predicate)))


def filtered(node: Node, conditions: Iterable[Expr]) -> Node:
    """The rows of a node for which all conditions are true: by one Filter, or by none."""
    if isinstance(node, Filter):
        conditions = (node.predicate, *conditions)
        node = node.input
    predicate = conjunction(conditions)
    return node if predicate == TRUE else Filter(node, predicate)
