"""What a group keeps, for one row at a time: the source of its gains, its sums and its outputs.

Law: for the same rows these give the bits that `totals` and `accumulators.finish` give. A gain is a
list of physical values with a slot for each column of the totals. The terms of a DOUBLE sum are
collected in its slot until `settle` makes them a pair, which rounds once whatever their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import partial

from viewkeep.ops.aggregates.accumulators import EXTREMES, Output, decimal_mean
from viewkeep.ops.aggregates.bit_xor import BitXor
from viewkeep.ops.aggregates.double_sums import pair
from viewkeep.ops.aggregates.moments import HUGE, MOMENTS, Product, exact_product, moment_of_one
from viewkeep.ops.aggregates.totals import Linear, Total
from viewkeep.ops.functions.rowform import wrapped
from viewkeep.types import BIGINT

Group = list[object]
_WIDE = Context(prec=76)


def has_row_form(total: Linear) -> bool:
    """Whether a total can be kept one row at a time."""
    return isinstance(total, Total | BitXor | Product)


def output_has_row_form(output: Output) -> bool:
    """Whether an output can be computed from one group's totals and values."""
    if output.function in (*EXTREMES, "count", "count_star"):
        return True
    return _finished(output, {}, {}) is not None


def zeros(total: Linear) -> list[str]:
    """The source of its slots before any row."""
    made = ["0"] * len(total.columns)
    if _is_pair(total):
        made[1:3] = ["[]", "[]"]
    return made


def gain(total: Linear, values: Sequence[str], at: int, names: dict[str, object]) -> list[str]:
    """Lines that add a row (`weight`) with these arguments to `group`, whose slots start at `at`.

    What they call is added to `names`.
    """
    value, other = values[0], values[-1]
    lines = [f"if {value} is not None:"]
    if isinstance(total, Product):
        names["EXACT"] = exact_product
        return [
            f"if {value} is not None and {other} is not None "
            f"and -{HUGE} < {value} < {HUGE} and -{HUGE} < {other} < {HUGE}:",
            f"    group[{at}] += weight",
            f"    product, rest = EXACT({value}, {other})",
            f"    group[{at + 1}].append(product * weight)",
            f"    group[{at + 2}].append(rest * weight)",
        ]
    if isinstance(total, BitXor):
        return [*lines, f"    if weight % 2: group[{at}] ^= {value}"]
    assert isinstance(total, Total)
    lines.append(f"    group[{at}] += weight")
    if total.is_double:
        return [
            *lines,
            f"    if -INFINITY < {value} < INFINITY: group[{at + 1}].append({value} * weight)",
            f"    elif {value} != {value}: group[{at + 3}] += weight",
            f"    elif {value} > 0: group[{at + 4}] += weight",
            f"    else: group[{at + 5}] += weight",
        ]
    if total.is_split:
        lines.append(f"    group[{at + 1}] += {value} // {total.split} * weight")
        lines.append(f"    group[{at + 2}] += {value} % {total.split} * weight")
    elif total.summed:
        lines.append(f"    group[{at + 1}] += {value} * weight")
    return lines


def merging(totals: Sequence[Linear]) -> list[Callable[[list[Group], int, Group], None]]:
    """For each column of the totals how it is merged: several gains of a group into one."""
    made: list[Callable[[list[Group], int, Group], None]] = []
    for total in totals:
        if isinstance(total, BitXor):
            made.append(_xored)
        elif _is_pair(total):
            made += [added, _paired, _nothing, *[added] * (len(total.columns) - 3)]
        else:
            made += [added] * len(total.columns)
    return made


def settled(group: Group, pairs: Sequence[int]) -> None:
    """Make the terms of the DOUBLE sums at these slots pairs."""
    for at in pairs:
        group[at], group[at + 1] = pair([*group[at], *group[at + 1]])  # type: ignore[misc]


def pairs_among(totals: Sequence[Linear], at: int) -> list[int]:
    """The slots of DOUBLE sums, if the totals start at this slot."""
    found = []
    for total in totals:
        if _is_pair(total):
            found.append(at + 1)
        at += len(total.columns)
    return found


