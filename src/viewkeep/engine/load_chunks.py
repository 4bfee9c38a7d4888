"""The rows that an epoch loads: which chunk each feed that still misses rows gets next.

Law: a chunk is a function of the epoch's record and of its producer's rows at the epoch before, so
both lanes and every attempt load the same rows. Feeds of one table that stand at one bound share a
scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from viewkeep.engine.epochs import OpenEpoch
from viewkeep.engine.loading import LoadChunk
from viewkeep.engine.state import ShardState
from viewkeep.errors import StoreError
from viewkeep.plan.nodes import Source
from viewkeep.plan.program import Operator, OperatorFeed, Program
from viewkeep.stores import contract as stores
from viewkeep.stores.contract import LogSplit, Store

Consumers: TypeAlias = Sequence[tuple[Operator, OperatorFeed]]


def table_chunks(
    store: Store, epoch: OpenEpoch, split: LogSplit, source: Source, consumers: Consumers
) -> list[tuple[LoadChunk, Consumers]]:
    """The next rows of a base table to load, with the feeds that miss them.

    A split whose rows may lie in any part takes changes of all loaded keys; that needs one bound,
    so one part. Each such split reads the chunk, and the first one sends it.
    """
    part = split.part or 0
    by_bound: dict[str, list[tuple[Operator, OperatorFeed]]] = {}
    for operator, feed in consumers if epoch.loading else ():
        bound = epoch.loading.get(feed.id, {}).get(str(part))
        if bound is not None:
            by_bound.setdefault(bound, []).append((operator, feed))
    if by_bound and split.part is None and store.tables.parts > 1:
        raise StoreError(
            f"{store.url} scans tables in {store.tables.parts} parts, but does not say which of "
            "them an operation of its log is of; views cannot be loaded from it"
        )

    def scan(start: bytes, limit: int) -> stores.Chunk:
        return store.tables.scan(part, source.number, start=start, limit=limit, at=epoch.start)

    return [(LoadChunk.read(bound, epoch.chunk, scan), feeds) for bound, feeds in by_bound.items()]


def state_chunks(
    epoch: OpenEpoch, state: ShardState, program: Program, producer: Operator
) -> dict[str, LoadChunk]:
    """The next rows of an operator to load for each of its consumers that still misses some."""

    def scan(start: bytes, limit: int) -> stores.Chunk:
        return state.scan(producer.rows_table, start=start, limit=limit)

    chunks: dict[str, LoadChunk] = {}
    for _, feed in program.consumers(producer.id) if epoch.loading else ():
        bound = epoch.loading.get(feed.id, {}).get(str(state.shard))
        if bound is not None:
            chunks[feed.id] = LoadChunk.read(bound, epoch.chunk, scan)
    return chunks
