"""Windows: functions over the rows of a partition around each row, and the first rows of each.

Law: rows come sorted by partition, order and row key, so that they are given in one way only, and
a value depends on nothing but the rows of its frame in that order. Sums are exact: of integers
modulo 2^64, of decimals to the last digit, of doubles rounded once at the end. So a value that is
computed anew from the rows around a change has the bytes that computing all would give it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import accumulate
from math import inf, nan
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from viewkeep.deferred import np, pl
from viewkeep.expr import Expr, Lit
from viewkeep.ops.evaluate import project
from viewkeep.types import DataType

if TYPE_CHECKING:
    import numpy.typing as npt

Places: TypeAlias = "npt.NDArray[np.int64]"


class Bounds(Protocol):
    """The rows around a row by distance; None is unbounded, `range` counts peers as one row."""

    @property
    def unit(self) -> str: ...
    @property
    def start(self) -> int | None: ...
    @property
    def stop(self) -> int | None: ...


class Asked(Protocol):
    """A window function asked for, by its constants and expressions over the rows."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def arguments(self) -> tuple[Expr, ...]: ...
    @property
    def type(self) -> DataType: ...
    @property
    def frame(self) -> Bounds | None: ...
    @property
    def ignore_nulls(self) -> bool: ...


class Part(Protocol):
    """A column that rows are ordered by. Its direction matters to the sorting alone."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class _Layout:
    """Where each row's partition and peers begin and (exclusively) end."""

    first: Places
    last: Places
    peers: Places
    beyond: Places

    @property
    def here(self) -> Places:
        return np.arange(len(self.first), dtype=np.int64)


def window_columns(
    rows: pl.DataFrame, partition: Sequence[str], order: Sequence[Part], calls: Sequence[Asked]
) -> list[pl.Series]:
    """A column per call. The rows are sorted by partition, order and row key."""
    layout = _layout(rows, partition, [part.name for part in order])
    return [_column(rows, layout, call) for call in calls]


def top_k(
    rows: pl.DataFrame, partition: Sequence[str], limit: int | None, offset: int = 0
) -> pl.DataFrame:
    """Of each partition of the sorted rows those after the first `offset`, at most `limit`."""
    place = _places(rows, partition)
    kept = place >= offset
    if limit is not None:
        kept &= place < offset + limit
    return rows.filter(pl.Series(kept))


def reach(calls: Iterable[Asked], *, whole_peers: bool = False) -> tuple[int | None, int | None]:
    """How many rows before and after a changed row may have other values; None is all of them.

    Law: let a row come, go or change. Rows of its partition that stand more than `before` places
    before that place, or more than `after` places after it, keep their values; the nearest row on
    a side stands at 1. Seen the other way round, a value reads at most `after` rows before its
    row, and `before` rows after it. With `whole_peers` the places are counted from the ends of
    the changed row's peers, for a caller that looks at all of them; a range then reaches no row
    further than it has to.
    """
    before: int | None = 0
    after: int | None = 0
    for call in calls:
        one, other = _reach(call, whole_peers)
        before = None if before is None or one is None else max(before, one)
        after = None if after is None or other is None else max(after, other)
    return before, after


def _reach(call: Asked, whole_peers: bool) -> tuple[int | None, int | None]:
    if call.function in ("row_number", "rank", "dense_rank"):
        return 0, None
    if call.function in ("lag", "lead"):
        distance = _lag(call)
        if call.ignore_nulls:  # NULLs between are passed over, however many
            return (None, 0) if distance < 0 else (0, None)
        return max(-distance, 0), max(distance, 0)
    if call.function in ("percent_rank", "cume_dist", "ntile") or call.frame is None:
        return None, None
    start, stop = call.frame.start, call.frame.stop
    if call.frame.unit == "range" and not whole_peers:
        return None, None
    return (
        None if stop is None else max(stop, 0),
        None if start is None else max(-start, 0),
    )


def _layout(rows: pl.DataFrame, partition: Sequence[str], order: Sequence[str]) -> _Layout:
    starts = _changes(rows, partition)
    peers = starts | _changes(rows, order)
    return _Layout(*_edges(starts), *_edges(peers))