def advance(total: Linear, old: Sequence[str], gained: Sequence[str]) -> list[str]:
    """The source of its columns after a gain; a pair's is one source for both."""
    if isinstance(total, BitXor):
        return [f"{old[0]} ^ {gained[0]}"]
    sums = [f"{a} + {b}" for a, b in zip(old, gained, strict=True)]
    if _is_pair(total):
        terms = ", ".join((old[1], gained[1], old[2], gained[2]))
        count = sums[0]
        sums[1:3] = [f"PAIR(({terms})) if {count} else (0.0, 0.0)"]
    elif isinstance(total, Total) and total.summed and total.sum_type == BIGINT:
        sums[1:] = [wrapped(source, BIGINT) for source in sums[1:]]
    return sums


def finish(output: Output, columns: Mapping[str, str], names: dict[str, object]) -> str:
    """The source of an output made of totals, whose columns have these sources.

    What it calls is added to `names`.
    """
    source = _finished(output, columns, names)
    assert source is not None
    return source


NAMES: dict[str, object] = {"PAIR": pair, "INFINITY": math.inf, "NAN": math.nan}
"""What all sources refer to."""


def _finished(output: Output, columns: Mapping[str, str], names: dict[str, object]) -> str | None:
    if not output.totals:
        return None
    total, other = output.totals[0], output.totals[-1]
    assert isinstance(total, Total)

    def of(name: str) -> str:
        return columns.get(name, "?")

    count = of(total.count)
    if output.function in MOMENTS:
        same = tuple(p.left == p.right for p in output.totals if isinstance(p, Product))
        name = f"{output.function.upper()}_{''.join('s' if one else 'p' for one in same)}"
        names[name] = partial(moment_of_one, output.function, same)
        held = (tuple(of(column.name) for column in part.columns) for part in output.totals)
        return f"{name}({', '.join('(' + ', '.join(cells) + ')' for cells in held)})"
    if isinstance(other, BitXor):
        return f"{of(other.bits)} if {count} > 0 else None"
    assert isinstance(other, Total)
    if output.function == "bool_and":
        return f"{of(other.count)} == {count} if {count} > 0 else None"
    if output.function == "bool_or":
        return f"{of(other.count)} > 0 if {count} > 0 else None"
    if output.function not in ("sum", "avg"):
        return None
    value = of(total.sum)
    if total.is_split:
        value = f"({value} * {total.split} + {of(total.low)})"
    kind = total.argument.type
    if output.type.is_decimal:
        if output.function == "avg":
            name = f"MEAN_{kind.scale}_{output.type.precision}_{output.type.scale}"
            names[name] = _mean(kind.scale, output)
            return f"{name}({value}, {count}, {total.is_split})"
        if output.type.scale != kind.scale:
            return None
        bound = 10 ** min(38, output.type.precision)
        return f"{value} if {count} > 0 and -{bound} < {value} < {bound} else None"
    if total.is_double:
        nans, above, below = map(of, total.specials)
        value = (
            f"(NAN if {nans} > 0 or {above} > 0 and {below} > 0 else INFINITY if {above} > 0 "
            f"else -INFINITY if {below} > 0 else {value} + 0.0)"
        )
    if output.function == "avg":
        return f"float({value}) / {count} + 0.0 if {count} > 0 else None"
    if total.is_split:
        value = wrapped(value, BIGINT)
    return f"{value} if {count} > 0 else None"


def _is_pair(total: Linear) -> bool:
    """Whether its second and third column are a sum of DOUBLEs."""
    return isinstance(total, Product) or (isinstance(total, Total) and total.is_double)


def _mean(scale: int, output: Output) -> Callable[[int, int, bool], int | None]:
    """The mean of DECIMALs from the sum of their unscaled values."""

    def mean(total: int, count: int, split: bool) -> int | None:
        if not count or (split and abs(total) >= 10**38):
            return None
        made = decimal_mean(Decimal(total).scaleb(-scale, _WIDE), count, output.type)
        return None if made is None else int(made.scaleb(output.type.scale, _WIDE))

    return mean


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
