"""GROUPING SETS, ROLLUP and CUBE as plain lists of sets, and GROUPING, which tells sets apart.

Law: the sets come in the order of the text, the last element of GROUP BY running fastest, and a
set that is written twice is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.sql.parse.syntax import text_of
from viewkeep.types import BIGINT, INT, DataType

Key: TypeAlias = Callable[[exp.Expr], Expr]
Set: TypeAlias = tuple[Expr, ...]
MOST_SETS = 64


def sets_of(elements: Sequence[exp.Expr], key: Key) -> list[Set]:
    """The grouping sets of GROUP BY: one of each element, in all ways; `key` lowers a key."""
    choices = [_choices(element, key) for element in elements]
    count = 1
    for one in choices:
        count *= len(one)
    if count > MOST_SETS:
        raise Unsupported(
            f"GROUP BY has {count} grouping sets",
            hint=f"Name the sets that you need with GROUPING SETS, at most {MOST_SETS}",
        )
    made = [[part for one in chosen for part in one] for chosen in product(*choices)]
    return [tuple(dict.fromkeys(one)) for one in made]


def _choices(element: exp.Expr, key: Key) -> list[Set]:
    if isinstance(element, exp.GroupingSets):
        return [one for inner in element.expressions for one in _choices(inner, key)]
    if isinstance(element, exp.Rollup | exp.Cube):
        parts = [_together(part, key) for part in element.expressions]
        kept: list[Sequence[int]]
        if isinstance(element, exp.Rollup):
            kept = [range(size) for size in range(len(parts), -1, -1)]
        else:
            if 2 ** len(parts) > MOST_SETS:
                raise Unsupported(
                    f"CUBE of {len(parts)} has {2 ** len(parts)} grouping sets",
                    fragment=text_of(element),
                    hint=f"Name the sets that you need with GROUPING SETS, at most {MOST_SETS}",
                )
            flags = product((True, False), repeat=len(parts))
            kept = [[i for i, flag in enumerate(one) if flag] for one in flags]
        return [tuple(k for i in chosen for k in parts[i]) for chosen in kept]
    return [_together(element, key)]


def _together(element: exp.Expr, key: Key) -> Set:
    """The keys of a list in parentheses, which count as one."""
    if isinstance(element, exp.Tuple):
        return tuple(key(part) for part in element.expressions)
    return (key(element.this if isinstance(element, exp.Paren) else element),)


class Marks:
    """The calls of GROUPING and GROUPING_ID in a query: constants of each grouping set."""

    def __init__(self, keys: Sequence[Expr], below: Callable[[exp.Expr], Expr | None], key: Key):
        self._keys, self._below, self._key = tuple(keys), below, key
        self.found: dict[str, Set] = {}

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of GROUPING(x) or GROUPING_ID(): a column; else what `below` says."""
        name = tree.name.lower() if isinstance(tree, exp.Anonymous) else ""
        if name not in ("grouping", "grouping_id"):
            return self._below(tree)
        given = tuple(self._key(part) for part in tree.expressions)
        if name == "grouping":
            if len(given) != 1 or given[0] not in self._keys:
                raise Unsupported(
                    "GROUPING takes an expression of GROUP BY", fragment=text_of(tree)
                )
        elif given and given != self._keys:
            raise Unsupported(
                "GROUPING_ID takes the expressions of GROUP BY, in order, or nothing",
                fragment=text_of(tree),
            )
        text = f"{name}({', '.join(map(str, given))})"
        self.found[text] = given or self._keys
        return Ref(text, _type(text))

    def value(self, name: str, one: Set) -> Lit:
        """What a call is in the rows of a grouping set: a bit per expression, 1 if it is out."""
        made = 0
        for key in self.found[name]:
            made = 2 * made + (key not in one)
        return Lit(made, _type(name))


def _type(name: str) -> DataType:
    return BIGINT if name.startswith("grouping_id") else INT
