"""Views that a store keeps apart from state (`Capabilities.views_apart`).

Law: at every published epoch, the rows of a view's table are the same in `views` as in `state`.

What an epoch writes to the table of a view goes to both. A table that has been state only has its
rows handed over before the first epoch whose plan has a view on it. That takes a number of its
own, between the published epoch and the one that opens: late runs of it write the same rows, or
are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from viewkeep.errors import Fenced
from viewkeep.plan.program import Program
from viewkeep.stores.contract import Chunk, StateWrite, Store, Versioned

_ROWS = 10_000  # at once


def versioned_parts(store: Store) -> list[Versioned]:
    """The parts of a store that have rows with versions."""
    return [store.state, store.views] if store.capabilities.views_apart else [store.state]


def view_tables(store: Store, program: Program) -> frozenset[int]:
    """The tables whose rows go to `views` too."""
    if not store.capabilities.views_apart:
        return frozenset()
    return frozenset(placement.table.number for placement in program.placements.values())


def to_hand_over(store: Store, before: Program, after: Program) -> frozenset[int]:
    """The tables that were state and become views."""
    kept = {table.number for operator in before.operators for table in operator.tables}
    return (view_tables(store, after) - view_tables(store, before)) & kept


def hand_over(store: Store, tables: frozenset[int], at: int, epoch: int, horizon: int) -> None:
    """Make these tables in `views` what they are in state at an epoch, by writes of another one."""
    for shard in range(store.state.shards):
        for table in sorted(tables):
            for write in _differences(store, shard, table, at):
                with suppress(Fenced):  # whoever else did this has gone on to the next epoch
                    store.views.apply(shard, epoch, horizon, [write])


def _differences(store: Store, shard: int, table: int, at: int) -> Iterator[StateWrite]:
    start, more = b"", True
    while more:
        chunk = store.state.scan(shard, table, start=start, limit=_ROWS, at=at)
        more = chunk.more
        stop = chunk.keys[-1] + b"\0" if more else None
        # A view on this table may have been dropped before, and has left rows.
        shown = dict(_shown(store, shard, table, start, stop))
        rows = dict(zip(chunk.keys, chunk.rows, strict=True))
        changed: dict[bytes, bytes | None] = {k: r for k, r in rows.items() if shown.get(k) != r}
        changed |= dict.fromkeys(shown.keys() - rows.keys())
        if changed:
            yield StateWrite(table, list(changed), list(changed.values()))
        start = stop or b""


def _shown(
    store: Store, shard: int, table: int, start: bytes, stop: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    chunk = Chunk([], [], more=True)
    while chunk.more:
        chunk = store.views.scan(shard, table, start=start, stop=stop, limit=_ROWS, at=None)
        yield from zip(chunk.keys, chunk.rows, strict=True)
        start = chunk.keys[-1] + b"\0" if chunk.keys else start
