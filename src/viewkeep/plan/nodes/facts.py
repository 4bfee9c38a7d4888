"""Conditions on single columns that are known to hold of a plan's rows.

Law: each is true for every row. They say what else may be filtered: a condition on one side of a
match holds for its partner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.expr import Call, Expr, Ref, references
from viewkeep.plan.conditions import rewritten
from viewkeep.plan.nodes.node import Node
from viewkeep.plan.nodes.parts import Match, Named


def facts(node: Node) -> frozenset[Expr]:
    """What is known of single columns; nothing is said of whether they are NULL."""
    return frozenset(node.facts([facts(below) for below in node.inputs]))


def transferred(known: Iterable[Expr], on: Iterable[Match], side: str) -> Iterator[Expr]:
    """What conditions on matched columns say of the columns of the other `side`."""
    for match in on:
        here, there = (match.left, match.right) if side == "right" else (match.right, match.left)
        if isinstance(here, Ref) and isinstance(there, Ref):
            for condition in known:
                if of_one_column(condition) and here.name in references(condition):
                    yield rewritten(condition, {here.name: there})


def of_one_column(condition: Expr) -> bool:
    """Whether a condition is a fact: it reads one column, and not whether that is NULL."""
    useful = isinstance(condition, Call) and condition.function not in ("is_null", "is_not_null")
    return useful and len(set(references(condition))) == 1


def renamed_facts(known: Iterable[Expr], outputs: Iterable[Named]) -> Iterator[Expr]:
    """Facts of the columns that are passed on, under their new names."""
    copies = [(out.expr, out.name) for out in outputs if isinstance(out.expr, Ref)]
    for condition in known:
        read = next(references(condition))
        for ref, name in copies:
            if ref.name == read:
                yield rewritten(condition, {read: Ref(name, ref.type)})
