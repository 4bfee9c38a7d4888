"""The ordered tables of an Aggregate on one shard: what an epoch does to their values.

Law: a table holds exactly the values that some row of a live group has, under (group, values), with
how many rows have them. The cost of an epoch is that of its changes: changed values are read by
key, and an extreme that went is replaced by one seek, however large the group is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from viewkeep.codec.keys import KEPT, KeyCodec, bounded_all, group_prefix, prefix_end
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine.state import ShardState
from viewkeep.errors import PipelineError
from viewkeep.ops.ordered import GROUP, TIMES, VALUE, Ordered, best
from viewkeep.plan.program import StateTable

GAIN = "#gain"
_RANK = "#rank"  # of a group's key


@dataclass(frozen=True)
class Changes:
    """What an epoch does to the values of one ordered table in the changed groups.

    `rows` has a row per changed value: its group's position, its values, how many rows have it
    afterwards (TIMES), how many more than before (GAIN), whether it appeared (WEIGHT +1), stayed
    (0) or left (-1), and its key.
    """

    state: ShardState
    table: StateTable
    order: Ordered
    rows: pl.DataFrame
    prefixes: list[bytes]  # of each changed group's values

    @cached_property
    def moved(self) -> pl.DataFrame:
        """The values that appeared or left."""
        return self.rows.filter(pl.col(WEIGHT) != 0)

    @cached_property
    def dead(self) -> frozenset[bytes]:
        """The keys of the values that left."""
        return frozenset(self.rows.filter(pl.col(WEIGHT) < 0)[KEY].to_list())

    def keys(self, groups: Iterable[int], values: pl.DataFrame) -> list[bytes]:
        """The keys of values of these groups."""
        return value_keys(self.table, self.order, self.prefixes, groups, values)

    def scan(
        self, group: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows of a group as they were, chunk by chunk; few if few are asked for."""
        prefix, limit = self.prefixes[group], 8
        start, stop = max(start, prefix), prefix_end(prefix) if stop is None else stop
        while True:
            chunk = self.state.scan(
                self.table, start=start, stop=stop, limit=limit, reverse=reverse
            )
            yield from zip(chunk.keys, chunk.rows, strict=True)
            if not chunk.more:
                return
            if reverse:
                stop = chunk.keys[-1]
            else:
                start = chunk.keys[-1] + b"\0"
            limit = min(limit * 4, 4096)


def value_codec(table: StateTable, order: Ordered) -> KeyCodec:
    """Encodes the values: the end of the table's key."""
    count = len(order.exprs)
    return KeyCodec(table.key_codec.types[-count:], order.descending)


def value_keys(
    table: StateTable,
    order: Ordered,
    prefixes: Sequence[bytes],
    groups: Iterable[int],
    values: pl.DataFrame,
) -> list[bytes]:
    """The keys of values of groups, whose keys start with these prefixes."""
    suffixes = value_codec(table, order).encode([values[name] for name in order.names])
    return bounded_all([prefixes[g] + s for g, s in zip(groups, suffixes, strict=True)])


def advance_values(
    state: ShardState, table: StateTable, order: Ordered, groups: pl.DataFrame, gain: pl.DataFrame
) -> Changes:
    """Add the gains of values to their table; `groups` are the changed groups, by position."""
    prefixes = [group_prefix(key) for key in groups[KEY].to_list()]
    position = pl.int_range(len(prefixes), dtype=pl.Int64).alias(GROUP)
    numbered = groups.select(KEY, position, pl.col(KEY).rank("ordinal").alias(_RANK))
    gain = (
        gain.join(numbered, on=KEY, how="inner")
        .group_by(_RANK, GROUP, *order.names)
        .agg(pl.col(TIMES).sum())
        .filter(pl.col(TIMES) != 0)
        # That of the keys, but for a few types: the store is fastest in it, and takes any.
        .sort(_RANK, *order.names, descending=[False, *order.descending])
    )
    keys = value_keys(table, order, prefixes, gain[GROUP].to_list(), gain)
    gain = gain.with_columns(pl.Series(KEY, keys, pl.Binary))
    held = state.frame(table, state.lookup(table, keys), [TIMES])
    before = held[TIMES].fill_null(0)
    after = (before + gain[TIMES]).alias(TIMES)
    if (after < 0).any():
        raise PipelineError(f"one of the {table.purpose} is removed more often than it was added")
    others = [name for name in table.row_codec.names if name not in gain.columns]
    rows = gain.with_columns(after, *(groups[name].gather(gain[GROUP]) for name in others))
    encoded: list[bytes | None] = list(table.row_codec.encode(rows))
    for place in (after == 0).arg_true().to_list():
        encoded[place] = None
    state.stage(table, keys, encoded)
    rows = gain.select(GROUP, *order.names, KEY, pl.col(TIMES).alias(GAIN)).with_columns(
        after,
        ((after > 0).cast(pl.Int64) - (before > 0).cast(pl.Int64)).alias(WEIGHT),
    )
    return Changes(state, table, order, rows, prefixes)


def extremes(changes: Changes, old: pl.DataFrame, largest: bool) -> pl.DataFrame:
    """The first or last values per changed group: among the old, new ones, and those sought.

    `old` has them as they were, NULL in the first where there were none.
    """
    names = changes.order.names
    numbered = old.select(names).with_row_index(GROUP).with_columns(pl.col(GROUP).cast(pl.Int64))
    present = numbered.filter(pl.col(VALUE).is_not_null())
    keys = changes.keys(present[GROUP].to_list(), present)
    gone = pl.Series([key in changes.dead for key in keys], dtype=pl.Boolean)
    lost: list[int] = present.filter(gone)[GROUP].to_list()
    sought = [(group, row) for group in lost for row in _seek(changes, group, largest)]
    found = changes.table.row_codec.decode([row for _, row in sought]).select(names)
    candidates = [
        changes.rows.filter(pl.col(WEIGHT) > 0).select(GROUP, *names),
        present.filter(~gone),
        found.insert_column(0, pl.Series(GROUP, [group for group, _ in sought], pl.Int64)),
    ]
    return best(pl.concat(candidates), changes.order, old.height, largest)


def _seek(changes: Changes, group: int, largest: bool) -> Iterator[bytes]:
    """The row of a group's first (last) values that this epoch leaves, or several to choose from.

    Keys that were cut are in the order of their digests, and other long keys lie among them: all
    that agree on their kept bytes are candidates.
    """
    kept: bytes | None = None
    for key, row in changes.scan(group, b"", None, reverse=largest):
        if kept is not None and key[:KEPT] != kept:
            return
        if key in changes.dead:
            continue
        yield row
        if len(key) <= KEPT:
            return
        kept = key[:KEPT]
