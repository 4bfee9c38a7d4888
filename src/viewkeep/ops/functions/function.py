"""What a scalar function is: its name, its typing rule, and its kernel as a polars expression.

A kernel sees arguments already cast to what its typing rule asked for, gives one value per row, and
depends on nothing but those arguments. A function may have a row form too, which computes the same
for one row at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from viewkeep.deferred import pl
from viewkeep.expr import Scalar
from viewkeep.ops.functions.rowform import RowForm
from viewkeep.types import DataType

Constants: TypeAlias = Mapping[int, Scalar]
"""The values of the arguments that are constants, by position."""

Signature: TypeAlias = tuple[tuple[DataType, ...], DataType]
"""The types that the arguments are cast to, and the type of the result."""


@dataclass(frozen=True)
class Site:
    """One call as its kernel sees it."""

    args: tuple[pl.Expr, ...]
    types: tuple[DataType, ...]
    result: DataType
    constants: Constants

    @property
    def first(self) -> pl.Expr:
        return self.args[0]


Resolve: TypeAlias = Callable[[Sequence[DataType], Constants], Signature]
Build: TypeAlias = "Callable[[Site], pl.Expr]"


@dataclass(frozen=True)
class Function:
    """A scalar function. `resolve` raises TypeMismatch where the types do not fit.

    `example` is a runnable SQL expression, for the documentation. `row` is the row form; it meets
    no NULL and the call is NULL where an argument is, unless the function `sees_nulls`.
    """

    name: str
    resolve: Resolve
    build: Build
    doc: str
    example: str
    aliases: tuple[str, ...] = ()
    row: RowForm | None = None
    sees_nulls: bool = False
