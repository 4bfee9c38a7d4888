"""WINDOW."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from viewkeep.expr import Expr
from viewkeep.plan.nodes.calls import WindowCall
from viewkeep.plan.nodes.node import Change, Node, PartitionNode, columns_read, need
from viewkeep.plan.nodes.parts import KeyPart, placed_line, placed_title
from viewkeep.types import Column


@dataclass(frozen=True, eq=False)
class Window(PartitionNode):
    """WINDOW: each row with the values of functions over its partition, in an order.

    Rows that the order does not tell apart follow their row key where a function has to choose.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[KeyPart, ...]
    calls: tuple[WindowCall, ...]

    def __post_init__(self) -> None:
        need(self.ordered_by, self.input.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(call.column for call in self.calls)

    @property
    def line(self) -> str:
        calls = ", ".join(call.line for call in self.calls)
        return f"window {calls}{placed_line(self.partition, self.order)}"

    def title(self, local: bool) -> str:
        calls = ", ".join(call.name for call in self.calls)
        return f"⊞ WINDOW {calls}{placed_title(self.partition, self.order)}"

    def expressions(self) -> Iterator[Expr]:
        return (argument for call in self.calls for argument in call.arguments)

    def mapped(self, change: Change, inputs: tuple[Node, ...]) -> Node:
        calls = tuple(
            replace(call, arguments=tuple(map(change, call.arguments))) for call in self.calls
        )
        return replace(self, input=inputs[0], calls=calls)

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        read = {*needed, *self.ordered_by} - {call.name for call in self.calls}
        computed = [call for call in self.calls if call.name in needed]
        return (read | columns_read(arg for call in computed for arg in call.arguments),)

    def without_unused(self, needed: Collection[str]) -> Node:
        calls = tuple(call for call in self.calls if call.name in needed)
        if not calls:
            return self.input
        return self if len(calls) == len(self.calls) else replace(self, calls=calls)
