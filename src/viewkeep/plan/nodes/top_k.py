"""TOP-K."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from viewkeep.plan.nodes.node import Node, PartitionNode, need
from viewkeep.plan.nodes.parts import KeyPart, placed_line, placed_title
from viewkeep.types import Column


@dataclass(frozen=True, eq=False)
class TopK(PartitionNode):
    """TOP-K: of each partition the rows after the first `offset`, at most `limit`, in an order.

    Rows that the order does not tell apart follow their row key. `limit` None means all.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[KeyPart, ...]
    limit: int | None
    offset: int = 0

    computes = False

    def __post_init__(self) -> None:
        need(self.ordered_by, self.input.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    @property
    def line(self) -> str:
        limit = "all" if self.limit is None else str(self.limit)
        offset = f" after {self.offset}" if self.offset else ""
        return f"top {limit}{offset}{placed_line(self.partition, self.order)}"

    def title(self, local: bool) -> str:
        after = f" after {self.offset}" if self.offset else ""
        first = "rows" if self.limit is None else f"TOP-K {self.limit}"
        return f"⊤ {first}{after}{placed_title(self.partition, self.order)}"

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        return ({*needed, *self.ordered_by},)
