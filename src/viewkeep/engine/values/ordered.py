"""The ordered tables of an Aggregate on one shard: what an epoch does to their values.

Law: a table holds exactly the values that some row of a live group has, with how many rows have
them, in pages (`values.pages`). The cost of an epoch is that of its changes: the pages of changed
values are read, and an extreme that went is replaced from its page, or by one seek, however large
the group is. All groups seek in one call of the store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from viewkeep.codec.keys import KEPT, bounded, group_prefix, prefix_end
from viewkeep.codec.packed import Packed, listed, take
from viewkeep.codec.pages import rows_of, unpack
from viewkeep.deferred import np, pl
from viewkeep.delta import KEY, WEIGHT, chosen
from viewkeep.engine.state import ShardState
from viewkeep.engine.values.pages import GAIN, PAGE, advance_pages, is_edge, value_keys
from viewkeep.engine.values.seek import seek_pages
from viewkeep.ops.aggregates.ordered import GROUP, TIMES, VALUE, Ordered, best
from viewkeep.plan.program import StateTable
from viewkeep.types import DOUBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

Entry = tuple[bytes, tuple[Any, ...]]  # the key of a value; its columns and TIMES


@dataclass(frozen=True)
class ValueChanges:
    """What an epoch does to the values of one ordered table in the changed groups."""

    state: ShardState
    table: StateTable
    order: Ordered
    prefixes: list[bytes]  # of each changed group's values
    left: pl.DataFrame  # `engine.values.pages.Moved.edges`
    left_in_order: bool
    row_keys: list[bytes] | Packed
    rows: pl.DataFrame
    """A row per changed value, in the order of their keys, `row_keys`: its group's position, its
    page, its values, how many rows have it afterwards (TIMES), how many more than before (GAIN),
    whether it appeared (WEIGHT +1), stayed (0) or left (-1)."""

    @cached_property
    def moved(self) -> pl.DataFrame:
        """The values that appeared or left."""
        return chosen(self.rows, self.rows[WEIGHT].to_numpy() != 0)

    @cached_property
    def outermost_dead(self) -> dict[bytes, int]:
        """Of the values that left at least the first and the last of each group, as in `dead`.

        If the first value of a group left, it is the first that did.
        """
        if not self.left_in_order:
            return self.dead
        places = np.flatnonzero(self.rows[WEIGHT].to_numpy() < 0)
        return self._pages_of(places[is_edge(self.rows[GROUP].to_numpy()[places])])

    @cached_property
    def dead(self) -> dict[bytes, int]:
        """The keys of the values that left, and the pages that they left."""
        return self._pages_of(np.flatnonzero(self.rows[WEIGHT].to_numpy() < 0))

    def _pages_of(self, places: NDArray[np.int64]) -> dict[bytes, int]:
        """The keys of some of the rows, and their pages."""
        pages = self.rows[PAGE].to_numpy()[places].tolist()
        return dict(zip(listed(take(self.row_keys, places)), pages, strict=True))

    def keys(self, groups: Sequence[int], values: pl.DataFrame) -> list[bytes]:
        """The keys of values of these groups."""
        places = np.array(groups, np.int64)
        return listed(value_keys(self.order, self.prefixes, places, values))

    def all_values(self) -> pl.DataFrame:
        """Every value of the groups in which some changed, after the epoch."""
        wanted = [GROUP, *self.order.schema]
        same = [GROUP, *self.order.names]
        codec = self.order.row_codec
        groups = self.rows[GROUP].unique().sort().to_numpy()
        parts = [self.rows.filter(pl.col(TIMES) > 0).select(wanted)]
        for found in self.state.find(self.table, [self.prefixes[g] for g in groups.tolist()]):
            rows, counts = unpack(found.rows, codec.width)
            of = pl.Series(GROUP, np.repeat(groups[found.places], counts))
            held = codec.decode(rows).with_columns(of).select(wanted)
            parts.append(held.join(self.rows, on=same, how="anti", nulls_equal=True))
        return pl.concat(parts)

    def scan(
        self, group: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[Entry]:
        """The values of a group as they were whose keys lie in a range, in order or backwards."""
        prefix, codec = self.prefixes[group], self.order.row_codec
        encode = self.order.key_codec.encode_one

        def keyed(row: bytes) -> bytes:
            return bounded(prefix + encode(codec.decode_one(row)[:-1]))

        for page in self._pages(prefix, start, stop, reverse):
            rows = rows_of(page, codec.width)
            low = bisect_left(rows, start, key=keyed) if start else 0
            high = len(rows) if stop is None else bisect_left(rows, stop, key=keyed)
            within = range(low, high)
            for place in reversed(within) if reverse else within:
                values = codec.decode_one(rows[place])
                yield bounded(prefix + encode(values[:-1])), values

    def _pages(
        self, prefix: bytes, start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[bytes]:
        """The pages in which values of a range may lie; few are read if few are asked for."""
        low, limit = prefix, 1
        high = prefix_end(prefix) if stop is None else stop
        if start > prefix:
            first = self.state.scan(
                self.table, start=prefix, stop=start + b"\0", limit=1, reverse=True
            )
            low = first.keys[0] if first.keys else start
        while True:
            chunk = self.state.scan(self.table, start=low, stop=high, limit=limit, reverse=reverse)
            yield from chunk.rows
            if not chunk.more:
                return
            if reverse:
                high = chunk.keys[-1]
            else:
                low = chunk.keys[-1] + b"\0"
            limit = min(limit * 4, 256)


def advance_values(
    state: ShardState, table: StateTable, order: Ordered, groups: pl.DataFrame, gain: pl.DataFrame
) -> ValueChanges:
    """Add the gains of values to their table; `groups` are the changed groups, by position."""
    prefixes = [group_prefix(key) for key in groups[KEY].to_list()]
    gain = _placed(gain, groups[KEY])
    doubles = [column.name for column in order.columns if column.type == DOUBLE]
    if doubles:
        gain = gain.with_columns(pl.col(doubles) + 0.0)  # -0.0 is stored as 0.0
    moved = advance_pages(state, table, order, prefixes, gain)
    times, gained = moved.changed[TIMES].to_numpy(), moved.changed[GAIN].to_numpy()
    moves = (times > 0).astype(np.int64) - (times > gained)
    rows = moved.changed.hstack([pl.Series(WEIGHT, moves)])
    return ValueChanges(
        state, table, order, prefixes, moved.edges, moved.in_order, moved.keys, rows
    )


def _placed(gain: pl.DataFrame, groups: pl.Series) -> pl.DataFrame:
    """Gains with the positions of their groups, all of which are among `groups`."""
    every = pl.DataFrame([groups, pl.Series(GROUP, np.arange(len(groups)))])
    places = gain.join(every, on=KEY, how="left", maintain_order="left")[GROUP]
    values = [column for column in gain if column.name not in (KEY, TIMES)]
    return pl.DataFrame([places, *values, gain[TIMES].alias(GAIN)])


def extremes(
    changes: ValueChanges, old: pl.DataFrame, alive: pl.Series, largest: bool
) -> pl.DataFrame:
    """The first or last values per changed group: among the old, new ones, and those sought.

    `old` has them as they were, NULL in the first where there were none; `alive` says which groups
    have rows left.
    """
    names = list(changes.order.names)
    absent = old[VALUE].null_count() > 0
    here = np.flatnonzero(old[VALUE].is_not_null()) if absent else np.arange(old.height)
    present = old[names][here].insert_column(0, pl.Series(GROUP, here, pl.Int64))
    keys = changes.keys(here.tolist(), present)
    pages = [changes.outermost_dead.get(key) for key in keys]
    stays = np.flatnonzero([page is None for page in pages])
    # If anything is left in the page of a value that went, the next value is there.
    beside = set(changes.left[PAGE].to_list()) if changes.left_in_order else set()
    lost = [
        group
        for group, page in zip(here.tolist(), pages, strict=True)
        if page is not None and page not in beside and alive[group]
    ]
    sought = _seek(changes, lost, largest)
    candidates = [changes.left[present.columns], present[stays]]
    if sought:
        candidates.append(pl.DataFrame(sought, present.schema, orient="row"))
    return best(pl.concat(candidates), changes.order, old.height, largest)


def _seek(
    changes: ValueChanges, groups: Sequence[int], largest: bool
) -> list[tuple[int, *tuple[Any, ...]]]:
    """The first (last) values that this epoch leaves in each group, or several to choose from.

    Keys that were cut are in the order of their digests, and other long keys lie among them: all
    that agree on their kept bytes are candidates.
    """
    codec, encode = changes.order.row_codec, changes.order.key_codec.encode_one
    made = list[tuple[int, *tuple[Any, ...]]]()
    kept = dict[int, bytes]()

    def take(group: int, page: bytes) -> bool:
        rows = rows_of(page, codec.width)
        for row in reversed(rows) if largest else rows:
            values = codec.decode_one(row)[:-1]
            key = bounded(changes.prefixes[group] + encode(values))
            if kept.get(group, key[:KEPT]) != key[:KEPT]:
                return True
            if key in changes.dead:
                continue
            made.append((group, *values))
            if len(key) <= KEPT:
                return True
            kept[group] = key[:KEPT]
        return False

    prefixes = {group: changes.prefixes[group] for group in groups}
    seek_pages(changes.state, changes.table, prefixes, take, reverse=largest)
    return made
