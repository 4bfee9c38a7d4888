"""Pages of an ordered table on one shard: values of a group that lie side by side, as one row.

Law: the values in a page are in the order of their keys, none of them is before the page's key, and
all are before the next page's. So a value's page is the last one at or before its key. A value
before all pages of its group goes into a new page, whose key is the group's prefix. A page that
grew too large is split, one without values is removed; pages are not put together again.

An epoch reads and writes the pages in which values change: whole arrays at a time, since a page is
one object for Python and one record for the store, and holds dozens of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING

from viewkeep.codec.key_order import rising
from viewkeep.codec.keys import KEPT, MAX_KEY, bounded_all, key_series
from viewkeep.codec.packed import Packed, listed, longest
from viewkeep.codec.pages import pack, sizes, unpack
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, chosen
from viewkeep.engine.state import ShardState
from viewkeep.errors import PipelineError
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, Ordered, in_order
from viewkeep.plan.program import StateTable
from viewkeep.stores.contract import NONE, Floor

if TYPE_CHECKING:
    from numpy.typing import NDArray

GAIN = "#gain"  # how many more rows hold a value than before
PAGE = "#page"  # a page's position among those that an epoch touches
FULL = 640  # bytes: larger pages are split, so that two versions fit into half a page of LMDB's
PART = 320  # bytes: into parts of about this size
MANY = 128  # values: pages with more are split too, since one change rewrites all of them
SOME = 64  # values: into parts of about so many
AT_ONCE = 20_000  # pages
_SHORT = 100  # bytes of a value: with a group's prefix its key is too short to be cut


@dataclass(frozen=True)
class Moved:
    """What an epoch does to values.

    Both frames have GROUP, PAGE, the columns of the values, how many rows hold it afterwards
    (TIMES), and GAIN. `changed` are the values with a gain, in the order of their `keys`; `edges`
    are the first and the last values that are left in each page, or all that are left if not
    `in_order`.
    """

    keys: list[bytes] | Packed
    changed: pl.DataFrame
    edges: pl.DataFrame
    in_order: bool  # no key was cut: the order of keys is that of values


def value_keys(
    order: Ordered, prefixes: Sequence[bytes], groups: NDArray[np.int64], values: pl.DataFrame
) -> list[bytes] | Packed:
    """The keys of values; those of a group, which is a place in `prefixes`, start with its own."""
    suffixes = order.key_codec.pack([values[name] for name in order.names])
    if isinstance(suffixes, Packed) and (matrix := suffixes.matrix) is not None:
        heads = Packed.from_list(prefixes)
        width = int(heads.lengths[0])
        if bool((heads.lengths == width).all()) and width + matrix.shape[1] < MAX_KEY:
            head = heads.buffer.reshape(len(prefixes), width)
            return Packed.from_matrix(np.hstack([head[groups], matrix]))
    return bounded_all(list(map(add, _each(prefixes, groups), listed(suffixes))))


def advance_pages(
    state: ShardState,
    table: StateTable,
    order: Ordered,
    prefixes: Sequence[bytes],
    gain: pl.DataFrame,
) -> Moved:
    """Add gains to their values and stage the pages; `gain` has GROUP, the values, and GAIN."""
    gain = _summed(in_order(gain, order), (GROUP, *order.names), (GAIN,))
    if (gain[GAIN] == 0).any():
        gain = chosen(gain, gain[GAIN].to_numpy() != 0)
    keys = value_keys(order, prefixes, gain[GROUP].to_numpy(), gain)
    uncut = longest(keys) <= KEPT
    # The prefixes of long groups are cut, and then in another order than the groups.
    if not (uncut and rising(prefixes)) and not rising(keys):
        keys = listed(keys)
        by_key = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        gain, keys = gain[by_key], _each(keys, by_key)
    lows = _runs(prefixes, gain[GROUP].to_numpy())
    changed, left, ordered = list[pl.DataFrame](), list[pl.DataFrame](), True
    page_keys, page_rows = list[bytes](), list[bytes | None]()
    for pages in _touched(state.floor(table, listed(keys), lows), gain, prefixes):
        values, by_value = pages.advanced(order, uncut)
        if (values[TIMES] < 0).any():
            raise PipelineError(
                f"one of the {table.purpose} is removed more often than it was added"
            )
        live = chosen(values, values[TIMES].to_numpy() > 0)
        written = pages.written(order, live)
        page_keys += written[0]
        page_rows += written[1]
        changed.append(chosen(values, values[GAIN].to_numpy() != 0))
        left.append(chosen(live, is_edge(live[PAGE].to_numpy())) if by_value else live)
        ordered &= by_value
    state.stage(table, page_keys, page_rows)
    # The values with a gain are the gains, in the same order.
    return Moved(keys, pl.concat(changed), pl.concat(left), ordered)


@dataclass(frozen=True)
class _Pages:
    """Pages that an epoch touches, in key order, as they were, with the gains of their values."""

    first: int  # PAGE of the first
    keys: list[bytes]
    rows: list[bytes | None]  # None: it is new
    groups: NDArray[np.int64]  # the position of each page's group
    prefixes: list[bytes]  # of those groups
    gain: pl.DataFrame  # the values, GAIN
    places: NDArray[np.int64]  # PAGE of each gain

    def advanced(self, order: Ordered, uncut: bool) -> tuple[pl.DataFrame, bool]:
        """The values with TIMES as it is afterwards and GAIN, 0 where nothing changed.

        By page and in the order of keys; and whether that is the order of values too: not where a
        key was cut, which `uncut` says of the gains' alone.
        """
        codec = order.row_codec
        rows, counts = unpack([row for row in self.rows if row is not None], codec.width)
        there = [place for place, row in enumerate(self.rows, self.first) if row is not None]
        held = codec.decode(rows)
        places = np.append(np.repeat(there, counts), self.places).astype(np.int64)
        none = np.zeros(held.height + self.gain.height, np.int64)
        times, gained = none.copy(), none
        times[: held.height], gained[held.height :] = held[TIMES], self.gain[GAIN]
        columns = [pl.Series(PAGE, places)]
        columns += [held[name].append(self.gain[name]) for name in order.names]
        values = pl.DataFrame([*columns, pl.Series(TIMES, times), pl.Series(GAIN, gained)])
        # Keys of one width are as long as those of gains; others at most twice as long as rows.
        short = codec.width is not None or int(rows.lengths.max(initial=0)) <= _SHORT
        if uncut and short:
            values = in_order(values, order, PAGE)
        else:
            keys = value_keys(order, self.prefixes, self._places(values), values)
            values = values.hstack([key_series(keys, KEY)]).sort(PAGE, KEY).drop(KEY)
        values = _summed(values, (PAGE, *order.names), (TIMES, GAIN))
        groups = pl.Series(GROUP, self.groups[self._places(values)], pl.Int64)
        columns = [groups, values[PAGE], *(values[name] for name in order.names)]
        columns += [values[TIMES] + values[GAIN], values[GAIN]]
        return pl.DataFrame(columns), uncut and short

    def written(self, order: Ordered, live: pl.DataFrame) -> tuple[list[bytes], list[bytes | None]]:
        """Keys and bytes of the pages with these values, in key order; None for an empty one."""
        page, width = self._places(live), order.row_codec.width
        rows = order.row_codec.encode_packed(live)
        firsts = cut(rows, page, width)
        pages = page[firsts]
        bodies: list[bytes | None] = [*pack(rows, firsts, width)]
        keys = _each(self.keys, pages)
        split = np.flatnonzero(pages[1:] == pages[:-1]) + 1
        if len(split):
            heads = live[firsts[split]]
            made = value_keys(order, self.prefixes, pages[split], heads)
            for place, key in zip(split.tolist(), listed(made), strict=True):
                keys[place] = key
        gone = np.delete(np.arange(len(self.keys)), pages)
        if not len(gone):
            return keys, bodies
        keys += _each(self.keys, gone)
        bodies += [None] * len(gone)
        by_page = np.argsort(np.append(pages, gone), kind="stable").tolist()
        return [keys[place] for place in by_page], [bodies[place] for place in by_page]

    def _places(self, values: pl.DataFrame) -> NDArray[np.int64]:
        """The place of each value's page here."""
        return values[PAGE].to_numpy() - self.first


