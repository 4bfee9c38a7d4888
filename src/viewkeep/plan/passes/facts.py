"""Conditions on single columns that are known to hold of a plan's rows.

Law: each is true for every row. They say what else may be filtered: a condition on one side of a
match holds for its partner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.expr import Call, Expr, Ref, references
from viewkeep.plan.conditions import conjuncts, rewritten
from viewkeep.plan.nodes import Aggregate, Filter, Join, Match, Named, Node, Project, TopK, Window


def facts(node: Node) -> frozenset[Expr]:
    """What is known of single columns; nothing is said of whether they are NULL."""
    match node:
        case Filter():
            return facts(node.input) | frozenset(filter(_single, conjuncts(node.predicate)))
        case Project():
            return frozenset(_renamed(facts(node.input), node.outputs))
        case Aggregate():
            return frozenset(_renamed(facts(node.input), node.keys))
        case TopK() | Window():
            return facts(node.input)
        case Join(kind="inner"):
            known = facts(node.left) | facts(node.right)
            while (
                more := {
                    *transferred(known, node.on, "left"),
                    *transferred(known, node.on, "right"),
                }
                - known
            ):
                known |= more
            return known
        case Join():
            return facts(node.left)
    return frozenset()


def transferred(known: Iterable[Expr], on: Iterable[Match], side: str) -> Iterator[Expr]:
    """What conditions on matched columns say of the columns of the other `side`."""
    for match in on:
        here, there = (match.left, match.right) if side == "right" else (match.right, match.left)
        if isinstance(here, Ref) and isinstance(there, Ref):
            for condition in known:
                if _single(condition) and here.name in references(condition):
                    yield rewritten(condition, {here.name: there})


def _single(condition: Expr) -> bool:
    useful = isinstance(condition, Call) and condition.function not in ("is_null", "is_not_null")
    return useful and len(set(references(condition))) == 1


def _renamed(known: Iterable[Expr], outputs: Iterable[Named]) -> Iterator[Expr]:
    copies = [(out.expr, out.name) for out in outputs if isinstance(out.expr, Ref)]
    for condition in known:
        read = next(references(condition))
        for ref, name in copies:
            if ref.name == read:
                yield rewritten(condition, {read: Ref(name, ref.type)})
