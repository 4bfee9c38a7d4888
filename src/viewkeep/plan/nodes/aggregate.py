"""PRE-AGGREGATION: one row per group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from viewkeep.expr import Expr, Ref
from viewkeep.ops.aggregates.accumulators import Accumulators, accumulators
from viewkeep.ops.aggregates.call import AggregateCall
from viewkeep.plan.conditions import is_small, reads, rewritten_small
from viewkeep.plan.nodes.facts import renamed_facts
from viewkeep.plan.nodes.node import Change, Node, StatefulNode, TableShape, columns_read
from viewkeep.plan.nodes.nulls import has_value
from viewkeep.plan.nodes.parts import KeyPart, Named, named_text
from viewkeep.types import Column


@dataclass(frozen=True, eq=False)
class Aggregate(StatefulNode):
    """COUNT, SUM, MIN ... of the input's rows per group. No keys: one row, even of no input."""

    input: Node
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        made = tuple(call.column for call in self.aggregates)
        return tuple(key.column for key in self.keys) + made

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    @property
    def line(self) -> str:
        by = f" by {named_text(self.keys)}" if self.keys else ""
        calls = ", ".join(call.line for call in self.aggregates)
        return "aggregate" + (f" {calls}" if calls else "") + by

    def title(self, local: bool) -> str:
        calls = ", ".join(call.title for call in self.aggregates) or "DISTINCT"
        by = ", ".join(str(key.expr) for key in self.keys)
        return f"γ {calls}" + (f" by {by}" if by else "")

    def expressions(self) -> Iterator[Expr]:
        yield from (key.expr for key in self.keys)
        for call in self.aggregates:
            yield from call.expressions()

    def mapped(self, change: Change, inputs: tuple[Node, ...]) -> Node:
        keys = tuple(Named(key.name, change(key.expr)) for key in self.keys)
        return Aggregate(inputs[0], keys, tuple(call.mapped(change) for call in self.aggregates))

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        exprs = [key.expr for key in self.keys]
        for call in self._wanted(needed):
            exprs += call.expressions()
        return (columns_read(exprs),)

    def _wanted(self, needed: Collection[str]) -> tuple[AggregateCall, ...]:
        calls = tuple(call for call in self.aggregates if call.name in needed)
        return calls or (() if self.keys else self.aggregates[:1])

    def without_unused(self, needed: Collection[str]) -> Node:
        calls = self._wanted(needed)
        return self if len(calls) == len(self.aggregates) else replace(self, aggregates=calls)

    def moved(self, condition: Expr) -> Expr | None:
        by = {key.name: key.expr for key in self.keys}
        if not by or not reads(condition, by):
            return None
        made = rewritten_small(condition, by)
        return made if made is not None and is_small([made]) else None

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        counts = {call.name for call in self.aggregates if call.entry.is_never_null}
        return counts | {key.name for key in self.keys if has_value(key.expr, below[0])}

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        return renamed_facts(below[0], self.keys)

    @property
    def has_one_row(self) -> bool:
        return not self.keys

    @cached_property
    def accumulators(self) -> Accumulators:
        """What it keeps per group: totals, ordered values, and how outputs are made of them."""
        return accumulators(self.aggregates)

    def tables(self, by_row_key: bool) -> tuple[TableShape, ...]:
        group = tuple(KeyPart(name) for name in self.row_key)
        keys = tuple(key.column for key in self.keys)
        kept, width = self.accumulators, len(group)
        shapes = [TableShape("groups", keys + kept.columns, group, self.row_key, width)]
        for order in kept.ordered:
            parts = tuple(map(KeyPart, order.names, order.descending))
            columns, key = (*keys, *order.columns), (*group, *parts)
            purpose = f"values of {order.text}"
            shapes.append(TableShape(purpose, columns, key, self.row_key, width))
        return tuple(shapes)

    def copied_from(self, column: str) -> str | None:
        expr = next(key.expr for key in self.keys if key.name == column)
        return expr.name if isinstance(expr, Ref) else None