def _touched(floor: Floor, gain: pl.DataFrame, prefixes: Sequence[bytes]) -> Iterator[_Pages]:
    """The pages of gains, which are in key order, some thousands at a time.

    At once they would take several times the memory of their bytes.
    """
    counts = np.array([count for _, count in floor.runs], np.int64)
    ends = np.cumsum(counts)
    groups = gain[GROUP].to_numpy()[ends - counts]
    for first in range(0, max(len(counts), 1), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        rows = [place for place, _ in floor.runs[some]]
        lows = _each(prefixes, groups[some])
        size = int(counts[some].sum())
        yield _Pages(
            first,
            [low if at == NONE else floor.keys[at] for at, low in zip(rows, lows, strict=True)],
            [None if at == NONE else floor.rows[at] for at in rows],
            groups[some],
            lows,
            gain.slice(int(ends[first] - counts[first]) if size else 0, size),
            np.repeat(np.arange(first, first + len(rows)), counts[some]),
        )


def cut(rows: Packed, page: NDArray[np.int64], width: int | None) -> NDArray[np.int64]:
    """The first rows of pages, when those that are too large are split; rows are by page."""
    begins = np.append(True, page[1:] != page[:-1])[: len(page)]
    firsts = np.flatnonzero(begins)
    size, counts = sizes(rows, firsts, width), np.diff(np.append(firsts, len(rows)))
    parts = np.where(size > FULL, size // PART, 1)
    parts = np.maximum(parts, np.where(counts > MANY, counts // SOME, 1))
    if not (parts > 1).any():
        return firsts
    ends = np.append(rows.starts, rows.buffer.size)
    start, span = ends[firsts], ends[firsts + counts] - ends[firsts]
    nth = np.repeat(np.arange(len(firsts)), counts)
    part = (rows.starts - start[nth]) * parts[nth] // span[nth]
    alone = (rows.lengths > PART) & (parts[nth] > 1)  # not rewritten with those before it
    begins[1:] |= (part[1:] != part[:-1]) | alone[1:]
    return np.flatnonzero(begins)


def is_edge(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these are the first or the last of equal neighbours."""
    edge = np.ones(len(numbers), np.bool_)
    edge[1:-1] = (numbers[1:-1] != numbers[:-2]) | (numbers[1:-1] != numbers[2:])
    return edge


def _summed(rows: pl.DataFrame, same: Sequence[str], sums: Sequence[str]) -> pl.DataFrame:
    """Of sorted rows that agree in some columns the first, with the sums of the other columns."""
    if rows.height < 2:
        return rows
    differs = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in same]
    starts = rows.select(pl.any_horizontal(differs).arg_true()).to_series().to_numpy()
    if len(starts) == rows.height:
        return rows
    added = [pl.Series(name, np.add.reduceat(rows[name].to_numpy(), starts)) for name in sums]
    return rows[list(same)][starts].hstack(added)


def _runs(items: Sequence[bytes], places: NDArray[np.int64]) -> list[tuple[bytes, int]]:
    """The items at places that are in order, each with how often it comes."""
    begins = np.append(True, places[1:] != places[:-1])[: len(places)]
    firsts = np.flatnonzero(begins)
    counts = np.diff(np.append(firsts, len(places)))
    return list(zip(_each(items, places[firsts]), counts.tolist(), strict=True))


def _each(items: Sequence[bytes], places: NDArray[np.int64]) -> list[bytes]:
    return [items[place] for place in places.tolist()]
