"""PROJECTION, and projections that rename, narrow or order the columns of a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeep.expr import Expr, Ref, unused
from viewkeep.plan.conditions import is_small, reads, rewritten_small
from viewkeep.plan.nodes.facts import renamed_facts
from viewkeep.plan.nodes.node import Change, Node, StepNode, columns_read, names
from viewkeep.plan.nodes.nulls import has_value
from viewkeep.plan.nodes.parts import Named, named_text
from viewkeep.types import Column


@dataclass(frozen=True, eq=False)
class Project(StepNode):
    """PROJECTION: computed columns. Keeps the input's row key among its outputs, maybe renamed."""

    input: Node
    outputs: tuple[Named, ...]

    def __post_init__(self) -> None:
        shown = [out.name for out in self.outputs]
        if len(set(shown)) != len(shown):
            raise ValueError(f"duplicate column in {sorted(shown)}")
        if lost := set(self.input.row_key) - set(self._copies):
            raise ValueError(f"a projection must keep the row key; {sorted(lost)} is lost")

    @cached_property
    def _copies(self) -> dict[str, str]:
        """For each input column that is passed on as it is, its output; its own name if it may."""
        found: dict[str, str] = {}
        for out in self.outputs:
            if isinstance(out.expr, Ref) and (
                out.name == out.expr.name or out.expr.name not in found
            ):
                found[out.expr.name] = out.name
        return found

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(out.column for out in self.outputs)

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        return tuple(self._copies[name] for name in self.input.row_key)

    @property
    def line(self) -> str:
        return f"project {named_text(self.outputs)}"

    @property
    def title(self) -> str:
        return f"π PROJECTION {', '.join(str(out.expr) for out in self.outputs)}"

    def expressions(self) -> Iterator[Expr]:
        return (out.expr for out in self.outputs)

    def mapped(self, change: Change, inputs: tuple[Node, ...]) -> Node:
        return Project(inputs[0], tuple(Named(o.name, change(o.expr)) for o in self.outputs))

    def over(self, inputs: tuple[Node, ...]) -> Node:
        return projected(inputs[0], self.outputs)

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        held = {*needed, *self.row_key}
        return (columns_read(out.expr for out in self.outputs if out.name in held),)

    def without_unused(self, needed: Collection[str]) -> Node:
        return self.input if is_narrowing(self) else self

    def over_pruned(self, inputs: tuple[Node, ...], needed: Collection[str]) -> Node:
        (below,) = inputs
        have, held = names(below), {*needed, *self.row_key}
        outputs = [out for out in self.outputs if out.name in held and reads(out.expr, have)]
        outputs = outputs or [out for out in self.outputs if reads(out.expr, have)][:1]
        made = projected(below, outputs)
        return below if is_narrowing(made) else made

    def moved(self, condition: Expr) -> Expr | None:
        made = rewritten_small(condition, {out.name: out.expr for out in self.outputs})
        return made if made is not None and is_small([made]) else None

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        return {out.name for out in self.outputs if has_value(out.expr, below[0])}

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        return renamed_facts(below[0], self.outputs)


def copied(columns: Iterable[Column]) -> tuple[Named, ...]:
    """Columns passed on as they are, in the order of their names."""
    return tuple(
        Named(column.name, Ref(column.name, column.type))
        for column in sorted(columns, key=lambda column: column.name)
    )


def projected(node: Node, outputs: Iterable[Named]) -> Project:
    """A projection that computes the outputs, and keeps the row key; sorted by name."""
    made = {out.name: out for out in outputs}
    kept = {out.expr.name for out in made.values() if isinstance(out.expr, Ref)}
    types = {column.name: column.type for column in node.columns}
    for name in node.row_key:
        if name not in kept:
            free = unused(name, made)
            made[free] = Named(free, Ref(name, types[name]))
    return Project(node, tuple(made[name] for name in sorted(made)))


def is_narrowing(node: Node) -> bool:
    """Whether a node does nothing but to leave columns out, or to put them in another order."""
    return isinstance(node, Project) and all(
        isinstance(out.expr, Ref) and out.expr.name == out.name for out in node.outputs
    )


def narrowed(node: Node, needed: Collection[str]) -> Node:
    """The node with the needed columns and its row key alone, and at least one column."""
    kept = {name for name in names(node) if name in needed or name in node.row_key}
    kept = kept or {min(names(node))}
    if len(kept) == len(node.columns):
        return node
    return exactly(node, sorted(kept))


def exactly(node: Node, wanted: list[str]) -> Node:
    """The node with just these columns in this order; its row key is among them."""
    if [column.name for column in node.columns] == wanted:
        return node
    if isinstance(node, Project):
        outputs = {out.name: out for out in node.outputs}
        return Project(node.input, tuple(outputs[name] for name in wanted))
    columns = {column.name: column for column in node.columns}
    return Project(node, tuple(Named(name, Ref(name, columns[name].type)) for name in wanted))


def renamed(node: Node, clashing: Collection[str], taken: Collection[str]) -> Node:
    """The node with other names for columns whose names clash, unlike those taken."""
    if not clashing:
        return node
    used = {*taken, *names(node)}
    outputs = []
    for column in node.columns:
        name = column.name
        if name in clashing:
            name = unused(name, used)
            used.add(name)
        outputs.append(Named(name, Ref(column.name, column.type)))
    return Project(node, tuple(outputs))
