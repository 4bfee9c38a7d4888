"""Runs an Aggregate on one shard: reads the changed groups, adds the gains, stages the new rows.

The cost of an epoch is that of its changes: group rows are read by key; of the ordered values only
the changed ones are read, and a minimum that went is replaced by one seek.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from viewkeep.codec.keys import KEPT, KeyCodec, bounded, hash_key, prefix_end
from viewkeep.delta import KEY, WEIGHT, weighted
from viewkeep.engine.parcels import GROUPS, Frames
from viewkeep.engine.state import ShardState
from viewkeep.errors import PipelineError
from viewkeep.ops.aggregate import GROUP, TIMES, VALUE, best, distinct_gain, finish
from viewkeep.ops.totals import advance, plus
from viewkeep.plan.nodes import Aggregate
from viewkeep.plan.program import Operator, StateTable
from viewkeep.types import DOUBLE

_GROUP_BYTES = 240  # of a group's key within the keys of its values: leaves room for the value


def run_aggregate(operator: Operator, state: ShardState, frames: Frames) -> pl.DataFrame | None:
    """Apply the gains; return the delta of the output rows with their keys, None if none."""
    node, kept, table = operator.node, operator.accumulators, operator.rows_table
    assert isinstance(node, Aggregate)
    groups = _touched(operator, state, frames)
    if groups is None:
        return None
    keys: list[bytes] = groups[KEY].to_list()
    old_rows = state.lookup(table, keys)
    old = state.frame(table, old_rows)
    changes = [
        _advance_values(operator, state, i, groups, frames[f"values{i}"])
        if f"values{i}" in frames
        else None
        for i in range(len(kept.ordered))
    ]
    made = [groups[key.name] for key in node.keys]
    made.append(plus(old[kept.rows], groups[kept.rows]))
    made += advance(old, groups, kept.plain)
    for argument, change in zip(kept.ordered, changes, strict=True):
        totals = [t for t in kept.totals if t.distinct and t.argument == argument]
        if totals:
            moved = _no_values(argument.type.polars) if change is None else change.moved
            made += advance(old, distinct_gain(moved, totals, len(keys)), totals)
    new = pl.DataFrame(made)
    for output in kept.outputs:
        if output.function in ("sum", "avg"):
            new = new.with_columns(finish(new, output))
        elif output.function in ("min", "max"):
            assert output.argument is not None
            place = kept.ordered.index(output.argument)
            chosen = _extreme(
                operator, state, place, changes[place], old[output.name], output.function == "max"
            )
            new = new.with_columns(chosen.alias(output.name))
    return _replace_rows(operator, state, keys, old, old_rows, new)


def _touched(operator: Operator, state: ShardState, frames: Frames) -> pl.DataFrame | None:
    """One row per group with a gain; the group of no keys always exists on its home shard."""
    groups = frames.get(GROUPS)
    node = operator.node
    assert isinstance(node, Aggregate)
    home = not node.keys and hash_key(b"") % state.store.shards == state.shard
    if groups is None and home and state.lookup(operator.rows_table, [b""]) == [None]:
        kept = operator.accumulators
        columns = [column for total in kept.plain for column in total.columns]
        blank = [pl.Series(KEY, [b""], pl.Binary), pl.Series(kept.rows, [0], pl.Int64)]
        blank += [pl.Series(c.name, [0]).cast(c.type.polars) for c in columns]
        return pl.DataFrame(blank)
    return groups


def _replace_rows(
    operator: Operator,
    state: ShardState,
    keys: list[bytes],
    old: pl.DataFrame,
    old_rows: list[bytes | None],
    new: pl.DataFrame,
) -> pl.DataFrame | None:
    node, kept, table = operator.node, operator.accumulators, operator.rows_table
    if new.filter(pl.col(kept.rows) < 0).height:
        raise PipelineError(
            f"a group of {operator.id} has fewer than no rows: an input row is lost"
        )
    # As it will be read back: -0.0 is stored as 0.0, and consumers must see the same both times.
    doubles = [column.name for column in node.columns if column.type == DOUBLE]
    new = new.with_columns(
        pl.when(pl.col(name) == 0).then(0.0).otherwise(pl.col(name)).alias(name) for name in doubles
    )
    lives = (new[kept.rows] > 0).to_list() if node.row_key else [True] * len(keys)
    encoded = table.row_codec.encode(new)
    new_rows = [row if alive else None for row, alive in zip(encoded, lives, strict=True)]
    changed = [a != b for a, b in zip(old_rows, new_rows, strict=True)]
    if not any(changed):
        return None
    places = [i for i, differs in enumerate(changed) if differs]
    state.stage(table, [keys[i] for i in places], [new_rows[i] for i in places])
    shown = [column.name for column in node.columns]
    key = pl.Series(KEY, keys, pl.Binary)
    goes = [i for i in places if old_rows[i] is not None]
    comes = [i for i in places if new_rows[i] is not None]
    return pl.concat(
        [
            weighted(old.select(shown).with_columns(key)[goes], -1),
            weighted(new.select(shown).with_columns(key)[comes], +1),
        ]
    )


@dataclass(frozen=True)
class _ValueChanges:
    """What an epoch does to the ordered values of one argument in the changed groups.

    `moved` holds values that appeared (weight +1) or left (-1), with their group's position and
    their key; `dead` the keys that left.
    """

    moved: pl.DataFrame
    dead: set[bytes]
    prefixes: list[bytes]  # of each changed group's values


def _no_values(dtype: pl.DataType) -> pl.DataFrame:
    return pl.DataFrame(schema={GROUP: pl.Int64, VALUE: dtype, WEIGHT: pl.Int64, KEY: pl.Binary})


def _advance_values(
    operator: Operator, state: ShardState, place: int, groups: pl.DataFrame, gain: pl.DataFrame
) -> _ValueChanges:
    table = operator.tables[1 + place]
    prefixes = [bounded(key, _GROUP_BYTES) for key in groups[KEY].to_list()]
    numbered = groups.select(KEY).with_row_index(GROUP).with_columns(pl.col(GROUP).cast(pl.Int64))
    gain = gain.filter(pl.col(TIMES) != 0).join(numbered, on=KEY, how="inner")
    members: list[int] = gain[GROUP].to_list()
    suffixes = _value_codec(table).encode([gain[VALUE]])
    keys = [bounded(prefixes[g] + s) for g, s in zip(members, suffixes, strict=True)]
    before = state.frame(table, state.lookup(table, keys))[TIMES].fill_null(0)
    after = plus(before, gain[TIMES])
    if (after < 0).any():
        raise PipelineError(f"a value of {operator.id} is removed more often than it was added")
    encoded = table.row_codec.encode(gain.with_columns(after.alias(TIMES)))
    alive = (after > 0).to_list()
    rows = [row if there else None for row, there in zip(encoded, alive, strict=True)]
    state.stage(table, keys, rows)
    moved = gain.select(GROUP, VALUE).with_columns(
        ((after > 0).cast(pl.Int64) - (before > 0).cast(pl.Int64)).alias(WEIGHT),
        pl.Series(KEY, keys, pl.Binary),
    )
    moved = moved.filter(pl.col(WEIGHT) != 0)
    dead = set(moved.filter(pl.col(WEIGHT) < 0)[KEY].to_list())
    return _ValueChanges(moved, dead, prefixes)


def _extreme(
    operator: Operator,
    state: ShardState,
    place: int,
    change: _ValueChanges | None,
    old: pl.Series,
    largest: bool,
) -> pl.Series:
    """The least or largest value per changed group: among the old one, new ones, and one sought."""
    if change is None:
        return old
    table = operator.tables[1 + place]
    suffixes = _value_codec(table).encode([old])
    present = old.is_not_null().to_list()
    lost: list[int] = []
    stays: list[int] = []
    for group, suffix in enumerate(suffixes):
        if present[group]:
            gone = bounded(change.prefixes[group] + suffix) in change.dead
            (lost if gone else stays).append(group)
    came = change.moved.filter(pl.col(WEIGHT) > 0).select(GROUP, VALUE)
    sought = [_seek(table, state, change.prefixes[g], change.dead, largest) for g in lost]
    candidates = [
        came,
        pl.DataFrame([pl.Series(GROUP, stays, pl.Int64), old.gather(stays).alias(VALUE)]),
        pl.DataFrame([pl.Series(GROUP, lost, pl.Int64), pl.Series(VALUE, sought, old.dtype)]),
    ]
    return best(pl.concat(candidates), len(old), largest)


def _seek(
    table: StateTable, state: ShardState, prefix: bytes, dead: set[bytes], largest: bool
) -> object:
    """The first (last) value of a group that this epoch does not remove; None if there is none."""
    place = [column.name for column in table.columns].index(VALUE)
    start, stop, limit = prefix, prefix_end(prefix), 8
    best_value: object = None
    kept: bytes | None = None  # set while values that agree on their kept bytes must be compared
    while True:
        chunk = state.scan(table, start=start, stop=stop, limit=limit, reverse=largest)
        for key, row in zip(chunk.keys, chunk.rows, strict=True):
            if kept is not None and key[:KEPT] != kept:
                return best_value
            if key in dead:
                continue
            value = table.row_codec.decode_one(row, (place,))[0]
            if len(key) <= KEPT:
                return value
            # Keys that were cut are in the order of their digests, and other long keys lie among
            # them: compare the values of all that agree on their kept bytes.
            kept = key[:KEPT]
            best_value = value if best_value is None else _better(best_value, value, largest)
        if not chunk.more:
            return best_value
        if largest:
            stop = chunk.keys[-1]
        else:
            start = chunk.keys[-1] + b"\0"
        limit = min(limit * 4, 4096)


def _better(a: object, b: object, largest: bool) -> object:
    first, second = (a, b) if not isinstance(a, str) else (a.encode(), str(b).encode())
    return a if (first > second) == largest else b  # type: ignore[operator]


def _value_codec(table: StateTable) -> KeyCodec:
    return KeyCodec(table.key_codec.types[-1:])
