"""Large plans, cut into fragments that passes walk as trees.

A plan is a graph: a CTE that is read twice is one node with two readers. Passes walk trees, and
give each reader of a small node its own variant of it. For a large node that would double the plan
at each level, so the plan is cut there, and where it is deep: above a fence the passes see a leaf.
Law: a fragment is at most `_DEEPEST` nodes deep, and as a tree it has at most `_LARGEST` nodes for
each edge of the plan. So the work of a pass grows with the plan, and its recursion is bounded.

What this costs: a condition does not pass a fence, so all readers of a shared node read the same
rows. Columns do pass: a fragment has what its readers need together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from viewkeep.plan.nodes import Fence, Node, nodes, over, same_over
from viewkeep.plan.passes.prune_columns import needs, pruned

_LARGEST = 50  # nodes, as a tree, of what each reader may have in a variant of its own
_DEEPEST = 100


@dataclass(frozen=True)
class Fragments:
    """A plan in fragments, by their ids, those that are read before those that read them."""

    root: str
    parts: Mapping[str, Node]

    def whole(self) -> Node:
        """The plan without fences."""
        made: dict[str, Node] = {}
        for part in self.parts.values():
            for node in nodes([part]):
                if not isinstance(node, Fence):  # else its fragment came before
                    made[node.id] = same_over(node, made)
        return made[self.root]

    def changed(
        self, wanted: Collection[str], change: Callable[[Node, frozenset[str]], Node]
    ) -> Fragments:
        """Each fragment changed, given the columns that are wanted of it."""
        fences: dict[str, Node] = {}
        parts: dict[str, Node] = {}
        root = self.root
        for name, part, needed in self._pruned(wanted):
            made = change(_refenced(part, fences), needed)
            fences[name] = made if isinstance(made, Fence) else Fence(made)
            if not isinstance(made, Fence):
                parts.setdefault(made.id, made)
            root = made.id
        return Fragments(root, parts)

    def _pruned(self, wanted: Collection[str]) -> list[tuple[str, Node, frozenset[str]]]:
        """Each fragment that is read, under its id, with the columns that its readers need."""
        if len(self.parts) == 1:
            return [(self.root, self.parts[self.root], frozenset(wanted))]
        asked: dict[str, set[str]] = {self.root: set(wanted)}
        found: list[tuple[str, Node, frozenset[str]]] = []
        for name, part in reversed(list(self.parts.items())):
            if name not in asked:
                continue
            needed = frozenset(asked[name])
            part = pruned(part, needed)
            found.append((name, part, needed))
            for fence, read in _read(part, needed).items():
                asked.setdefault(fence, set()).update(read)
        return found[::-1]


def cut(root: Node) -> Fragments:
    """A plan in fragments; a small one is a single fragment."""
    order = list(nodes([root]))
    readers = Counter(below.id for node in order for below in node.inputs)
    size: dict[str, int] = {}
    depth: dict[str, int] = {}
    made: dict[str, Node] = {}
    parts: dict[str, Node] = {}
    for node in order:
        below = node.inputs
        size[node.id] = 1 + sum(size[one.id] for one in below)
        depth[node.id] = 1 + max((depth[one.id] for one in below), default=0)
        made[node.id] = same_over(node, made)
        shared = readers[node.id] > 1 and size[node.id] > _LARGEST
        if node is root or shared or depth[node.id] >= _DEEPEST:
            parts[node.id] = made[node.id]
            made[node.id] = Fence(made[node.id])
            size[node.id] = depth[node.id] = 1
    return Fragments(root.id, parts)


def _read(part: Node, needed: Collection[str]) -> dict[str, set[str]]:
    """The columns that a fragment reads at each of its fences, to have the needed ones."""
    order = list(nodes([part]))
    read: dict[str, set[str]] = {node.id: set() for node in order}
    read[part.id].update(needed)
    for node in reversed(order):
        for below, names in zip(node.inputs, needs(node, read[node.id]), strict=True):
            read[below.id].update(names)
    return {node.id: read[node.id] for node in order if isinstance(node, Fence)}


def _refenced(part: Node, fences: Mapping[str, Node]) -> Node:
    """A fragment over the new fences, which have at least the columns that it reads."""
    made: dict[str, Node] = {}
    for node in nodes([part]):
        below = tuple(made[one.id] for one in node.inputs)
        made[node.id] = fences[node.id] if isinstance(node, Fence) else over(node, below)
    return made[part.id]
