"""What a join matches on is computed before its sides are kept, and what it is made from ends."""

from __future__ import annotations

from collections.abc import Collection

from viewkeep.expr import Expr, Ref, references, unused
from viewkeep.plan.nodes import Join, Match, Named, Node, Project, copied, names, narrowed, over
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.merge_projects import merged_project
from viewkeep.plan.passes.prune_columns import needs


def compute_matches(node: Node, goal: Goal) -> Node:
    """Same rows, the wanted columns: a side of a join has no column for its matches alone.

    A match that is computed from such a column becomes a column itself. Where all that it is
    computed from is read anyway, the match stays as it is.
    """
    return computed(node, goal.wanted)


def computed(node: Node, needed: Collection[str]) -> Node:
    """The node with the needed columns, its row key, and maybe others that cost nothing."""
    if node.computes:
        needed = names(node)  # what else it computes reads columns too
    read = needs(node, needed)
    below = tuple(map(computed, node.inputs, read))
    if node.narrows:
        below = tuple(map(narrowed, below, read))
    node = over(node, below)
    return _computed_join(node, needed) if isinstance(node, Join) else node


def _computed_join(node: Join, needed: Collection[str]) -> Join:
    taken = names(node.left) | names(node.right)
    left, ours = _side(node.left, [match.left for match in node.on], needed, taken)
    shown = needed if node.shows_right else ()
    right, theirs = _side(node.right, [match.right for match in node.on], shown, taken)
    if left is node.left and right is node.right:
        return node
    pairs = zip(node.on, ours, theirs, strict=True)
    on = tuple(Match(one, other, match.null_safe) for match, one, other in pairs)
    return Join(node.kind, left, right, on)


def _side(
    side: Node, matches: list[Expr], needed: Collection[str], taken: set[str]
) -> tuple[Node, list[Expr]]:
    """A side with the columns that are read or matched, and its matches. `taken` gets new names."""
    plain = {expr.name for expr in matches if isinstance(expr, Ref)}
    held = (plain | set(side.row_key) | set(needed)) & names(side)
    if all(held.issuperset(references(expr)) for expr in matches):
        return side, matches
    outputs = list(copied(column for column in side.columns if column.name in held))
    made = dict[Expr, Expr]()
    for expr in matches:
        if not isinstance(expr, Ref) and expr not in made:
            name = unused(str(expr), taken)
            taken.add(name)
            outputs.append(Named(name, expr))
            made[expr] = Ref(name, expr.type)
    outputs.sort(key=lambda out: out.name)
    return merged_project(Project(side, tuple(outputs))), [made.get(e, e) for e in matches]
