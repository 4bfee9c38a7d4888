"""Rows of an arrangement by group: read as of the epoch before, put in order, and compared.

TOP-K and windows look at a group's rows before and after its changes. Law: the order is that of the
arrangement's key, by value, so it is the same whether rows come from state or from a delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeep.codec.keys import KEPT
from viewkeep.deferred import pl
from viewkeep.delta import KEY, WEIGHT, weighted
from viewkeep.engine.batches import width
from viewkeep.engine.budget import Budget
from viewkeep.engine.state import ROWS_AT_ONCE, ShardState
from viewkeep.plan.nodes import PartitionNode
from viewkeep.plan.program import Operator

GROUP = "#group"  # the bytes of a row's group


def group_bytes(operator: Operator, delta: pl.DataFrame) -> pl.Series:
    """The bytes of each row's group."""
    port = operator.ports[0]
    columns = [delta[name] for name in port.group]
    return port.table.groups(columns, delta.height, GROUP)


def grouped(operator: Operator, delta: pl.DataFrame) -> pl.DataFrame:
    """The rows with the bytes of their group."""
    return delta.hstack([group_bytes(operator, delta)])


def rows_of_groups(
    operator: Operator,
    state: ShardState,
    groups: Sequence[bytes],
    limits: Sequence[int] | None = None,
) -> pl.DataFrame:
    """The rows of some groups, or at least the first so many of each, with group and key."""
    rows = pl.concat(frames_of_groups(operator, state, groups, limits))
    if limits is not None and any_cut(rows[KEY]):
        return rows_of_groups(operator, state, groups)
    return rows


def frames_of_groups(
    operator: Operator,
    state: ShardState,
    groups: Sequence[bytes],
    limits: Sequence[int] | None = None,
) -> Iterator[pl.DataFrame]:
    """The same in frames of bounded amounts, in the order of the groups and of keys within one.

    If a key is cut, the limits do not say which rows are the first: ask again without them.
    """
    yield framed(operator, [], [], [])
    table = operator.ports[0].table
    if table.unique_groups:
        for _, some, rows in state.lookups(table, groups, ROWS_AT_ONCE):
            there = [place for place, row in enumerate(rows) if row is not None]
            found = [some[place] for place in there]
            yield framed(operator, found, [row for row in rows if row is not None], found)
        return
    prefixes = [table.prefix(group) for group in groups]
    for batch in state.find(table, prefixes, limits):
        yield framed(operator, batch.keys, batch.rows, [groups[place] for place in batch.places])


def is_cut(key: bytes) -> bool:
    """Whether a key was cut: such keys are not in the order of their values among themselves."""
    return len(key) > KEPT


def any_cut(keys: pl.Series) -> bool:
    """Whether one of these keys was cut."""
    return bool((keys.bin.size() > KEPT).any())


def framed(
    operator: Operator, keys: list[bytes], rows: list[bytes], owners: list[bytes]
) -> pl.DataFrame:
    """Rows of the arrangement as a frame, with their keys and groups."""
    port = operator.ports[0]
    frame = port.table.row_codec.decode(rows, [column.name for column in port.columns])
    return frame.hstack([pl.Series(KEY, keys, pl.Binary), pl.Series(GROUP, owners, pl.Binary)])


def changed(rows: pl.DataFrame, delta: pl.DataFrame) -> pl.DataFrame:
    """The rows after a delta of them."""
    kept = rows.join(delta.filter(pl.col(WEIGHT) < 0).select(KEY), on=KEY, how="anti")
    return pl.concat([kept, delta.filter(pl.col(WEIGHT) > 0).select(rows.columns)])


def in_order(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows by group, and within one in the order of the arrangement."""
    parts = operator.ports[0].table.key
    names = [GROUP, *(part.name for part in parts)]
    down = [False, *(part.descending for part in parts)]
    # As keys are: NULLs come first going up and last going down.
    return rows.sort(names, descending=down, nulls_last=down)


def differences(
    before: pl.DataFrame, after: pl.DataFrame, names: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """The rows that went and those that came, of two results whose rows have keys."""
    before, after = before.select(*names, KEY), after.select(*names, KEY)
    same = [*names, KEY]
    yield weighted(before.join(after, on=same, how="anti", nulls_equal=True), -1)
    yield weighted(after.join(before, on=same, how="anti", nulls_equal=True), +1)


def sorted_by_partition(node: PartitionNode, rows: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    """The rows by partition, order and row key; NULLs come first going up, last going down."""
    # Sorted, and with the order of the rows beside them.
    budget.hold(rows.height * (width(rows) + 16), "a sort of the query")
    by = dict.fromkeys(node.partition, False)
    for part in node.order:
        by.setdefault(part.name, part.descending)
    for name in node.row_key:
        by.setdefault(name, False)
    if not by:
        return rows
    return rows.sort(list(by), descending=list(by.values()), nulls_last=list(by.values()))