def _places(rows: pl.DataFrame, partition: Sequence[str]) -> Places:
    first, _ = _edges(_changes(rows, partition))
    return np.arange(rows.height, dtype=np.int64) - first


def _changes(rows: pl.DataFrame, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether a row differs in these columns from the row before it; the first always does."""
    made = np.zeros(rows.height, dtype=np.bool_)
    made[:1] = True
    for name in names:
        column = rows[name]
        made |= column.ne_missing(column.shift(1)).to_numpy()
    return made


def _edges(starts: npt.NDArray[np.bool_]) -> tuple[Places, Places]:
    """For each row where its run of rows begins and ends."""
    begins = np.flatnonzero(starts)
    sizes = np.diff(np.append(begins, len(starts)))
    first = np.repeat(begins, sizes)
    return first.astype(np.int64), (first + np.repeat(sizes, sizes)).astype(np.int64)


def _column(rows: pl.DataFrame, layout: _Layout, call: Asked) -> pl.Series:
    made = _RANKS[call.function](layout, call) if call.function in _RANKS else None
    if made is None and call.function in ("lag", "lead"):
        made = _shifted(rows, layout, call)
    if made is None:
        low, high = _frame(layout, call.frame)
        made = (_PICKS.get(call.function) or _TOTALS[call.function])(rows, low, high, call)
    return made.cast(call.type.polars).alias(call.name)


def _frame(layout: _Layout, frame: Bounds | None) -> tuple[Places, Places]:
    """Where each row's frame begins and (exclusively) ends."""
    low, high = layout.first, layout.last
    if frame is None:
        return low, high
    if frame.unit == "range":
        return (
            low if frame.start is None else layout.peers,
            high if frame.stop is None else layout.beyond,
        )
    if frame.start is not None:
        low = np.clip(layout.here + frame.start, layout.first, layout.last)
    if frame.stop is not None:
        high = np.clip(layout.here + frame.stop + 1, layout.first, layout.last)
    return low, np.maximum(low, high)


# Ranks: of the places of a row, its peers and its partition alone.


def _row_number(layout: _Layout, call: Asked) -> pl.Series:
    return pl.Series(layout.here - layout.first + 1)


def _rank(layout: _Layout, call: Asked) -> pl.Series:
    return pl.Series(layout.peers - layout.first + 1)


def _dense_rank(layout: _Layout, call: Asked) -> pl.Series:
    seen = np.cumsum(layout.peers == layout.here)
    return pl.Series(seen - seen[layout.first] + 1)


def _percent_rank(layout: _Layout, call: Asked) -> pl.Series:
    others = layout.last - layout.first - 1
    return pl.Series((layout.peers - layout.first) / np.maximum(others, 1))


def _cume_dist(layout: _Layout, call: Asked) -> pl.Series:
    return pl.Series((layout.beyond - layout.first) / (layout.last - layout.first))


def _ntile(layout: _Layout, call: Asked) -> pl.Series:
    """Buckets of equal size, the first ones larger by one where there is a remainder."""
    tiles = _constant(call.arguments[0])
    size, rest = np.divmod(layout.last - layout.first, tiles)
    place = layout.here - layout.first
    large = rest * (size + 1)
    inside = np.where(
        place < large, place // (size + 1), rest + (place - large) // np.maximum(size, 1)
    )
    return pl.Series(inside + 1)


_RANKS = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "ntile": _ntile,
}


# Picks: the value of one row, chosen by its place.


def _shifted(rows: pl.DataFrame, layout: _Layout, call: Asked) -> pl.Series:
    value, *rest = call.arguments
    given, distance = _values(rows, value, call.type), _lag(call)
    if call.ignore_nulls and distance:
        known, filled = _known(given)
        place = known[layout.here] - distance
        if distance < 0:  # counted from the row itself, if it has a value, or from the next one
            place += given.is_not_null().to_numpy().astype(np.int64) - 1
        found = (place >= 0) & (place < len(filled))
        target = np.full(rows.height, -1, dtype=np.int64)
        target[found] = filled[place[found]]
    else:
        target = layout.here - distance
    inside = (target >= layout.first) & (target < layout.last)
    made = _picked(given, np.where(inside, target, -1))
    if len(rest) > 1:
        default = _values(rows, rest[1], call.type)
        frame = pl.DataFrame({"inside": inside, "made": made, "default": default})
        chosen = pl.when(pl.col("inside")).then(pl.col("made")).otherwise(pl.col("default"))
        made = frame.select(chosen).to_series()
    return made


