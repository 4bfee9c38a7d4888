"""Values of a group's rows in an order, each with how many rows hold it: PRE-AGGREGATION.

Law: what is kept is the multiset of the values, so it does not depend on the order in which rows
came. NULL comes first going up and last going down; NaN is larger than any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import xor
from typing import cast

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.deferred import np, pl
from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.types import BIGINT, Column

VALUE = "#value"  # the first value of an ordered row; further ones are #value1, #value2 ...
TIMES = "#times"  # how many rows of the group hold it
GROUP = "#group"  # a group's position in the frame of changed groups
_LARGEST = (1 << 63) - 1
_MANY = 1_000  # rows from which numbers are made to sort by
_LARGE = 10_000  # gains from which a sample is looked at first
_SAMPLED = 64  # one of so many values is in it
_DIFFERENT = 0.6  # if more than this share of some gains differ, they are not added up


@dataclass(frozen=True)
class Ordered:
    """Expressions whose values are kept in order; rows with a NULL in `needed` are left out."""

    exprs: tuple[Expr, ...]
    descending: tuple[bool, ...]
    needed: tuple[bool, ...]

    @property
    def text(self) -> str:
        """Tells it apart from others of an Aggregate; MIN's is its argument's."""
        words = []
        for expr, descending, needed in zip(self.exprs, self.descending, self.needed, strict=True):
            words.append(f"{expr}{' desc' if descending else ''}{'' if needed else ' or null'}")
        return ", ".join(words)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the values."""
        return (VALUE, *(f"{VALUE}{i}" for i in range(1, len(self.exprs))))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """What its table keeps after the group's key."""
        pairs = zip(self.names, self.exprs, strict=True)
        return (*(Column(name, expr.type) for name, expr in pairs), Column(TIMES, BIGINT))

    @cached_property
    def row_codec(self) -> RowCodec:
        """The bytes of one value in its table: the columns of the value, and TIMES."""
        return RowCodec(self.columns)

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encodes values so that their bytes are in order."""
        return KeyCodec(tuple(expr.type for expr in self.exprs), self.descending)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {column.name: column.type.polars for column in self.columns}


def ascending(*exprs: Expr) -> Ordered:
    """Values going up, of rows in which none is NULL."""
    return Ordered(exprs, (False,) * len(exprs), (True,) * len(exprs))


def counted(
    rows: pl.DataFrame,
    by: Sequence[str],
    order: Ordered,
    places: Sequence[str],
    apart: bool = False,
) -> pl.DataFrame:
    """The gain of each value in each group of `by`; the values are in the columns `places`.

    Values that came and went are left out: of a row that is updated over and over, two are left.
    If they may come `apart`, and most are different, nothing is added up: that costs as much as to
    receive them.
    """
    for place, needed in zip(places, order.needed, strict=True):
        if needed and rows[place].null_count():
            rows = rows.filter(pl.col(place).is_not_null())
    columns = [*(rows[name] for name in by), rows[WEIGHT].alias(TIMES)]
    columns += [rows[place].alias(name) for place, name in zip(places, order.names, strict=True)]
    gain = pl.DataFrame(columns)
    apart = apart and gain.height > _LARGE and mostly_differ([gain])
    return gain if apart else added_up(gain)


def added_up(gain: pl.DataFrame) -> pl.DataFrame:
    """Gains of equal values as one; those that are 0 are left out."""
    same = [name for name in gain.columns if name != TIMES]
    summed = gain.group_by(same).agg(pl.col(TIMES).sum())[gain.columns]
    some = summed[TIMES] != 0
    return summed if some.all() else summed.filter(some)


def mostly_differ(parts: Sequence[pl.DataFrame]) -> bool:
    """Whether adding up these gains would leave most of them, as a sample of the values says."""
    names = [name for name in parts[0].columns if name != TIMES]
    one_of_many = reduce(xor, (pl.col(name).hash() for name in names)) % _SAMPLED == 0
    sample = pl.concat([part.filter(one_of_many) for part in parts])
    return added_up(sample).height > _DIFFERENT * sample.height


def in_order(values: pl.DataFrame, order: Ordered, within: str = GROUP) -> pl.DataFrame:
    """Values sorted by group, or by another column, and within that as the order says."""
    rank = _rank(values, order, within)
    if rank is not None:
        return values[rank.arg_sort()]
    down = [False, *order.descending]
    return values.sort(within, *order.names, descending=down, nulls_last=down)


def _rank(values: pl.DataFrame, order: Ordered, within: str) -> pl.Series | None:
    """Numbers in the order of the values, if one holds both: sorting them is 4 times as fast."""
    if len(order.names) > 1 or values.height < _MANY:
        return None
    value = values[order.names[0]].to_physical()
    if value.dtype not in (pl.Int32, pl.Int64) or value.null_count():
        return None
    lowest, highest = cast(int, value.min()), cast(int, value.max())
    top, span = cast(int, values[within].max()), highest - lowest + 1
    if (top + 1) * span > _LARGEST:
        return None
    value = value.cast(pl.Int64)
    return values[within] * span + (highest - value if order.descending[0] else value - lowest)


def best(candidates: pl.DataFrame, order: Ordered, groups: int, largest: bool) -> pl.DataFrame:
    """The first (or last) candidate of each group in order; NULLs where there is none."""
    ranked = in_order(candidates.select(GROUP, *order.names), order)
    group = ranked[GROUP].to_numpy()
    differs = group[1:] != group[:-1]
    edge = np.append(differs, True) if largest else np.append(True, differs)
    return every_group(ranked[np.flatnonzero(edge)[: ranked.height]], groups).drop(GROUP)


def every_group(rows: pl.DataFrame, groups: int) -> pl.DataFrame:
    """Rows of some groups as rows of all of them in order, NULL where a group had none."""
    every = pl.DataFrame({GROUP: pl.int_range(groups, dtype=pl.Int64, eager=True)})
    return every.join(rows, on=GROUP, how="left", maintain_order="left")
