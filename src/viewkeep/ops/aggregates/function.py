"""What an aggregate function is: its type, what a group keeps for it, and its value from that.

Law: a value is a function of the multiset of the group's values. There are two ways to keep one. Of
*totals*, to which each row's share is added: the value is computed from the group's row alone
(`finish`, and `source` for one row). Or of the *values* of the group in an order (`order`): the
value is computed from all of them (`of_values`); extremes and percentiles need a few alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from viewkeep.deferred import pl
from viewkeep.errors import TypeMismatch
from viewkeep.expr import Expr, Scalar
from viewkeep.ops.aggregates.ordered import Ordered
from viewkeep.ops.aggregates.totals import Linear
from viewkeep.types import Column, DataType

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall


class Kept(Enum):
    """How a group keeps the value of a function from one epoch to the next."""

    COUNT = "a count of the group's row"
    TOTALS = "computed from totals"
    EXTREME = "the first or last of the values"
    PERCENTILE = "an anchor among the values"
    VALUES = "all values of a group that changed"


@dataclass(frozen=True)
class Counted:
    """A count that a call asks for, and maybe the sum: calls of the same values share one Total.

    `others` tell distinct rows apart besides the argument. `shown` names the count's column where
    it is the call itself.
    """

    argument: Expr
    distinct: bool
    summed: bool = False
    averaged: bool = False
    others: tuple[Expr, ...] = ()
    shown: str = ""

    @property
    def same(self) -> tuple[object, ...]:
        """Equal for those that share a Total."""
        return (self.argument, self.others, self.distinct)


@dataclass(frozen=True)
class Output:
    """An aggregate asked for: what it is computed from and its column.

    `hidden` columns are kept besides, for the next epoch: what MIN_BY orders by, or the anchor of
    a percentile. `order` is set for functions that depend on one.
    """

    name: str
    function: AggregateFunction
    type: DataType
    distinct: bool = False
    totals: tuple[Linear, ...] = ()
    order: Ordered | None = None
    hidden: tuple[Column, ...] = ()
    parameters: tuple[Scalar, ...] = ()


class AggregateFunction:
    """An aggregate function. `spellings` are its names in SQL where it takes one argument."""

    takes_distinct: ClassVar[bool] = False
    """Whether it differs if equal values count once, so that DISTINCT is kept."""
    is_never_null: ClassVar[bool] = False
    """Whether a group without values has a value all the same."""
    kept: ClassVar[Kept] = Kept.TOTALS

    def __init__(self, name: str, *spellings: str):
        self.name, self.spellings = name, spellings

    def __repr__(self) -> str:
        return self.name

    # -- typing --------------------------------------------------------------------------------

    def result(self, given: DataType) -> DataType:
        """The type of its value, or TypeMismatch."""
        return given

    def takes_double(self, given: DataType) -> bool:
        """Whether an argument of this type is made a DOUBLE first."""
        return False

    def refused(self, given: DataType) -> TypeMismatch:
        """The error for an argument that is no number."""
        return TypeMismatch(
            f"{self.name} of {given} has no meaning", hint=f"{self.name} takes a number"
        )

    # -- what a group keeps --------------------------------------------------------------------

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        """The counts and sums that a call is made of, its argument's first."""
        return ()

    def further(self, call: AggregateCall) -> tuple[Linear, ...]:
        """Totals of other kinds, which follow those."""
        return ()

    def order(self, call: AggregateCall) -> Ordered | None:
        """The order of the values that are kept, if any are."""
        return None

    def hidden(self, call: AggregateCall) -> tuple[Column, ...]:
        """Columns that are kept besides the value."""
        return ()

    # -- its value -----------------------------------------------------------------------------

    def finish(self, state: pl.DataFrame, output: Output) -> pl.Series:
        """The values of groups whose totals are columns of `state`."""
        raise NotImplementedError(f"{self.name} is not made of totals")

    def source(
        self, output: Output, columns: Mapping[str, str], names: dict[str, object]
    ) -> str | None:
        """The source of `finish` for one group; None where the columns lane has to do it.

        `columns` has the source of each column of the totals; what it calls is added to `names`.
        """
        return None

    def of_values(self, values: pl.DataFrame, groups: pl.DataFrame, output: Output) -> pl.Series:
        """The values of groups, in their order, given all their values.

        `values` has GROUP (a position in `groups`), the columns of the order, and TIMES.
        """
        raise NotImplementedError(f"{self.name} is not made of values")

    def of_none(self, series: pl.Series) -> pl.Series:
        """Values of groups, with what a group without values has where there is NULL."""
        return series
