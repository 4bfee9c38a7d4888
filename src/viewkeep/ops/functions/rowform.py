"""Row forms: a scalar function as a piece of Python source, for one row at a time.

A kernel of polars costs some 50 us whatever the number of rows, so few rows are cheaper one at a
time. A row form computes over physical values, as `codec.scalars` defines them: a DECIMAL is its
unscaled integer, a DATE its days and a TIMESTAMP its microseconds since 1970, a STRING its UTF-8
bytes, a BOOLEAN is true or false in a condition.

Law: a row form gives exactly what the kernel gives, for every value of its types, and never raises.
A function whose last bits depend on the library that computes it (`exp`, `sin`) has no row form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from viewkeep.expr import Scalar
from viewkeep.types import BIGINT, DOUBLE, INT, DataType


@dataclass(frozen=True)
class RowSite:
    """One call as its row form sees it: each argument is the name of a value, or a constant.

    No argument is NULL, unless the function `sees_nulls`; `maybe_null` says which ones may be.
    """

    args: tuple[str, ...]
    types: tuple[DataType, ...]
    result: DataType
    constants: dict[int, Scalar]
    maybe_null: tuple[bool, ...]
    names: dict[str, object] = field(repr=False)

    @property
    def first(self) -> str:
        return self.args[0]

    def use(self, helper: Callable[..., object]) -> str:
        """The name by which the source may call a helper function."""
        name = helper.__name__.lstrip("_")
        assert self.names.setdefault(name, helper) is helper, f"two helpers are called {name}"
        return name

    def is_known(self, at: int) -> str:
        """The test that an argument is not NULL."""
        return f"{self.args[at]} is not None" if self.maybe_null[at] else "True"

    def nulls(self, *places: int) -> list[str]:
        """Tests for NULL of these arguments, or all, without those that cannot be NULL."""
        chosen = places or range(len(self.args))
        return [f"{self.args[at]} is None" for at in chosen if self.maybe_null[at]]


RowForm: TypeAlias = Callable[[RowSite], str | None]
"""The source of an expression; None if the function has no row form for these types."""


def wrapped(source: str, type_: DataType) -> str:
    """An integer as the type holds it: the low bits, as a signed number."""
    bits = {INT: 32, BIGINT: 64}[type_]
    return f"(({source}) + {1 << bits - 1:#x} & {(1 << bits) - 1:#x}) - {1 << bits - 1:#x}"


def equal(a: str, b: str, type_: DataType) -> str:
    """Whether two values that are not NULL are equal; NaN equals itself."""
    if type_ == DOUBLE:
        return f"({a} == {b} or {a} != {a} and {b} != {b})"
    return f"{a} == {b}"


def below(a: str, b: str, type_: DataType) -> str:
    """Whether the first of two values that are not NULL is less; NaN is above all numbers."""
    if type_ == DOUBLE:
        return f"({a} < {b} or {b} != {b} and {a} == {a})"
    return f"{a} < {b}"


def fitted(unscaled: int, places: int, bound: int) -> int | None:
    """An unscaled DECIMAL with fewer (or more) places, HALF_UP; None if it reaches the bound."""
    if places > 0:
        unscaled = half_up(unscaled, 10**places)
    elif places < 0:
        unscaled *= 10**-places
    return unscaled if -bound < unscaled < bound else None


def rescaled(source: str, places: int, site: RowSite) -> str:
    """Source of an unscaled DECIMAL with fewer (or more) places as one of the result's type."""
    return f"{site.use(fitted)}({source}, {places}, {10**site.result.precision})"


def half_up(over: int, under: int) -> int:
    """The nearest integer to a ratio, halves away from zero."""
    size, by = abs(over), abs(under)
    rounded = (2 * size + by) // (2 * by)
    return -rounded if (over < 0) != (under < 0) else rounded


def truncated(over: int, under: int) -> int:
    """A ratio cut towards zero."""
    cut = abs(over) // abs(under)
    return -cut if (over < 0) != (under < 0) else cut


def double_rest(over: float, under: float) -> float:
    """The rest of a division with the sign of the dividend, as C's fmod; NaN where it has none."""
    if math.isinf(over):
        return math.nan
    return math.fmod(over, under)


def double_to_integer(value: float, bits: int) -> int:
    """Java's (int) and (long): NaN is 0, and what is too large becomes the largest."""
    if value != value:
        return 0
    largest = 1 << bits - 1
    if value >= largest:
        return largest - 1
    return -largest if value <= -largest else int(value)
