"""The columns lane of an Aggregate: reads the changed groups, adds the gains, stages the new rows.

The cost of an epoch is that of its changes: group rows are read by key; of the ordered values only
the changed ones are read and few around them (`engine.values`).
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeep.codec.key_order import hash_key
from viewkeep.deferred import pl
from viewkeep.delta import KEY, weighted
from viewkeep.engine.exchange import GROUPS, Frames, values_name
from viewkeep.engine.state import ShardState
from viewkeep.engine.values.anchors import move_anchors
from viewkeep.engine.values.ordered import ValueChanges, advance_values, extremes
from viewkeep.engine.values.recompute import recompute
from viewkeep.errors import PipelineError
from viewkeep.ops.aggregates.accumulators import Accumulators, distinct_gain
from viewkeep.ops.aggregates.extremes import Extreme
from viewkeep.ops.aggregates.function import Kept
from viewkeep.ops.aggregates.ordered import Ordered
from viewkeep.ops.aggregates.percentiles import ANCHOR, BELOW, RESULT, count_of, percentile_of
from viewkeep.ops.aggregates.totals import advance, plus
from viewkeep.plan.nodes import Aggregate
from viewkeep.plan.program import Operator
from viewkeep.types import DOUBLE


def run_aggregate(
    operator: Operator, state: ShardState, frames: Frames, heard: bool
) -> pl.DataFrame | None:
    """Apply the gains; return the delta of the output rows with their keys, None if none.

    None also if nobody hears it: many views are the groups of an Aggregate, and nothing else.
    """
    node, table = operator.node, operator.rows_table
    assert isinstance(node, Aggregate)
    kept = node.accumulators
    groups = _touched(operator, state, frames)
    if groups is None:
        return None
    keys: list[bytes] = groups[KEY].to_list()
    old_rows = state.lookup(table, keys)
    old = state.frame(table, old_rows)
    made = [groups[key.name] for key in node.keys]
    made.append(plus(old[kept.rows], groups[kept.rows]))
    made += advance(old, groups, kept.plain)
    changes: list[ValueChanges] = []
    for place, order in enumerate(kept.ordered):
        gain = frames.get(values_name(place), _no_gain(order))
        change = advance_values(state, operator.tables[1 + place], order, groups, gain)
        totals = kept.distinct(order)
        if totals:
            made += advance(old, distinct_gain(change.moved, totals, len(keys)), totals)
        changes.append(change)
    new = pl.DataFrame(made)
    for change in changes:
        new = new.hstack(_from_order(kept, change, old, new))
    for output in kept.totalled:
        new = new.hstack([output.function.finish(new, output)])
    return _replace_rows(operator, state, keys, old, old_rows, new, heard)


def _touched(operator: Operator, state: ShardState, frames: Frames) -> pl.DataFrame | None:
    """One row per group with a gain; the group of no keys always exists on its home shard."""
    groups = frames.get(GROUPS)
    node = operator.node
    assert isinstance(node, Aggregate)
    home = not node.keys and hash_key(b"") % state.store.state.shards == state.shard
    if groups is None and home and state.lookup(operator.rows_table, [b""]) == [None]:
        kept = node.accumulators
        columns = [column for total in kept.plain for column in total.columns]
        blank = [pl.Series(KEY, [b""], pl.Binary), pl.Series(kept.rows, [0], pl.Int64)]
        blank += [pl.Series(c.name, [0]).cast(c.type.polars) for c in columns]
        return pl.DataFrame(blank)
    # In key order, as their values lie in ordered tables, and as the store is fastest.
    return groups.sort(KEY) if groups is not None and groups.height > 1 else groups


def _replace_rows(
    operator: Operator,
    state: ShardState,
    keys: list[bytes],
    old: pl.DataFrame,
    old_rows: list[bytes | None],
    new: pl.DataFrame,
    heard: bool,
) -> pl.DataFrame | None:
    node, table = operator.node, operator.rows_table
    assert isinstance(node, Aggregate)
    kept = node.accumulators
    counts = new[kept.rows].to_list()
    if min(counts, default=0) < 0:
        raise PipelineError(
            f"a group of {operator.id} has fewer than no rows: an input row is lost"
        )
    # As it will be read back: -0.0 is stored as 0.0, and consumers must see the same both times.
    doubles = [column.name for column in node.columns if column.type == DOUBLE]
    if doubles:
        zero = (pl.when(pl.col(name) == 0).then(0.0).otherwise(pl.col(name)) for name in doubles)
        new = new.with_columns(one.alias(name) for name, one in zip(doubles, zero, strict=True))
    lives = [count > 0 for count in counts] if node.row_key else [True] * len(keys)
    encoded = table.row_codec.encode(new)
    new_rows = [row if alive else None for row, alive in zip(encoded, lives, strict=True)]
    changed = [a != b for a, b in zip(old_rows, new_rows, strict=True)]
    if not any(changed):
        return None
    places = [i for i, differs in enumerate(changed) if differs]
    state.stage(table, [keys[i] for i in places], [new_rows[i] for i in places])
    if not heard:
        return None
    shown = [column.name for column in node.columns]
    key = pl.Series(KEY, keys, pl.Binary)
    # What is kept beside the outputs may change alone: those who hear see the same row.
    same = _same(old, new, shown)
    heard_of = [i for i in places if not same[i] or old_rows[i] is None or new_rows[i] is None]
    if not heard_of:
        return None
    goes = [i for i in heard_of if old_rows[i] is not None]
    comes = [i for i in heard_of if new_rows[i] is not None]
    return pl.concat(
        [
            weighted(old[shown].hstack([key])[goes], -1),
            weighted(new[shown].hstack([key])[comes], +1),
        ]
    )


def _same(old: pl.DataFrame, new: pl.DataFrame, names: Sequence[str]) -> list[bool]:
    """Whether rows agree in some columns."""
    if not names:
        return [True] * old.height
    pairs = [
        (old[name].alias(f"old{i}"), new[name].alias(f"new{i}")) for i, name in enumerate(names)
    ]
    equal = [pl.col(before.name).eq_missing(pl.col(after.name)) for before, after in pairs]
    both = pl.DataFrame([column for pair in pairs for column in pair])
    return both.select(pl.all_horizontal(equal)).to_series().to_list()


def _from_order(
    kept: Accumulators, changes: ValueChanges, old: pl.DataFrame, new: pl.DataFrame
) -> list[pl.Series]:
    """The columns of outputs that read one ordered table; as they were if nothing changed there."""
    order = changes.order
    if changes.rows.height == 0:
        outputs = [output for output in kept.outputs if output.order == order]
        made = [old[column.name] for output in outputs for column in output.hidden]
        return made + [output.function.of_none(old[output.name]) for output in outputs]
    made = []
    for output in kept.depending(Kept.EXTREME, order):
        assert isinstance(output.function, Extreme)
        columns = [*(column.name for column in output.hidden), output.name]
        held = _renamed(old, columns, order.names)
        chosen = extremes(changes, held, new[kept.rows] > 0, output.function.is_largest)
        made += [chosen[inner].alias(c) for inner, c in zip(order.names, columns, strict=True)]
    for output in kept.depending(Kept.PERCENTILE, order):
        columns = [*(column.name for column in output.hidden), output.name]
        shown = (ANCHOR, BELOW, RESULT)
        held, counts = _renamed(old, columns, shown), new[count_of(output)].to_list()
        found = move_anchors(changes, held, counts, percentile_of(output), output.distinct)
        made += [found[inner].alias(name) for name, inner in zip(columns, shown, strict=True)]
    recomputed = kept.depending(Kept.VALUES, order)
    if recomputed:
        values = changes.all_values()
        made += [recompute(changes, values, old, new, output) for output in recomputed]
    return made


def _renamed(frame: pl.DataFrame, columns: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """Some columns of a frame under other names."""
    return pl.DataFrame([frame[c].alias(name) for c, name in zip(columns, names, strict=True)])


def _no_gain(order: Ordered) -> pl.DataFrame:
    return pl.DataFrame(schema={KEY: pl.Binary, **order.schema})
