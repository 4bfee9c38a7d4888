"""REVERSE-JOIN."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from viewkeep.errors import QueryTooLarge
from viewkeep.expr import Expr, Ref, references
from viewkeep.plan.nodes.arrangements import Side, join_sides
from viewkeep.plan.nodes.facts import transferred
from viewkeep.plan.nodes.node import Change, Node, ReaderNode, columns_read, names, need
from viewkeep.plan.nodes.parts import Match
from viewkeep.plan.nodes.project import renamed
from viewkeep.types import Column

JOINS = ("inner", "left", "semi", "anti")
MOST_KEYS: Final = 1_000
"""Columns of a join's row key. Joins of joins on other columns than keys double them."""


@dataclass(frozen=True, eq=False)
class Join(ReaderNode):
    """REVERSE-JOIN: the rows of `left` with their partners in `right`.

    `inner`: each row with each partner. `left`: also rows without a partner, NULL on the right.
    `semi`, `anti`: rows with a partner, rows without, and no columns of the right. RIGHT and FULL
    joins, and conditions that are not matches, are made of these. Columns of both sides differ in
    name. Without matches every row is a partner.
    """

    kind: str
    left: Node
    right: Node
    on: tuple[Match, ...]

    computes = False

    def __post_init__(self) -> None:
        if self.kind not in JOINS:
            raise ValueError(f"no such join: {self.kind}")
        if self.shows_right and (both := names(self.left) & names(self.right)):
            raise ValueError(f"{sorted(both)} are columns of both sides")
        for match in self.on:
            need(references(match.left), self.left.columns)
            need(references(match.right), self.right.columns)
        if len(self.row_key) > MOST_KEYS:
            raise QueryTooLarge(
                f"the rows of a join are told apart by more than {MOST_KEYS:,} columns",
                hint="Join by whole keys, or group the rows of each side before",
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @cached_property
    def shows_right(self) -> bool:
        """Whether the columns of the right side are part of the result."""
        return self.kind in ("inner", "left")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + (self.right.columns if self.shows_right else ())

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        """Both row keys; one of them where the other side has at most one partner for a row."""
        if not self.shows_right or _covered(self.right, [match.right for match in self.on]):
            return self.left.row_key
        if self.kind == "inner" and _covered(self.left, [match.left for match in self.on]):
            return self.right.row_key
        return self.left.row_key + self.right.row_key

    @property
    def line(self) -> str:
        on = ", ".join(map(str, self.on))
        return f"{self.kind} join" + (f" on {on}" if on else "")

    def title(self, local: bool) -> str:
        on = ", ".join(map(str, self.on))
        return f"⋈ {self.kind.upper()} REVERSE-JOIN" + (f" on {on}" if on else "")

    def expressions(self) -> Iterator[Expr]:
        return (side for match in self.on for side in (match.left, match.right))

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Join(self.kind, inputs[0], inputs[1], self.on)

    def mapped(self, change: Change, inputs: tuple[Node, ...]) -> Node:
        on = tuple(Match(change(m.left), change(m.right), m.null_safe) for m in self.on)
        return Join(self.kind, inputs[0], inputs[1], on)

    def over(self, inputs: tuple[Node, ...]) -> Node:
        return joined(self.kind, inputs[0], inputs[1], self.on, ours=names(self.left))

    def reads(self, needed: Collection[str]) -> tuple[set[str], ...]:
        left = {*needed, *columns_read(match.left for match in self.on)} & names(self.left)
        right = columns_read(match.right for match in self.on)
        right |= set(needed) & names(self.right) if self.shows_right else set()
        return left, right

    def without_unused(self, needed: Collection[str]) -> Node:
        """Its left side, if it neither adds nor removes rows, nor a column that is needed."""
        if self.kind != "left" or names(self.right) & set(needed):
            return self
        given = {match.right.name for match in self.on if isinstance(match.right, Ref)}
        return self.left if given.issuperset(self.right.row_key) else self

    def never_null(self, below: Sequence[frozenset[str]]) -> Collection[str]:
        if self.kind != "inner":
            return below[0]
        ends = [end for m in self.on if not m.null_safe for end in (m.left, m.right)]
        return below[0] | below[1] | {end.name for end in ends if isinstance(end, Ref)}

    def facts(self, below: Sequence[frozenset[Expr]]) -> Iterable[Expr]:
        if self.kind != "inner":
            return below[0]
        known = below[0] | below[1]
        while (
            more := {
                *transferred(known, self.on, "left"),
                *transferred(known, self.on, "right"),
            }
            - known
        ):
            known |= more
        return known

    def sides(self) -> tuple[Side, ...]:
        return join_sides(self.kind, self.left, self.right, self.on)

    @property
    def empty_without(self) -> tuple[int, ...]:
        return (0, 1) if self.kind == "semi" else (0,)

    @property
    def zones(self) -> int:
        return 2 if self.kind == "inner" else 1


def _covered(side: Node, matched: list[Expr]) -> bool:
    return {Ref(c.name, c.type) for c in side.columns if c.name in side.row_key} <= set(matched)


def joined(
    kind: str, left: Node, right: Node, on: tuple[Match, ...], ours: Collection[str]
) -> Join:
    """A join whose sides may have got columns of the same name, for their row keys.

    `ours` are the columns that somebody may read from the left side; of a name that both sides
    have, the other side's column is called otherwise.
    """
    if kind in ("inner", "left") and (both := names(left) & names(right)):
        taken = names(left) | names(right)
        left = renamed(left, both - set(ours), taken)
        right = renamed(right, both & set(ours), taken)
    return Join(kind, left, right, on)
