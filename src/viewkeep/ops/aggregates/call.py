"""Calls of aggregate functions, as plans have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Scalar
from viewkeep.ops.aggregates.function import AggregateFunction
from viewkeep.ops.aggregates.registry import AGGREGATES
from viewkeep.types import Column, DataType

_DISTINCT = "_distinct"


@dataclass(frozen=True)
class Ordering:
    """An expression that rows are ordered by, and its direction."""

    expr: Expr
    descending: bool = False


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function over the rows of a group.

    `function` names one of AGGREGATES, with `_distinct` after it if equal values count once.
    `argument` is None for `count_star` alone. A FILTER clause has become a CASE inside the
    argument. `by` orders the rows for functions that depend on an order, and holds the further
    arguments of those that take several; `parameters` are constants such as a separator.
    """

    name: str
    function: str
    argument: Expr | None
    type: DataType
    by: tuple[Ordering, ...] = ()
    parameters: tuple[Scalar, ...] = ()

    def __post_init__(self) -> None:
        function = AGGREGATES.get(self.base)
        if function is None or (self.is_distinct and not function.takes_distinct):
            raise ValueError(f"no such aggregate: {self.function}")
        if (self.argument is None) != (self.function == "count_star"):
            raise ValueError(f"{self.function} has the wrong number of arguments")
        if self.function != "count" and any(expr.type.is_array for expr in self.expressions()):
            raise Unsupported("an ARRAY is not aggregated", hint="Aggregate its elements before")

    @property
    def base(self) -> str:
        """The function's name without DISTINCT."""
        return self.function.removesuffix(_DISTINCT)

    @property
    def is_distinct(self) -> bool:
        """Whether equal values count once."""
        return self.function.endswith(_DISTINCT)

    @property
    def entry(self) -> AggregateFunction:
        """What the function is."""
        return AGGREGATES[self.base]

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)

    def expressions(self) -> Iterator[Expr]:
        """The argument and what the rows are ordered by."""
        if self.argument is not None:
            yield self.argument
        yield from (part.expr for part in self.by)

    def mapped(self, change: Callable[[Expr], Expr]) -> AggregateCall:
        """The call with its expressions changed."""
        argument = None if self.argument is None else change(self.argument)
        by = tuple(replace(part, expr=change(part.expr)) for part in self.by)
        return replace(self, argument=argument, by=by)

    @property
    def line(self) -> str:
        """The call by its name, and what it computes where the name does not say so."""
        inside = "*" if self.argument is None else str(self.argument)
        by = [f"{part.expr}{' desc' if part.descending else ''}" for part in self.by]
        inside += f" order by {', '.join(by)}" if by else ""
        inside += "".join(f"; {value!r}" for value in self.parameters)
        return f"{self.name} = {self.function}({inside})"

    @property
    def title(self) -> str:
        """The call as EXPLAIN has it."""
        if self.argument is None:
            return "COUNT(*)"
        distinct = "DISTINCT " if self.is_distinct else ""
        inside = [str(self.argument), *(str(part) for part in self.parameters)]
        inside += [f"{part.expr}{' DESC' if part.descending else ''}" for part in self.by]
        return f"{self.base.upper()}({distinct}{', '.join(inside)})"
