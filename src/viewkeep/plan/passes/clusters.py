"""Inner joins that stand on one another, as a set of inputs and a set of conditions.

Law: the rows of a cluster are those of all combinations of its leaves' rows for which all its
conditions are true. How the joins were spelt is forgotten: relations that share a table are told
apart by what is asked of them, not by their place in FROM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from viewkeep.expr import Expr, Ref, references
from viewkeep.plan.conditions import TRUE, conjuncts, rewritten
from viewkeep.plan.nodes import Filter, Join, Named, Node, Project, StepNode, names, strip
from viewkeep.plan.passes.equalities import Equalities
from viewkeep.plan.passes.matches import equality
from viewkeep.types import BOOLEAN


@dataclass(frozen=True)
class Cluster:
    """Leaves with disjoint columns, conditions over them, and the columns that they give."""

    leaves: tuple[Node, ...]
    conditions: tuple[Expr, ...]
    outputs: Mapping[str, Expr]


def cluster_of(node: Node) -> Cluster | None:
    """The cluster whose result a node is; None if there is no inner join to order."""
    if not is_clustered(node):
        return None
    found = _Found()
    outputs = found.add(node, through=True)
    if found.clash:
        # Projections hid the names of columns below; so they are left where they are.
        found = _Found()
        outputs = found.add(node, through=False)
    conditions = sorted(found.conditions - {TRUE}, key=str)
    return _told_apart(Cluster(tuple(found.leaves), tuple(conditions), outputs))


def is_clustered(node: Node) -> bool:
    """Whether there is an inner join below nothing but conditions and projections."""
    below, _ = strip(node)
    return isinstance(below, Join) and below.kind == "inner"


@dataclass(frozen=True)
class _Relation:
    """A leaf that renames the columns of `base`: `label.x` for an expression x."""

    leaf: Project
    label: str

    @property
    def root(self) -> str:
        """The label without the number that tells it from others."""
        return self.label.partition("#")[0]

    @property
    def outputs(self) -> Iterator[tuple[str, Expr]]:
        for out in self.leaf.outputs:
            yield out.name.removeprefix(f"{self.label}."), out.expr

    def labelled(self, label: str) -> Project:
        """The same rows with another label."""
        named = tuple(Named(f"{label}.{rest}", expr) for rest, expr in self.outputs)
        return Project(self.leaf.input, named)

    def under(self, other: Node) -> dict[str, Expr]:
        """What its columns are called in another node that was `labelled`."""
        pairs = zip(self.leaf.columns, other.columns, strict=True)
        return {old.name: Ref(new.name, new.type) for old, new in pairs}


def _relation(leaf: Node) -> _Relation | None:
    if not isinstance(leaf, Project):
        return None
    labels = {out.name.partition(".")[0] for out in leaf.outputs if "." in out.name}
    if len(labels) != 1 or not all("." in out.name for out in leaf.outputs):
        return None
    return _Relation(leaf, labels.pop())


class _Found:
    """The leaves and conditions of a cluster, as they are found from the top down."""

    def __init__(self) -> None:
        self.leaves: list[Node] = []
        self.conditions: set[Expr] = set()
        self.taken: set[str] = set()
        self.clash = False

    def add(self, node: Node, through: bool, top: bool = True) -> dict[str, Expr]:
        """Add a node; what its columns are in terms of the leaves' columns.

        Without `through`, projections are left where they are, but for those at the top.
        """
        if isinstance(node, StepNode) and is_clustered(node):
            passes = through or (_joins(node, top) if isinstance(node, Filter) else top)
            return self._step(node, through, top) if passes else self._leaf(node)
        if isinstance(node, Join) and node.kind == "inner":
            below = self.add(node.left, through, top=False)
            below |= self.add(node.right, through, top=False)
            self.conditions.update(rewritten(equality(match), below) for match in node.on)
            return below
        return self._leaf(node)

    def _step(self, node: StepNode, through: bool, top: bool) -> dict[str, Expr]:
        below = self.add(node.input, through, top)
        if isinstance(node, Project):
            return {out.name: rewritten(out.expr, below) for out in node.outputs}
        assert isinstance(node, Filter)
        for part in conjuncts(node.predicate):
            self.conditions.update(conjuncts(rewritten(part, below)))
        return below

    def _leaf(self, leaf: Node) -> dict[str, Expr]:
        relation = _relation(leaf)
        shown = names(leaf)
        made = leaf
        if shown & self.taken and relation is not None:
            numbers = count(2)
            while names(made) & self.taken:
                made = relation.labelled(f"{relation.root}#{next(numbers)}")
        self.clash |= bool(names(made) & self.taken)
        self.taken |= names(made)
        self.leaves.append(made)
        if made is leaf or relation is None:
            return {column.name: Ref(column.name, column.type) for column in leaf.columns}
        return relation.under(made)


def _joins(node: Node, top: bool) -> bool:
    """Whether the next node but filters is an inner join, or at the top a projection of one."""
    while isinstance(node, Filter):
        node = node.input
    return top or isinstance(node, Join)


def _told_apart(cluster: Cluster) -> Cluster:
    """The cluster with labels such as `t` and `t#2` dealt out by content."""
    relations = {i: made for i, leaf in enumerate(cluster.leaves) if (made := _relation(leaf))}
    groups: dict[str, list[int]] = {}
    for i, relation in relations.items():
        groups.setdefault(relation.root, []).append(i)
    groups = {root: group for root, group in groups.items() if len(group) > 1}
    if not groups:
        return cluster
    colours = _colours(cluster, relations)
    leaves = list(cluster.leaves)
    by: dict[str, Expr] = {}
    for group in groups.values():
        labels = sorted((relations[i].label for i in group), key=lambda label: (len(label), label))
        ranked = sorted(group, key=lambda i: (colours[i], relations[i].label))
        for label, i in zip(labels, ranked, strict=True):
            leaves[i] = relations[i].labelled(label)
            by |= relations[i].under(leaves[i])
    return Cluster(
        tuple(leaves),
        tuple(sorted({rewritten(c, by) for c in cluster.conditions}, key=str)),
        {name: rewritten(expr, by) for name, expr in cluster.outputs.items()},
    )


def _colours(cluster: Cluster, relations: Mapping[int, _Relation]) -> list[str]:
    """A text for each leaf that says what it is and how it is joined, whatever it is called.

    Leaves of one colour may change places. Each round lets a leaf see one join further.
    """
    owners: dict[str, tuple[int, str]] = {}
    colours: list[str] = []
    for i, leaf in enumerate(cluster.leaves):
        if relation := relations.get(i):
            parts = sorted(f"{rest} = {expr}" for rest, expr in relation.outputs)
            colours.append(_digest(relation.root, relation.leaf.input.id, *parts))
            for (rest, _), out in zip(relation.outputs, relation.leaf.outputs, strict=True):
                owners[out.name] = (i, rest)
        else:
            colours.append(_digest(leaf.id))
            owners |= {name: (i, name) for name in names(leaf)}
    equal = Equalities(cluster.conditions, {name: i for name, (i, _) in owners.items()})
    conditions = (set(cluster.conditions) - equal.taken) | equal.pairs()
    for _ in cluster.leaves:
        seen: list[list[str]] = [[] for _ in cluster.leaves]
        for condition in conditions:
            for i in {owners[name][0] for name in references(condition)}:
                seen[i].append(_as_seen_by(i, condition, owners, colours))
        colours = [_digest(c, *sorted(seen[i])) for i, c in enumerate(colours)]
    return colours


def _as_seen_by(
    i: int, condition: Expr, owners: Mapping[str, tuple[int, str]], colours: list[str]
) -> str:
    by: dict[str, Expr] = {}
    for name in references(condition):
        owner, rest = owners[name]
        by[name] = Ref(f"{'self' if owner == i else colours[owner]}.{rest}", BOOLEAN)
    return str(rewritten(condition, by))


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
