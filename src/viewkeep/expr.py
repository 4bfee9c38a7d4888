"""Typed scalar expressions over the columns of one row: the form that plans carry and workers run.

An expression is a value: frozen, hashable, equal by content. Its text is canonical, so two equal
texts mean the same computation; plans name their columns and derive their ids from it. NULL rules
are those of Spark SQL with ANSI mode off: what has no value for a row (a division by zero, a cast
that fails) is NULL, because a view must not stop on one row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from viewkeep.types import DataType

Scalar: TypeAlias = bool | int | float | Decimal | str | bytes | dt.date | dt.datetime | None


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


@dataclass(frozen=True)
class Call:
    """A function of `ops.functions` applied to arguments already cast to what it takes.

    Casts are calls of the function `cast`, whose target is `type`. AND, OR, NOT, comparisons,
    CASE (`case`: condition, value, ..., default) and IN (`in`: value, constants...) are functions
    too.
    """

    function: str
    args: tuple[Expr, ...]
    type: DataType

    def __str__(self) -> str:
        inner = ", ".join(str(arg) for arg in self.args)
        suffix = f" AS {self.type}" if self.function == "cast" else ""
        return f"{self.function}({inner}{suffix})"


Expr: TypeAlias = Ref | Lit | Call


def references(expr: Expr) -> Iterator[str]:
    """The names of the columns that an expression reads, with repetitions."""
    if isinstance(expr, Ref):
        yield expr.name
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from references(arg)


def substitute(expr: Expr, by: dict[str, Expr]) -> Expr:
    """The expression with every column replaced by what `by` says of it; others stay."""
    if isinstance(expr, Ref):
        return by.get(expr.name, expr)
    if isinstance(expr, Call):
        return Call(expr.function, tuple(substitute(arg, by) for arg in expr.args), expr.type)
    return expr
