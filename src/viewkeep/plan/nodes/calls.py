"""Calls of aggregate and window functions: values over the rows of a group, or around a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Scalar
from viewkeep.plan.nodes.node import Change
from viewkeep.plan.nodes.parts import CARRIED
from viewkeep.types import Column, DataType


@dataclass(frozen=True)
class Ordering:
    """An expression that rows are ordered by, and its direction."""

    expr: Expr
    descending: bool = False


_MADE_OF_DISTINCT = (
    "count", "sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "bit_xor",
    "percentile_cont", "percentile_disc", "string_agg", "array_agg",
)  # fmt: skip
AGGREGATES = (
    "count_star", *_MADE_OF_DISTINCT, *(f"{name}_distinct" for name in _MADE_OF_DISTINCT),
    "min", "max", "min_by", "max_by", "covar_pop", "covar_samp", "corr", "bool_and", "bool_or",
)  # fmt: skip


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function over the rows of a group.

    `function` is one of AGGREGATES. `argument` is None for `count_star` alone. A FILTER clause has
    become a CASE inside the argument. `by` orders the rows for functions that depend on an order,
    and holds the further arguments of those that take several; `parameters` are constants such as
    a separator or a fraction.
    """

    name: str
    function: str
    argument: Expr | None
    type: DataType
    by: tuple[Ordering, ...] = ()
    parameters: tuple[Scalar, ...] = ()

    def __post_init__(self) -> None:
        if self.function not in AGGREGATES:
            raise ValueError(f"no such aggregate: {self.function}")
        if (self.argument is None) != (self.function == "count_star"):
            raise ValueError(f"{self.function} has the wrong number of arguments")
        if self.function != "count" and any(expr.type.is_array for expr in self.expressions()):
            raise Unsupported("an ARRAY is not aggregated", hint="Aggregate its elements before")

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)

    def expressions(self) -> Iterator[Expr]:
        """The argument and what the rows are ordered by."""
        if self.argument is not None:
            yield self.argument
        yield from (part.expr for part in self.by)

    def mapped(self, change: Change) -> AggregateCall:
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
        function = self.function.removesuffix("_distinct")
        distinct = "DISTINCT " if function != self.function else ""
        inside = [str(self.argument), *(str(part) for part in self.parameters)]
        inside += [f"{part.expr}{' DESC' if part.descending else ''}" for part in self.by]
        return f"{function.upper()}({distinct}{', '.join(inside)})"


@dataclass(frozen=True)
class Frame:
    """The rows around a row that a window function sees, by distance; None is unbounded.

    Distances count from the row: -2 is two rows before. `rows` counts rows; `range` counts peers
    (rows that the order does not tell apart) as one, and its bounds are 0 or None.
    """

    unit: str
    start: int | None
    stop: int | None

    def __post_init__(self) -> None:
        if self.unit not in ("rows", "range"):
            raise ValueError(f"no such frame: {self.unit}")
        if self.unit == "range" and {self.start, self.stop} - {0, None}:
            raise ValueError("a range has no distances")

    def __str__(self) -> str:
        start = "unbounded" if self.start is None else str(self.start)
        stop = "unbounded" if self.stop is None else str(self.stop)
        return f"{self.unit} {start} to {stop}"


WINDOW_FUNCTIONS = (
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile",
    "lag", "lead", "first_value", "last_value", "nth_value",
    "count_star", "count", "sum", "avg", "min", "max",
)  # fmt: skip


@dataclass(frozen=True)
class WindowCall:
    """A function over the rows of a partition around each row.

    `arguments` are expressions over the input's columns. Offsets of `lag`, `lead` and `ntile`,
    and the place of `nth_value`, are constants among them.
    """

    name: str
    function: str
    arguments: tuple[Expr, ...]
    type: DataType
    frame: Frame | None = None
    ignore_nulls: bool = False

    def __post_init__(self) -> None:
        if self.function not in WINDOW_FUNCTIONS:
            raise ValueError(f"no such window function: {self.function}")
        if any(argument.type.is_array for argument in self.arguments):
            raise Unsupported(f"{self.function} of an ARRAY is not supported", hint=CARRIED)

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)

    @property
    def line(self) -> str:
        """The call by its name, and what it computes."""
        inside = ", ".join(map(str, self.arguments))
        nulls = " ignore nulls" if self.ignore_nulls else ""
        frame = "" if self.frame is None else f" {self.frame}"
        return f"{self.name} = {self.function}({inside}){nulls}{frame}"
