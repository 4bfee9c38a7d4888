"""Conditions move as far down as they can, and become matches of joins where they can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from viewkeep.expr import Call, Expr, Lit, references
from viewkeep.plan.conditions import (
    TRUE,
    conjunction,
    conjuncts,
    disjunction,
    is_null_with,
    reads,
    rejects,
)
from viewkeep.plan.nodes import (
    Filter,
    Join,
    Match,
    Node,
    facts,
    filtered,
    joined,
    names,
    over,
    transferred,
)
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.matches import as_match, equality, ordered

Conditions = tuple[Expr, ...]


def push_filters(node: Node, goal: Goal) -> Node:
    """Same rows, same columns: each condition stands as near to the base tables as it can.

    Conditions common to all branches of an OR stand for themselves; an equality between the sides
    of an inner join is a match of it; a left join whose added NULLs nobody can see is an inner
    join; a condition on a matched column holds for its partner too.
    """
    return _push(node, (), ())


def _push(node: Node, conditions: Conditions, seen: Conditions) -> Node:
    """The rows of `node` for which the conditions are true.

    Of the result nobody reads rows in which an expression of `seen` is NULL, so these may be
    there or not.
    """
    conditions = tuple(_parts(conditions))
    if isinstance(node, Filter):
        return _push(node.input, (*conditions, node.predicate), seen)
    if isinstance(node, Join):
        return _push_join(node, conditions, seen)
    if not node.inputs:
        return filtered(node, conditions)
    moved = {condition: node.moved(condition) for condition in conditions}
    rest = [condition for condition, below in moved.items() if below is None]
    down = tuple(dict.fromkeys(below for below in moved.values() if below is not None))
    passed = [node.moved(expr) for expr in seen] if node.row_by_row else []
    seen = tuple(expr for expr in passed if expr is not None)
    return filtered(over(node, tuple(_push(below, down, seen) for below in node.inputs)), rest)


def _parts(conditions: Iterable[Expr]) -> Iterator[Expr]:
    """The conjuncts of conditions, with what all branches of an OR have in common taken out."""
    for condition in conjuncts(conjunction(conditions)):
        if condition == TRUE:
            continue
        if not (isinstance(condition, Call) and condition.function == "or"):
            yield condition
            continue
        branches = [conjuncts(branch) for branch in condition.args]
        common = [part for part in branches[0] if all(part in branch for branch in branches)]
        if not common:
            yield condition
            continue
        rests = [conjunction(p for p in branch if p not in common) for branch in branches]
        yield from _parts([*common, disjunction(rests)])


def _push_join(node: Join, conditions: Conditions, seen: Conditions) -> Node:
    ours, theirs = names(node.left), names(node.right) if node.shows_right else set()
    kind = node.kind
    if kind == "left" and (
        any(rejects(condition, theirs) for condition in conditions)
        or any(is_null_with(expr, theirs) for expr in seen)
    ):
        kind = "inner"
    on, to_left, to_right, rest = _placed(kind, node.on, conditions, ours, theirs)
    strict = [match for match in on if not match.null_safe]
    seen_left = tuple(expr for expr in seen if reads(expr, ours))
    seen_right = tuple(match.right for match in strict)
    if kind in ("inner", "semi"):
        seen_left += tuple(match.left for match in strict)
    if kind == "inner":
        seen_right += tuple(expr for expr in seen if reads(expr, theirs))
    known_left = {*to_left, *facts(node.left)}
    known_right = {*to_right, *facts(node.right)}
    more_right = [c for c in transferred(known_left, on, "right") if c not in known_right]
    more_left = [c for c in transferred(known_right, on, "left") if c not in known_left]
    if kind != "inner" and kind != "semi":
        more_left = []
    left = _push(node.left, (*to_left, *more_left), seen_left)
    right = _push(node.right, (*to_right, *more_right), seen_right)
    return filtered(joined(kind, left, right, on, ours), rest)


def _placed(
    kind: str, matches: tuple[Match, ...], conditions: Conditions, ours: set[str], theirs: set[str]
) -> tuple[tuple[Match, ...], list[Expr], list[Expr], list[Expr]]:
    """Matches, conditions of the left side, of the right side, and of the join's result."""
    on: set[Match] = set()
    left: list[Expr] = []
    right: list[Expr] = []
    rest: list[Expr] = []
    for match in matches:
        if isinstance(match.left, Lit):
            # Rows of the right that are no partners are of no use in any kind of join.
            right.append(_condition(match))
        elif isinstance(match.right, Lit) and kind in ("inner", "semi"):
            left.append(_condition(match))
        else:
            on.add(match)
    for condition in conditions:
        if reads(condition, ours):
            left.append(condition)
        elif kind == "inner" and reads(condition, theirs):
            right.append(condition)
        elif kind == "inner" and (made := as_match(condition, ours, theirs)):
            on.add(made)
        else:
            rest.append(condition)
            found = list(_per_column(condition))
            left += [c for c in found if reads(c, ours)]
            if kind == "inner":
                right += [c for c in found if reads(c, theirs)]
    return ordered(on), left, right, rest


def _condition(match: Match) -> Expr:
    """A match with a constant, as a condition on the other side; `c = TRUE` is c."""
    if not match.null_safe and TRUE in (match.left, match.right):
        return match.right if match.left == TRUE else match.left
    return equality(match)


def _per_column(condition: Expr) -> Iterator[Expr]:
    """What an OR over several relations says of single columns: weaker, but it can be pushed."""
    if not isinstance(condition, Call) or condition.function != "or":
        return
    branches = [conjuncts(branch) for branch in condition.args]
    for column in sorted(set(references(condition))):
        parts = [[p for p in branch if set(references(p)) == {column}] for branch in branches]
        if all(parts):
            yield disjunction(conjunction(part) for part in parts)
