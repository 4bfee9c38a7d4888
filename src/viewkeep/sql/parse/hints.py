"""Hints in a query: what its author knows and the planner does not. They never change rows."""

from __future__ import annotations

from sqlglot import exp

from viewkeep.errors import Unsupported

AGGREGATE_FIRST = {"AGGREGATE_FIRST": True, "NO_AGGREGATE_FIRST": False}


def is_known(hint: object) -> bool:
    """Whether viewkeep knows all hints of a SELECT."""
    return isinstance(hint, exp.Hint) and all(
        isinstance(part, exp.Var) and part.name.upper() in AGGREGATE_FIRST
        for part in hint.expressions
    )


def aggregate_first(tree: exp.Expr) -> bool | None:
    """Whether to aggregate below joins always or never, for a whole query; None without a hint."""
    hints = [part for hint in tree.find_all(exp.Hint) for part in hint.expressions]
    found = {AGGREGATE_FIRST[part.name.upper()] for part in hints}
    if len(found) > 1:
        raise Unsupported("AGGREGATE_FIRST and NO_AGGREGATE_FIRST contradict each other")
    return next(iter(found), None)


def without_hints(tree: exp.Expr) -> exp.Expr:
    """The tree, changed, for engines that have other hints."""
    for select in tree.find_all(exp.Select):
        select.set("hint", None)
    return tree
