"""Inner joins in an order that depends on what is joined, not on how it was spelt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations

from viewkeep.expr import Call, Lit, Ref
from viewkeep.plan.conditions import conjuncts, reads
from viewkeep.plan.nodes import (
    Filter,
    Join,
    Match,
    Named,
    Node,
    columns_read,
    filtered,
    names,
    over,
    projected,
    renamed,
    strip,
)
from viewkeep.plan.passes.clusters import Cluster, cluster_of
from viewkeep.plan.passes.compute_matches import computed
from viewkeep.plan.passes.equalities import Equalities
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.matches import as_match, covers, ordered
from viewkeep.plan.passes.prune_columns import needs, pruned


def order_joins(node: Node, goal: Goal) -> Node:
    """Same rows, the needed columns: joins in canonical order, left-deep, no needless product.

    The order starts with the relation that is taken for the smallest. Next comes, of those that
    are connected, one that adds at most one partner to each row; else one of which each row has at
    most one partner, so that the largest relation comes late and its changes pass few joins; else
    any. Of several, one on the same key as before, so that rows need not be re-distributed.
    A join that exists already goes before all others.
    """
    return _ordered(node, goal.wanted, goal)


def _ordered(node: Node, needed: Iterable[str], goal: Goal) -> Node:
    needed = set(needed)
    cluster = cluster_of(node)
    if cluster is None:
        if node.computes:
            needed = names(node)  # what else it computes reads columns too
        below = zip(node.inputs, needs(node, needed), strict=True)
        return over(node, tuple(_ordered(one, read, goal) for one, read in below))
    # The old row key keeps its names if it is the new one too; if not, pruning removes it.
    held = needed | set(node.row_key)
    outputs = {name: expr for name, expr in cluster.outputs.items() if name in held}
    read = columns_read([*outputs.values(), *cluster.conditions])
    leaves = _apart((leaf, _ordered(leaf, read & names(leaf), goal)) for leaf in cluster.leaves)
    build = _Build(Cluster(leaves, cluster.conditions, outputs), goal.existing)
    made = build.result()
    # Of the old row key what is needed anyway stays in it: a key has no column of its own beside
    # an equal one, and does not grow where joins stand on one another.
    for name in needed.intersection(node.row_key, outputs):
        outputs[name] = build.equal.of_key(outputs[name], made.row_key)
    if all(isinstance(expr, Ref) and expr.name == name for name, expr in outputs.items()):
        return made
    return projected(made, [Named(name, expr) for name, expr in outputs.items()])


def _apart(leaves: Iterable[tuple[Node, Node]]) -> tuple[Node, ...]:
    """New leaves for old ones; columns that were added for a row key share no name with others."""
    pairs = list(leaves)
    taken = {name for old, _ in pairs for name in names(old)}
    made = []
    for old, new in pairs:
        added = names(new) - names(old)
        made.append(renamed(new, added & taken, taken | names(new)))
        taken |= names(made[-1])
    return tuple(made)


@dataclass
class _Part:
    """Leaves joined so far: the node, the key it was last joined by, what it was made of."""

    node: Node
    leaves: frozenset[int]
    key: frozenset[str] = frozenset()


class _Build:
    """A cluster being put together; `waiting` are the conditions that no join or filter has yet."""

    def __init__(self, cluster: Cluster, existing: frozenset[str]):
        self.outputs = cluster.outputs
        self.existing = existing
        owner = {name: i for i, leaf in enumerate(cluster.leaves) for name in names(leaf)}
        self.equal = Equalities(cluster.conditions, owner)
        self.waiting = [c for c in cluster.conditions if c not in self.equal.taken]
        self.leaves = [self._leaf(i, leaf) for i, leaf in enumerate(cluster.leaves)]
        self.sizes = self._sizes()

    def result(self) -> Node:
        """All leaves joined: each connected part by itself, then the parts with one another."""
        left = set(range(len(self.leaves)))
        parts: list[_Part] = []
        while left:
            part = self._connected(left)
            left -= part.leaves
            parts.append(part)
        # What is one row at most goes last: its change touches all rows, whatever the order.
        parts.sort(key=lambda part: (not part.node.row_key, min(map(self._rank, part.leaves))))
        whole = parts[0]
        for part in parts[1:]:
            whole = self._joined(whole, part)
        return filtered(whole.node, self.waiting)

    def _leaf(self, i: int, leaf: Node) -> Node:
        own = names(leaf)
        found = [c for c in self.waiting if reads(c, own)]
        self.waiting = [c for c in self.waiting if c not in found]
        return filtered(leaf, [*found, *self.equal.within(i, leaf.row_key)])

    def _sizes(self) -> list[float]:
        """How large each leaf is taken for: by the leaves that it refers to, fewer if filtered.

        A row that refers to a key has usually many like it.
        """
        count = len(self.leaves)
        refers = [{j for j in range(count) if j != i and self._refers(i, j)} for i in range(count)]
        sizes: list[float] = []
        for i in range(count):
            reached: set[int] = set()
            waiting = set(refers[i])
            while waiting:
                j = waiting.pop()
                reached.add(j)
                waiting |= refers[j] - reached
            sizes.append(len(reached - {i}) - min(1.0, 0.5 * _strictness(self.leaves[i])))
        return sizes

    def _refers(self, i: int, j: int) -> bool:
        key = self.leaves[j].row_key
        return bool(key) and all(i in self.equal.leaves_with(name) for name in key)

    def _rank(self, i: int) -> tuple[float, str]:
        return self.sizes[i], self.leaves[i].id

    def _connected(self, left: set[int]) -> _Part:
        alone = {i: _Part(self.leaves[i], frozenset({i})) for i in sorted(left, key=self._rank)}
        part = self._first(list(alone.values()))
        while True:
            others = [other for i, other in alone.items() if i not in part.leaves]
            choices = [(other, on) for other in others if (on := self._matches(part, other))]
            if not choices:
                return part
            chosen, _ = min(choices, key=lambda choice: self._preference(part, *choice))
            part = self._joined(part, chosen)

    def _first(self, alone: list[_Part]) -> _Part:
        """The smallest leaf, or one that a join which exists starts with."""
        for left, right in permutations(alone, 2) if self.existing else ():
            on = self._matches(left, right)
            if on and self._exists(left, right, on):
                return left
        return alone[0]

    def _preference(
        self, part: _Part, other: _Part, on: tuple[Match, ...]
    ) -> tuple[bool, int, bool, float, str]:
        grows = 2
        if covers([match.right for match in on], other.node):
            grows = 0
        elif covers([match.left for match in on], part.node):
            grows = 1
        moved = self._key(on) != part.key
        (leaf,) = other.leaves
        return not self._exists(part, other, on), grows, moved, *self._rank(leaf)

    def _exists(self, part: _Part, other: _Part, on: tuple[Match, ...]) -> bool:
        """Whether the join, once columns that nobody reads are gone, is there already."""
        if not self.existing:
            return False
        join = Join("inner", part.node, other.node, on)
        read = columns_read([*self.outputs.values(), *self.waiting])
        read |= columns_read(self.equal.open(part.leaves | other.leaves, join.row_key))
        read &= names(join)
        return computed(pruned(join, read), read).id in self.existing

    def _key(self, on: Iterable[Match]) -> frozenset[str]:
        return frozenset(self.equal.name(match.left) for match in on)

    def _matches(self, left: _Part, right: _Part) -> tuple[Match, ...]:
        found = self.equal.between(left.leaves, left.node.row_key, right.leaves, right.node.row_key)
        ours, theirs = names(left.node), names(right.node)
        for condition in self.waiting:
            if match := as_match(condition, ours, theirs):
                found.append(match)
        return ordered(found)

    def _joined(self, left: _Part, right: _Part) -> _Part:
        on = self._matches(left, right)
        join = Join("inner", left.node, right.node, on)
        ours, theirs = names(left.node), names(right.node)
        have = ours | theirs
        done = [c for c in self.waiting if reads(c, have)]
        rest = [c for c in done if not as_match(c, ours, theirs)]
        self.waiting = [c for c in self.waiting if c not in done]
        return _Part(filtered(join, rest), left.leaves | right.leaves, self._key(on))


def _strictness(leaf: Node) -> float:
    """How much is asked of a leaf's rows: an equality with a constant counts for two."""
    found = 0
    _, steps = strip(leaf)
    for step in steps:
        if isinstance(step, Filter):
            for part in conjuncts(step.predicate):
                equal = isinstance(part, Call) and part.function == "eq"
                found += (
                    2 if equal and isinstance(part, Call) and isinstance(part.args[1], Lit) else 1
                )
    return found
