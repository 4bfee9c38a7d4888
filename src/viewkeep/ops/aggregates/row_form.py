"""What a group keeps, for one row at a time: the source of its gains, its sums and its outputs.

Law: for the same rows these give the bits that `totals` and `AggregateFunction.finish` give. A gain
is a list of physical values with a slot for each column of the totals. The terms of a DOUBLE sum
are collected in its slot until `settle` makes them a pair, which rounds once whatever their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from viewkeep.ops.aggregates.double_sums import pair
from viewkeep.ops.aggregates.function import Kept, Output
from viewkeep.ops.aggregates.totals import Linear

Group = list[object]


def output_has_row_form(output: Output) -> bool:
    """Whether an output can be computed from one group's totals and values."""
    if output.function.kept in (Kept.COUNT, Kept.EXTREME):
        return True
    return output.function.source(output, {}, {}) is not None


def zeros(total: Linear) -> list[str]:
    """The source of its slots before any row."""
    made = ["0"] * len(total.columns)
    if total.is_pair:
        made[1:3] = ["[]", "[]"]
    return made


def merging(totals: Sequence[Linear]) -> list[Callable[[list[Group], int, Group], None]]:
    """For each column of the totals how it is merged: several gains of a group into one."""
    made: list[Callable[[list[Group], int, Group], None]] = []
    for total in totals:
        ways = [_MERGES[total.row_merge]] * len(total.columns)
        if total.is_pair:
            ways[1:3] = [_paired, _nothing]
        made += ways
    return made


def settled(group: Group, pairs: Sequence[int]) -> None:
    """Make the terms of the DOUBLE sums at these slots pairs."""
    for at in pairs:
        group[at], group[at + 1] = pair([*group[at], *group[at + 1]])  # type: ignore[misc]


def pairs_among(totals: Sequence[Linear], at: int) -> list[int]:
    """The slots of DOUBLE sums, if the totals start at this slot."""
    found = []
    for total in totals:
        if total.is_pair:
            found.append(at + 1)
        at += len(total.columns)
    return found


def finish(output: Output, columns: Mapping[str, str], names: dict[str, object]) -> str:
    """The source of an output made of totals, whose columns have these sources.

    What it calls is added to `names`.
    """
    source = output.function.source(output, columns, names)
    assert source is not None
    return source


NAMES: dict[str, object] = {"PAIR": pair, "INFINITY": math.inf, "NAN": math.nan}
"""What all sources refer to."""


def added(parts: list[Group], at: int, made: Group) -> None:
    """Merge a slot by adding up."""
    made[at] = sum(part[at] for part in parts)  # type: ignore[misc]


def _xored(parts: list[Group], at: int, made: Group) -> None:
    whole = 0
    for part in parts:
        whole ^= part[at]  # type: ignore[operator]
    made[at] = whole


def _paired(parts: list[Group], at: int, made: Group) -> None:
    terms = [part[at] for part in parts] + [part[at + 1] for part in parts]
    made[at], made[at + 1] = pair(terms)  # type: ignore[arg-type]


def _nothing(parts: list[Group], at: int, made: Group) -> None:
    """The second half of a pair, which its first half made."""


_MERGES = {"added": added, "xored": _xored}