def _lag(call: Asked) -> int:
    """How many rows back the function looks; negative for rows ahead."""
    distance = _constant(call.arguments[1]) if len(call.arguments) > 1 else 1
    return distance if call.function == "lag" else -distance


def _first_value(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    return _nth(rows, low, high, call, 1)


def _nth_value(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    return _nth(rows, low, high, call, _constant(call.arguments[1]))


def _nth(rows: pl.DataFrame, low: Places, high: Places, call: Asked, nth: int) -> pl.Series:
    given = _values(rows, call.arguments[0], call.type)
    target = low + nth - 1
    if call.ignore_nulls:
        known, filled = _known(given)
        padded = np.append(filled, np.full(nth, rows.height, dtype=np.int64))
        target = padded[known[low] + nth - 1]
    return _picked(given, np.where(target < high, target, -1))


def _last_value(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    given = _values(rows, call.arguments[0], call.type)
    target = high - 1
    if call.ignore_nulls:
        known, filled = _known(given)
        target = np.append(filled, -1)[known[high] - 1]
    return _picked(given, np.where(target >= low, target, -1))


_PICKS = {
    "first_value": _first_value,
    "last_value": _last_value,
    "nth_value": _nth_value,
}


def _known(given: pl.Series) -> tuple[Places, Places]:
    """How many values that are not NULL stand before each place, and where they stand."""
    has = given.is_not_null().to_numpy()
    return _running(has), np.flatnonzero(has).astype(np.int64)


def _picked(given: pl.Series, places: Places) -> pl.Series:
    """The values at these places; NULL for -1."""
    wanted = pl.Series(places)
    return given.gather(wanted.set(wanted < 0, None))


# Totals: of all rows of the frame.


def _count_star(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    return pl.Series(high - low)


def _count(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    argument = call.arguments[0]
    known, _ = _known(_values(rows, argument, argument.type))
    return pl.Series(known[high] - known[low])


def _sum(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    argument = call.arguments[0]
    given = _values(rows, argument, argument.type)
    known, _ = _known(given)
    count = known[high] - known[low]
    if argument.type.is_integer and call.function == "sum":
        seen = _running(given.cast(pl.Int64).fill_null(0).to_numpy())
        return _where(count, pl.Series(seen[high] - seen[low]))  # wraps, as in Spark
    if argument.type.is_integer:
        return _where(count, _wide_sum(given, low, high).cast(pl.Float64) / pl.Series(count))
    if argument.type.is_decimal:
        return _decimal_sum(given, low, high, count, call, argument.type.scale)
    made = _double_sum(given, low, high)
    return _where(count, made / pl.Series(count) if call.function == "avg" else made)


def _wide_sum(given: pl.Series, low: Places, high: Places) -> pl.Series:
    """Sums of integers that may leave 64 bits, by the sums of their two halves."""
    whole = given.cast(pl.Int64).fill_null(0).to_numpy()
    upper, lower = _running(whole >> 32), _running(whole & 0xFFFFFFFF)
    high_part, low_part = (
        pl.Series(part[high] - part[low]).cast(pl.Int128) for part in (upper, lower)
    )
    return high_part * pl.Series([1 << 32], dtype=pl.Int128) + low_part


def _decimal_sum(
    given: pl.Series, low: Places, high: Places, count: Places, call: Asked, scale: int
) -> pl.Series:
    # 128 bits do not hold sums of 38 digits, so they are Python's integers: 2 us a row.
    sums = _differences(given.to_physical().fill_null(0).to_list(), low, high)
    result, context = call.type, Context(prec=76, rounding=ROUND_HALF_UP)
    unit, limit = Decimal(1).scaleb(-result.scale), 10 ** (result.precision - result.scale)
    made: list[Decimal | None] = []
    for total, terms in zip(sums, count.tolist(), strict=True):
        value = None
        # The sum of an average has to fit 38 digits as well.
        if terms and abs(total) < 10**38:
            value = Decimal(total).scaleb(-scale, context)
            if call.function == "avg":
                value = context.quantize(context.divide(value, Decimal(terms)), unit)
        fits = value is not None and value.copy_abs() < limit  # abs() would round
        made.append(value if fits else None)
    return pl.Series(made, dtype=result.polars)


def _double_sum(given: pl.Series, low: Places, high: Places) -> pl.Series:
    """Exact sums of doubles, each rounded once; NaN and the infinities are counted apart."""
    values = given.fill_null(0.0).to_numpy()
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    digits = (mantissa * 2.0**53).astype(np.int64)
    exponent = exponent.astype(np.int64) - 53
    least = int(exponent[digits != 0].min(initial=0))
    shifts = np.where(digits != 0, exponent - least, 0).tolist()
    # Every double is a whole number of the least unit among them. Differences of running sums of
    # such numbers are exact, which those of doubles are not: 0.5 us a row.
    wholes = [digit << shift for digit, shift in zip(digits.tolist(), shifts, strict=True)]
    unit = 1 << -least
    made = np.array([_rounded(total, unit) for total in _differences(wholes, low, high)])
    nans, above, below = (
        (lambda seen: seen[high] > seen[low])(_running(test))
        for test in (np.isnan(values), values == inf, values == -inf)
    )
    made = np.where(above, inf, np.where(below, -inf, made))
    return pl.Series(np.where(nans | (above & below), nan, made), dtype=pl.Float64)


def _rounded(total: int, unit: int) -> float:
    try:
        return total / unit
    except OverflowError:
        return inf if total > 0 else -inf


def _best(rows: pl.DataFrame, low: Places, high: Places, call: Asked) -> pl.Series:
    """MIN or MAX: of blocks of 1, 2, 4 ... rows, of which two cover any frame."""
    given = _values(rows, call.arguments[0], call.type)
    order = given.arg_sort(nulls_last=True).to_numpy()
    sign = -1 if call.function == "max" else 1
    least = np.empty(rows.height, dtype=np.int64)
    least[order] = sign * np.arange(rows.height, dtype=np.int64)
    least[given.is_null().to_numpy()] = none = rows.height
    size = high - low
    chosen = np.full(rows.height, none, dtype=np.int64)
    block = 1
    while block <= size.max(initial=0):
        fits = (size >= block) & (size < 2 * block)
        chosen[fits] = np.minimum(least[low[fits]], least[high[fits] - block])
        least = np.minimum(least[: max(len(least) - block, 0)], least[block:])
        block *= 2
    target = np.full(rows.height, -1, dtype=np.int64)
    found = chosen != none
    target[found] = order[np.abs(chosen[found])]
    return _picked(given, target)


_TOTALS = {
    "count_star": _count_star,
    "count": _count,
    "sum": _sum,
    "avg": _sum,
    "min": _best,
    "max": _best,
}


def _values(rows: pl.DataFrame, expr: Expr, type_: DataType) -> pl.Series:
    return project(rows, [("value", expr)]).to_series().cast(type_.polars)


def _constant(expr: Expr) -> int:
    assert isinstance(expr, Lit)
    assert isinstance(expr.value, int)
    return expr.value


def _running(values: npt.NDArray[Any]) -> Places:
    """The sums of the values before each place, and of all at the end."""
    made = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=made[1:])
    return made


def _differences(wholes: list[int], low: Places, high: Places) -> list[int]:
    """The sum of each frame of whole numbers of any size."""
    seen = [0, *accumulate(wholes)]
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return [seen[stop] - seen[start] for start, stop in pairs]


def _where(count: Places, made: pl.Series) -> pl.Series:
    """NULL where a frame has no values."""
    return made.set(pl.Series(count == 0), None)
