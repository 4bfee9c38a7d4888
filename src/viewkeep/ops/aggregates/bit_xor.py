"""BIT_XOR as a linear total: each bit counts its ones modulo 2.

Law: xor(A + B) = xor(A) ^ xor(B), and a row is removed as it is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeep.deferred import pl
from viewkeep.delta import WEIGHT
from viewkeep.errors import TypeMismatch
from viewkeep.expr import Expr
from viewkeep.ops.aggregates.function import AggregateFunction, Counted, Output
from viewkeep.ops.aggregates.totals import Linear, Total
from viewkeep.types import Column, DataType

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall


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

    def row_gain(self, values: Sequence[str], at: int, names: dict[str, object]) -> list[str]:
        value = values[0]
        return [f"if {value} is not None:", f"    if weight % 2: group[{at}] ^= {value}"]

    def row_advance(self, old: Sequence[str], gained: Sequence[str]) -> list[str]:
        return [f"{old[0]} ^ {gained[0]}"]

    row_merge = "xored"


class BitXorFunction(AggregateFunction):
    """BIT_XOR: the bits that an odd number of values have."""

    takes_distinct = True

    def result(self, given: DataType) -> DataType:
        if not given.is_integer:
            raise TypeMismatch(f"bit_xor of {given} has no meaning", hint="It takes an integer")
        return given

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        assert call.argument is not None
        return (Counted(call.argument, call.is_distinct),)

    def further(self, call: AggregateCall) -> tuple[Linear, ...]:
        assert call.argument is not None
        return (BitXor(call.argument, call.is_distinct),)

    def finish(self, state: pl.DataFrame, output: Output) -> pl.Series:
        count, bits = _columns(output)
        made = pl.when(pl.col(count) > 0).then(pl.col(bits))
        return state.select(made.alias(output.name)).to_series()

    def source(
        self, output: Output, columns: Mapping[str, str], names: dict[str, object]
    ) -> str | None:
        count, bits = (columns.get(name, "?") for name in _columns(output))
        return f"{bits} if {count} > 0 else None"


def _columns(output: Output) -> tuple[str, str]:
    total, xor = output.totals
    assert isinstance(total, Total)
    assert isinstance(xor, BitXor)
    return total.count, xor.bits
