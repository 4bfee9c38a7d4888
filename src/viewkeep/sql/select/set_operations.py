"""UNION, INTERSECT and EXCEPT, with ALL and without.

Law: columns are called as in the first branch and have the common type of all branches. Without
ALL, equal rows are one row, and NULL equals NULL. With ALL, INTERSECT and EXCEPT count: the n-th
row of some values meets the n-th row of the same values on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.expr import Expr, Lit, Ref, unused
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.ops.functions.coercion import widest
from viewkeep.plan.nodes import Join, Match, Named, Node, Project, Union, Window, WindowCall
from viewkeep.sql.expressions.canonical import fold
from viewkeep.sql.grouping.group_by import Item, distinct
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import computed
from viewkeep.sql.relations.joins import BRANCH, names_of, refs
from viewkeep.types import INT

_NUMBER = "#number"
_OWN = ("order", "limit", "offset", "with_")


@dataclass(frozen=True)
class SetBranch:
    """The rows of a query: its node and its items over it."""

    node: Node
    items: tuple[Item, ...]

    @property
    def exprs(self) -> list[Expr]:
        return [item.expr for item in self.items]

    def over(self, node: Node, exprs: Sequence[Expr]) -> SetBranch:
        """The same items of another node."""
        pairs = zip(self.items, exprs, strict=True)
        return SetBranch(node, tuple(replace(item, expr=expr) for item, expr in pairs))


def combined(tree: exp.SetOperation, lowered: Callable[[exp.Expr], SetBranch]) -> SetBranch:
    """The rows of a set operation; `lowered` gives those of a query that is none."""
    if isinstance(tree, exp.Union):
        made = _union_all(_branches(tree, lowered))
        if not tree.args.get("distinct"):
            return made
        _refuse_arrays(tree, made)
        return _different(made)
    left, right = _widened(tree, [lowered(tree.this), lowered(tree.expression)])
    _refuse_arrays(tree, left)
    kind = "semi" if isinstance(tree, exp.Intersect) else "anti"
    if tree.args.get("distinct"):
        left = _different(left)
        pairs = list(zip(left.exprs, right.exprs, strict=True))
    else:
        left, number = _numbered(left)
        right, other = _numbered(right)
        pairs = [*zip(left.exprs, right.exprs, strict=True), (number, other)]
    on = tuple(dict.fromkeys(Match(mine, theirs, True) for mine, theirs in pairs))
    return left.over(Join(kind, left.node, right.node, on), left.exprs)


def _refuse_arrays(tree: exp.SetOperation, branch: SetBranch) -> None:
    for item in branch.items:
        if item.expr.type.is_array:
            raise Unsupported(
                f"{item.name} is an ARRAY, which is not compared",
                fragment=text_of(tree),
                hint="Only UNION ALL takes arrays",
            )


def _branches(tree: exp.SetOperation, lowered: Callable[[exp.Expr], SetBranch]) -> list[SetBranch]:
    """The branches of a union, with those of unions inside it that need no step of their own."""
    parts: list[list[SetBranch]] = []
    for side in (tree.this, tree.expression):
        inner = side
        while isinstance(inner, exp.Subquery) and not inner.alias:
            inner = inner.this
        alike = isinstance(inner, exp.Union) and (
            tree.args.get("distinct") or not inner.args.get("distinct")
        )
        if alike and not any(inner.args.get(name) for name in _OWN):
            parts.append(_branches(inner, lowered))
        else:
            parts.append([lowered(side)])
    return _widened(tree, [branch for part in parts for branch in part])


def _widened(tree: exp.SetOperation, branches: Sequence[SetBranch]) -> list[SetBranch]:
    """The branches with their columns in the common types."""
    kind = type(tree).__name__.upper()
    if tree.args.get("by_name"):
        raise Unsupported(f"{kind} BY NAME is not taken", hint="Name the columns in one order")
    counts = {len(branch.items) for branch in branches}
    if len(counts) > 1:
        numbers = " and ".join(str(count) for count in sorted(counts))
        raise Unsupported(f"{kind} of {numbers} columns has no meaning", fragment=text_of(tree))
    types = []
    for place, item in enumerate(branches[0].items):
        given = [branch.exprs[place].type for branch in branches]
        common = widest(given)
        if common is None:
            named = " and ".join(str(type_) for type_ in dict.fromkeys(given))
            raise TypeMismatch(
                f"column {item.name} is {named}, which have no common type",
                fragment=text_of(tree),
                hint="Write a CAST in one of the branches",
            )
        if common == VOID:
            raise Unsupported(
                f"{item.name} is NULL without a type", hint="Write CAST(NULL AS type)"
            )
        types.append(common)
    return [
        b.over(b.node, [fold(cast_to(e, t)) for e, t in zip(b.exprs, types, strict=True)])
        for b in branches
    ]


def _union_all(branches: Sequence[SetBranch]) -> SetBranch:
    """All rows of all branches; their row keys lie in shown columns, else in slots by type."""
    first = branches[0]
    names: list[str] = []
    for expr in first.exprs:
        names.append(unused(str(expr), {*names, BRANCH}))
    slots: dict[str, Expr] = {}
    keyed: dict[str, None] = {BRANCH: None}
    outputs: list[dict[str, Expr]] = []
    for place, branch in enumerate(branches):
        own = refs(branch.node)
        made: dict[str, Expr] = {BRANCH: Lit(place, INT)}
        made |= zip(names, branch.exprs, strict=True)
        shown = {expr: name for name, expr in reversed(made.items())}
        for key in branch.node.row_key:
            if own[key] in shown:
                keyed[shown[own[key]]] = None
                continue
            free = [n for n, e in slots.items() if n not in made and e.type == own[key].type]
            slot = free[0] if free else unused(f"#key{len(slots)}", names)
            slots[slot] = Lit(None, own[key].type)
            made[slot] = own[key]
        outputs.append(made)
    nodes: list[Node] = []
    for branch, made in zip(branches, outputs, strict=True):
        every = {**slots, **made}
        nodes.append(Project(branch.node, tuple(Named(n, every[n]) for n in sorted(every))))
    union = Union(tuple(nodes), (*keyed, *slots))
    types = zip(names, first.exprs, strict=True)
    return first.over(union, [Ref(name, expr.type) for name, expr in types])


def _different(branch: SetBranch) -> SetBranch:
    node, rewrite = distinct(branch.node, branch.exprs)
    return branch.over(node, [rewrite(expr) for expr in branch.exprs])


def _numbered(branch: SetBranch) -> tuple[SetBranch, Expr]:
    """The rows with a number among those of the same values."""
    node, names = computed(branch.node, branch.exprs)
    number = unused(_NUMBER, names_of(node))
    call = WindowCall(number, "row_number", (), INT)
    partition = tuple(sorted(dict.fromkeys(names.values())))
    window = Window(node, partition, (), (call,))
    made = [Ref(names[expr], expr.type) for expr in branch.exprs]
    return branch.over(window, made), Ref(number, INT)
