"""Matches of joins, and the conditions that say the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from viewkeep.expr import Call, Expr, Ref
from viewkeep.plan.conditions import arranged, reads
from viewkeep.plan.nodes import Match, Node
from viewkeep.types import BOOLEAN


def equality(match: Match) -> Expr:
    """A match as a condition over both sides."""
    name = "null_safe_eq" if match.null_safe else "eq"
    return arranged(Call(name, (match.left, match.right), BOOLEAN))


def as_match(condition: Expr, ours: Collection[str], theirs: Collection[str]) -> Match | None:
    """A condition as a match between sides with these columns, if it is one."""
    if not isinstance(condition, Call) or condition.function not in ("eq", "null_safe_eq"):
        return None
    one, other = condition.args
    if one.type != other.type:
        return None
    for left, right in ((one, other), (other, one)):
        # A constant is on either side, so it connects none.
        if reads(left, ours) and reads(right, theirs) and not reads(left, theirs):
            return Match(left, right, condition.function == "null_safe_eq")
    return None


def ordered(matches: Iterable[Match]) -> tuple[Match, ...]:
    """Matches in canonical order, each once."""
    return tuple(sorted(set(matches), key=lambda m: (str(m.left), str(m.right), m.null_safe)))


def covers(exprs: Iterable[Expr], node: Node) -> bool:
    """Whether values for these expressions leave at most one row of a node."""
    given = {expr.name for expr in exprs if isinstance(expr, Ref)}
    return given.issuperset(node.row_key)
