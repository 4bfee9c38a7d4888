"""What nodes are made of beside expressions: named outputs, calls, matches, parts of keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Ref
from viewkeep.types import Column

CARRIED = "Use its elements before they are collected, or STRING_AGG"
"""What to do where an ARRAY would be computed with."""


@dataclass(frozen=True)
class Named:
    """An expression and the output column that it computes."""

    name: str
    expr: Expr

    @property
    def column(self) -> Column:
        return Column(self.name, self.expr.type)


@dataclass(frozen=True)
class KeyPart:
    """A column of a state table's key and its direction."""

    name: str
    descending: bool = False


@dataclass(frozen=True)
class Match:
    """A condition of a join: equal values left and right; NULL equals NULL if `null_safe`."""

    left: Expr
    right: Expr
    null_safe: bool = False

    def __post_init__(self) -> None:
        if self.left.type != self.right.type:
            raise ValueError(f"{self.left.type} is matched with {self.right.type}")
        if self.left.type.is_array:
            raise Unsupported("nothing is matched by an ARRAY", hint=CARRIED)

    def __str__(self) -> str:
        return f"{self.left} {'<=>' if self.null_safe else '='} {self.right}"


def named_text(outputs: Iterable[Named]) -> str:
    """Outputs as text; a column that is passed on as it is has its name alone."""
    return ", ".join(
        out.name
        if isinstance(out.expr, Ref) and out.name == out.expr.name
        else f"{out.name} = {out.expr}"
        for out in outputs
    )


def order_text(parts: Iterable[KeyPart], descending: str = " desc") -> str:
    """Parts of a key or an order as text."""
    return ", ".join(part.name + (descending if part.descending else "") for part in parts)


def placed_line(partition: Sequence[str], order: Sequence[KeyPart]) -> str:
    """A partition and an order, as a plan's text has them."""
    text = f" per {', '.join(partition)}" if partition else ""
    return text + (f" order by {order_text(order)}" if order else "")


def placed_title(partition: Sequence[str], order: Sequence[KeyPart]) -> str:
    """A partition and an order, as EXPLAIN has them."""
    text = f" per {', '.join(partition)}" if partition else ""
    return text + (f" by {order_text(order, ' DESC')}" if order else "")
