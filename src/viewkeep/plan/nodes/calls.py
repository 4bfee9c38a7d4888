"""Calls of window functions: values over the rows around a row."""

from __future__ import annotations

from dataclasses import dataclass

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr
from viewkeep.plan.nodes.parts import CARRIED
from viewkeep.types import Column, DataType


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
