"""BIT_XOR as a linear total: each bit counts its ones modulo 2.

Law: xor(A + B) = xor(A) ^ xor(B), and a row is removed as it is added.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.ops.aggregates.totals import Linear
from viewkeep.types import Column


@dataclass(frozen=True)
class BitXor(Linear):
    """The exclusive or of an integer argument over a group's rows."""

    argument: Expr
    distinct: bool

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return (self.argument,)

    @property
    def bits(self) -> str:
        return f"#bits({'distinct ' if self.distinct else ''}{self.argument})"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (Column(self.bits, self.argument.type),)

    def gained(self, *places: str) -> list[pl.Expr]:
        value = pl.col(places[0])
        odd = value.is_not_null() & (pl.col(WEIGHT) % 2 != 0)
        return [value.filter(odd).bitwise_xor().fill_null(0).alias(self.bits)]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self.bits).bitwise_xor()]

    def advanced(self, old: pl.DataFrame, gain: pl.DataFrame) -> list[pl.Series]:
        # A group without distinct changes gains NULL.
        both = old[self.bits].fill_null(0) ^ gain[self.bits].fill_null(0)
        return [both.alias(self.bits)]
