"""Deltas of the rows lane, and what travels to an operator there.

A delta is a list of rows: the key that a row has in its operator's table, its physical values, its
weight. What an operator gets depends on its kind: encoded rows for an Arrange, gains for an
Aggregate, deltas by port for a join, TOP-K or window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

Values: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[bytes, Values, int]
Rows: TypeAlias = list[Row]
Encoded: TypeAlias = list[tuple[bytes, bytes, int]]  # key, row bytes, weight
T = TypeVar("T")

FEW = 2_000
"""Rows up to which the rows lane is faster: of an epoch, loaded by it, of an operator's input.

Measured by benchmarks/epochs.py: at 1,000 rows columns take 2.1 to 3.4 times as long, at 3,000 1.6
to 1.8 times.
"""


class RowGains:
    """What rows add to groups: a list of slots for each, and how often each value comes and goes.

    A group's slots are its key columns, its rows, then the columns of the totals. `values` has for
    each ordered table the gains of values, by the group's key and the value.
    """

    __slots__ = ("groups", "values")

    def __init__(self, orders: int):
        self.groups: dict[bytes, list[Any]] = {}
        self.values: tuple[dict[tuple[bytes, Values], int], ...] = tuple({} for _ in range(orders))

    def __len__(self) -> int:
        return len(self.groups) + sum(map(len, self.values))


class Boxes(dict[int, T], Generic[T]):
    """What goes to each shard, made where it is asked for."""

    def __init__(self, make: Callable[[], T]):
        super().__init__()
        self._make = make

    def __missing__(self, shard: int) -> T:
        made = self[shard] = self._make()
        return made


class ColumnsNeeded(Exception):
    """The rows lane cannot do this; nothing was staged, so the columns lane can."""


class TooMany(Exception):
    """A step makes so many rows that the whole epoch belongs into the columns lane."""
