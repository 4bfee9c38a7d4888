"""Which operators views are made of: what each reads, and through which steps.

Pre-processing: a reader reads arrangements (`plan.nodes.arrangements`). Fusing: filters,
projections and unions are no operators, but steps on the way into one, run in memory on each delta.
Sharing: equal nodes, which have equal ids, are one part, whoever asks for them. Law: a part is a
function of its node alone, so how a plan is cut does not depend on what else is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from viewkeep.errors import QueryTooLarge
from viewkeep.plan.nodes import (
    Aggregate,
    Arrange,
    CellSource,
    Delta,
    KeyPart,
    Node,
    OperatorNode,
    ReaderNode,
    Side,
    Source,
    StatefulNode,
    Union,
    Values,
    View,
    strip,
)
from viewkeep.plan.operators import Steps

MOST_BRANCHES: Final = 10_000
"""Ways from tables and operators into one operator. Unions of unions multiply them."""

Producer: TypeAlias = Source | Values | OperatorNode


@dataclass(frozen=True)
class Branch:
    """A way into an operator: who makes the rows, and what is done to each."""

    producer: Producer
    steps: Steps


@dataclass(frozen=True)
class Unplaced:
    """An operator that is not placed yet. One with state has branches, a reader has sides."""

    node: OperatorNode
    branches: tuple[Branch, ...] = ()
    sides: tuple[Side, ...] = ()

    @property
    def below(self) -> Iterator[OperatorNode]:
        """The operators that it stands on."""
        for branch in self.branches:
            if not isinstance(branch.producer, Source | Values):
                yield branch.producer
        yield from (side.node for side in self.sides)


def root(view: View) -> StatefulNode:
    """The operator whose table a view reads: its own, or the Aggregate that has it already."""
    producer, steps = strip(view.node.input)
    if isinstance(producer, Aggregate) and not steps and _has_key(view.node, producer.row_key):
        return producer
    return view.node


def connect(roots: Iterable[StatefulNode], known: Iterable[str] = ()) -> dict[str, Unplaced]:
    """The parts that these operators stand on and that are not `known`, producers first."""
    made: dict[str, Unplaced] = {}
    there = set(known)
    waiting = list[OperatorNode | Unplaced](roots)[::-1]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Unplaced):
            made[one.node.id] = one
        elif one.id not in there:
            there.add(one.id)
            part = fused(one)
            waiting.append(part)
            waiting.extend(list(part.below)[::-1])
    return made


def fused(node: OperatorNode) -> Unplaced:
    """A node with the arrangements that it reads, or the producers below its stateless steps."""
    if isinstance(node, ReaderNode):
        return Unplaced(node, sides=node.sides())
    if isinstance(node, Delta):
        return Unplaced(node, branches=(Branch(node.input, ()),))
    assert isinstance(node, StatefulNode)
    return Unplaced(node, branches=tuple(_branches(node.input)))


def _branches(node: Node) -> Iterator[Branch]:
    """The ways into a node: several where there is a Union."""
    waiting: list[tuple[Node, Steps]] = [(node, ())]
    count = 0
    while waiting:
        node, after = waiting.pop()
        below, steps = strip(node)
        if isinstance(below, Union):
            waiting.extend((one, steps + after) for one in reversed(below.inputs))
        elif isinstance(below, Producer):
            count += 1
            if count > MOST_BRANCHES:
                raise QueryTooLarge(
                    f"UNION ALL reads its tables in more than {MOST_BRANCHES:,} branches",
                    hint="Read a view once and repeat its rows by a join, or use UNION",
                )
            made = Delta(below) if isinstance(below, CellSource) else below
            yield Branch(made, steps + after)
        else:
            raise ValueError(f"{type(below).__name__} produces no rows by itself")


def _has_key(node: Arrange, key: tuple[str, ...]) -> bool:
    return node.key == tuple(KeyPart(name) for name in key)
