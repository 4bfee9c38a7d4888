"""A named view over a plan."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from viewkeep.plan.nodes.arrange import Arrange
from viewkeep.plan.nodes.leaves import WantedKeys
from viewkeep.plan.nodes.node import Node, nodes, same_over
from viewkeep.types import Column, Schema


@dataclass(frozen=True)
class View:
    """A named view: its SQL, the Arrange node that keeps it, and what its columns are called.

    `columns` pairs each visible name with a column of `node`, in order; a node column that is only
    part of the key is hidden. `reads` names the tables and views that the SQL is written over; the
    plan itself stands on base tables alone. `statement` is what creates the view, as its author
    wrote it; `sql` is the query in a form that means the same to Spark. A view with `wanted` is
    partial: `node` has the rows of the query whose keys are wanted, and its key begins with theirs.
    """

    name: str
    sql: str
    node: Arrange
    columns: tuple[tuple[str, str], ...]
    reads: tuple[str, ...] = ()
    statement: str = dataclasses.field(default="", compare=False)
    wanted: WantedKeys | None = dataclasses.field(default=None, metadata={"optional": True})

    @property
    def schema(self) -> Schema:
        """The visible columns, then the hidden key columns, under their shown names."""
        types = {column.name: column.type for column in self.node.columns}
        shown = {inner: outer for outer, inner in reversed(self.columns)}
        columns = [Column(outer, types[inner]) for outer, inner in self.columns]
        taken = set(self.visible)
        for part in self.node.key:
            if part.name not in shown:
                name = part.name
                while name in taken:  # an alias may be called as a hidden column is
                    name = f"#{name}"
                taken.add(name)
                shown[part.name] = name
                columns.append(Column(name, types[part.name]))
        return Schema(tuple(columns), tuple(shown[part.name] for part in self.node.key))

    def numbered(self, wanted: int) -> View:
        """The view, if it is partial, with the number of its table of wanted keys."""
        if self.wanted is None:
            return self
        table = dataclasses.replace(self.wanted, number=wanted)
        made: dict[str, Node] = {}
        for node in nodes([self.node]):
            made[node.id] = table if isinstance(node, WantedKeys) else same_over(node, made)
        root = made[self.node.id]
        assert isinstance(root, Arrange)
        return dataclasses.replace(self, node=root, wanted=table)

    @property
    def visible(self) -> tuple[str, ...]:
        return tuple(outer for outer, _ in self.columns)
