"""Typed scalar expressions over the columns of one row: the form that plans carry and workers run.

An expression is a value: frozen, hashable, equal by content. Its text is canonical, so two equal
texts mean the same computation; plans name their columns and derive their ids from it. NULL rules
are those of Spark SQL with ANSI mode off: what has no value for a row (a division by zero, a cast
that fails) is NULL, because a view must not stop on one row.

An expression may be deep, and may share its parts, so nothing here recurses, and nothing walks an
expression that it has compared, hashed or spelt before. `MOST_DEEP` is the depth that lowering and
passes accept: what stands after them (polars takes the cube of an expression's depth, Spark SQL and
DuckDB recurse) is safe up to it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from viewkeep.types import DataType

Scalar: TypeAlias = bool | int | float | Decimal | str | bytes | dt.date | dt.datetime | None

MOST_DEEP: Final = 200
"""Calls within calls in one expression."""
_LONGEST_NAME = 1_000


@dataclass(frozen=True)
class Ref:
    """The value of a column."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lit:
    """A constant; `value` is None for a typed NULL."""

    value: Scalar
    type: DataType

    def __str__(self) -> str:
        return f"{self.value!r}:{self.type}"


@dataclass(frozen=True, eq=False, repr=False)
class Call:
    """A function of `ops.functions` applied to arguments already cast to what it takes.

    Casts are calls of the function `cast`, whose target is `type`. AND, OR, NOT, comparisons,
    CASE (`case`: condition, value, ..., default) and IN (`in`: value, constants...) are functions
    too. `depth` counts calls within calls, `size` all calls, each place of a shared one for itself.
    """

    function: str
    args: tuple[Expr, ...]
    type: DataType

    def __post_init__(self) -> None:
        inner = [arg for arg in self.args if isinstance(arg, Call)]
        # Not fields: they follow from the fields.
        self.__dict__["depth"] = 1 + max((arg.depth for arg in inner), default=0)
        self.__dict__["size"] = 1 + sum(arg.size for arg in inner)
        self.__dict__["_hash"] = hash((self.function, self.args, self.type))

    @property
    def depth(self) -> int:
        return int(self.__dict__["depth"])

    @property
    def size(self) -> int:
        return int(self.__dict__["size"])

    def __hash__(self) -> int:
        return int(self.__dict__["_hash"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        seen: set[tuple[int, int]] = set()
        waiting: list[tuple[Expr, Expr]] = [(self, other)]
        while waiting:
            one, two = waiting.pop()
            if one is two or (id(one), id(two)) in seen:
                continue
            if not isinstance(one, Call) or not isinstance(two, Call):
                if one != two:
                    return False
                continue
            if hash(one) != hash(two) or one.function != two.function or one.type != two.type:
                return False
            if len(one.args) != len(two.args):
                return False
            seen.add((id(one), id(two)))
            waiting.extend(zip(one.args, two.args, strict=True))
        return True

    def __reduce__(self) -> tuple[object, ...]:
        return Call, (self.function, self.args, self.type)  # hashes differ between processes

    def __str__(self) -> str:
        return self._spelt("text", str, _as_text)

    def __repr__(self) -> str:
        return self._spelt("repr", repr, _as_repr)

    def _spelt(
        self, form: str, leaf: Callable[[object], str], around: Callable[[Call], _Around]
    ) -> str:
        """A text of the expression, kept for the next time. Parts are spelt from left to right."""
        known = self.__dict__.get(form)
        if known is None:
            parts: list[str] = []
            waiting: list[Expr | str] = [self]
            while waiting:
                expr = waiting.pop()
                if isinstance(expr, str):
                    parts.append(expr)
                elif not isinstance(expr, Call):
                    parts.append(leaf(expr))
                elif (text := expr.__dict__.get(form)) is not None:
                    parts.append(text)
                else:
                    before, after = around(expr)
                    parts.append(before)
                    waiting.append(after)
                    for place in range(len(expr.args) - 1, -1, -1):
                        waiting.append(expr.args[place])
                        if place:
                            waiting.append(", ")
            known = self.__dict__[form] = "".join(parts)
        return str(known)


_Around: TypeAlias = tuple[str, str]


def _as_text(call: Call) -> _Around:
    return f"{call.function}(", f" AS {call.type})" if call.function == "cast" else ")"


def _as_repr(call: Call) -> _Around:
    """As a dataclass is written, on which the ids of plan nodes stand."""
    comma = "," if len(call.args) == 1 else ""
    return f"Call(function={call.function!r}, args=(", f"{comma}), type={call.type!r})"


Expr: TypeAlias = Ref | Lit | Call


def calls(exprs: Iterable[Expr]) -> Iterator[Call]:
    """The calls of expressions, arguments before the calls they stand in, each object once."""
    done: set[int] = set()
    waiting: list[tuple[Expr, bool]] = [(expr, False) for expr in reversed(list(exprs))]
    while waiting:
        expr, ready = waiting.pop()
        if not isinstance(expr, Call) or id(expr) in done:
            continue
        if ready:
            done.add(id(expr))
            yield expr
        else:
            waiting.append((expr, True))
            waiting.extend((arg, False) for arg in reversed(expr.args))


def references(expr: Expr) -> Iterator[str]:
    """The names of the columns that an expression reads, in order, some with repetitions."""
    seen: set[int] = set()
    waiting: list[Expr] = [expr]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Ref):
            yield one.name
        elif isinstance(one, Call) and id(one) not in seen:
            seen.add(id(one))
            waiting.extend(reversed(one.args))


def rebuilt(
    expr: Expr,
    leaf: Callable[[Ref | Lit], Expr],
    made: Callable[[Call, tuple[Expr, ...]], Expr],
) -> Expr:
    """The expression with its leaves, then from the inside its calls, replaced by others."""
    new: dict[int, Expr] = {}

    def of(arg: Expr) -> Expr:
        return new[id(arg)] if isinstance(arg, Call) else leaf(arg)

    for call in calls([expr]):
        new[id(call)] = made(call, tuple(map(of, call.args)))
    return of(expr)


def unused(text: str, taken: Collection[str]) -> str:
    """A name for a column that is not taken: a text, shortened where it is very long, or like it.

    A name is part of the names above it, which would double at each level of a plan.
    """
    if len(text) > _LONGEST_NAME:
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        text = f"{text[:100]}...#{digest}"
    while text in taken:
        text += "'"
    return text
