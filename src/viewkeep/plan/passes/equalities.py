"""Classes of expressions that are equal in every row of a cluster of joins.

Law: from a = b and b = c follows a = c, so whichever of the three relations come together first,
there is a match between them; and no match is made twice. Nothing in a class is NULL. What is
equal or NULL together is known beside, for row keys alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from viewkeep.expr import Call, Expr, Ref, references
from viewkeep.plan.conditions import arranged
from viewkeep.plan.nodes import Match
from viewkeep.types import BOOLEAN, DOUBLE


class Equalities:
    """The classes that conditions make. `taken` are the conditions that they stand for."""

    def __init__(self, conditions: Iterable[Expr], owner: Mapping[str, int]):
        self._owner = owner
        self.taken: set[Expr] = set()
        self._class: dict[Expr, set[Expr]] = {}
        self._same: dict[Expr, set[Expr]] = {}
        for condition in conditions:
            if not isinstance(condition, Call) or condition.function not in ("eq", "null_safe_eq"):
                continue
            one, other = condition.args
            if one.type == other.type and self._leaf(one) is not None is not self._leaf(other):
                _merge(self._same, one, other)
                if condition.function == "eq":
                    self.taken.add(condition)
                    _merge(self._class, one, other)
        different = {id(members): members for members in self._class.values()}
        self._classes = sorted(different.values(), key=lambda members: min(map(str, members)))

    def pairs(self) -> set[Expr]:
        """Every equality that follows from the conditions, whichever of them were given."""
        return {
            arranged(Call("eq", pair, BOOLEAN))
            for members in self._classes
            for pair in combinations(sorted(members, key=str), 2)
        }

    def name(self, expr: Expr) -> str:
        """The same text for equal expressions."""
        return min(map(str, self._class.get(expr, {expr})))

    def of_key(self, expr: Expr, row_key: Collection[str]) -> Expr:
        """A column of the row key with the value of an expression, else the expression itself.

        Floating-point numbers that are equal may differ, as 0.0 and -0.0 do.
        """
        if expr.type == DOUBLE or (isinstance(expr, Ref) and expr.name in row_key):
            return expr
        equal = (one for one in self._same.get(expr, ()) if isinstance(one, Ref))
        return min((one for one in equal if one.name in row_key), key=str, default=expr)

    def leaves_with(self, name: str) -> set[int]:
        """The leaves that have something equal to a column."""
        for members in self._classes:
            if any(isinstance(expr, Ref) and expr.name == name for expr in members):
                return {leaf for expr in members if (leaf := self._leaf(expr)) is not None}
        return set()

    def within(self, leaf: int, row_key: Collection[str]) -> list[Expr]:
        """Conditions that make the members of each class equal which belong to one leaf."""
        made: list[Expr] = []
        for members in self._classes:
            own = {expr for expr in members if self._leaf(expr) == leaf}
            if len(own) > 1:
                first = _best(own, row_key)
                made += [arranged(Call("eq", (first, other), BOOLEAN)) for other in own - {first}]
        return made

    def between(
        self,
        left: Collection[int],
        left_key: Collection[str],
        right: Collection[int],
        right_key: Collection[str],
    ) -> list[Match]:
        """A match for each class that has members among the leaves of both sides."""
        made = []
        for members in self._classes:
            ours = [expr for expr in members if self._leaf(expr) in left]
            theirs = [expr for expr in members if self._leaf(expr) in right]
            if ours and theirs:
                made.append(Match(_best(ours, left_key), _best(theirs, right_key)))
        return made

    def open(self, leaves: Collection[int], row_key: Collection[str]) -> list[Expr]:
        """What of these leaves will be matched with others."""
        made = []
        for members in self._classes:
            ours = [expr for expr in members if self._leaf(expr) in leaves]
            if ours and len(ours) < len(members):
                made.append(_best(ours, row_key))
        return made

    def _leaf(self, expr: Expr) -> int | None:
        """The one leaf whose columns an expression reads."""
        leaves = {self._owner[name] for name in references(expr)}
        return leaves.pop() if len(leaves) == 1 else None


def _merge(classes: dict[Expr, set[Expr]], one: Expr, other: Expr) -> None:
    members = classes.get(one, {one}) | classes.get(other, {other})
    for expr in members:
        classes[expr] = members


def _best(exprs: Iterable[Expr], row_key: Collection[str]) -> Expr:
    """Of equal expressions one of the row key, so that it is seen to be matched."""
    return min(exprs, key=lambda e: (not (isinstance(e, Ref) and e.name in row_key), str(e)))
