"""Runs one level of one epoch: the one place where Spark tasks, tests and repairs do the work.

`run_sources` is level 0, once per node log; `run_level` is any higher level, for some shards. Both
read state as of the epoch before and stamp what they write with the epoch, so
running them again, in any order of their messages, writes the same bytes and sends the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from viewkeep.codec.keys import hash_keys
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine.aggregate import run_aggregate
from viewkeep.engine.changes import base_changes, base_rows, state_rows
from viewkeep.engine.epochs import OpenEpoch
from viewkeep.engine.loading import Chunk, Progress
from viewkeep.engine.parcels import (
    REPORT,
    ROWS,
    Frames,
    Message,
    Outbox,
    combine,
    encode_rows,
    pack,
    unpack,
)
from viewkeep.engine.programs import load_plan
from viewkeep.engine.state import ShardState
from viewkeep.errors import PipelineError
from viewkeep.ops.arrange import net_changes
from viewkeep.ops.evaluate import filter_rows, project
from viewkeep.plan.nodes import Aggregate, Source
from viewkeep.plan.program import Operator, Program
from viewkeep.stores.contract import Store


def run_sources(store: Store, epoch: OpenEpoch, node: int) -> Iterator[Message]:
    """Level 0 of one node log: its operations become deltas for every operator that reads them."""
    began = time.perf_counter()
    program = load_plan(store, epoch.plan).program
    outbox = Outbox(store.shards)
    inbox: dict[str, list[pl.DataFrame]] = {}
    progress = Progress()
    rows_in = 0

    def send(operator: Operator, delta: pl.DataFrame) -> None:
        delta = through_steps(operator, delta)
        if delta.height == 0:
            return
        if operator.feed.local:
            kept = [delta[KEY], encode_rows(operator, delta), delta[WEIGHT]]
            inbox.setdefault(operator.id, []).append(pl.DataFrame(kept))
        else:
            outbox.add(operator, delta)

    for source in program.sources:
        consumers = program.consumers(f"table:{source.number}")
        chunks = _source_chunks(store, epoch, node, source, consumers)
        for operator in consumers:
            if (chunk := chunks.get(operator.id)) is not None:
                progress.note(operator.feed.id, node, chunk)
                send(operator, base_rows(source, chunk, operator.narrowed[0]))
        needed = frozenset[str]().union(*(op.narrowed[0] for op in consumers))
        with_keys = bool(chunks) or any(op.feed.local for op in consumers)
        for delta in base_changes(store, epoch, node, source, needed, with_keys):
            rows_in += delta.height
            for operator in consumers:
                restriction = chunks.get(operator.id)
                send(operator, restriction.passed(delta) if restriction else delta)
    written = _write_local(store, epoch, program, inbox)
    yield from outbox.messages()
    spent = time.perf_counter() - began
    yield REPORT, progress.report(0, rows_in, written, spent).encode()


def run_level(
    store: Store, epoch: OpenEpoch, level: int, shards: Sequence[int], messages: Iterable[Message]
) -> Iterator[Message]:
    """A higher level for some shards. Runs for every shard, messages or none; passes reports on."""
    began = time.perf_counter()
    program = load_plan(store, epoch.plan).program
    blobs: dict[int, list[bytes]] = {}
    for shard, blob in messages:
        if shard == REPORT:
            yield shard, blob
        else:
            blobs.setdefault(shard, []).append(blob)
    if strays := set(blobs).difference(shards):
        raise PipelineError(f"rows for shards {sorted(strays)} came to a task that lacks them")
    outbox = Outbox(store.shards)
    progress = Progress()
    rows_in = written = 0
    for shard in shards:
        state = ShardState(store, shard, epoch.epoch, epoch.horizon)
        arrived = unpack(blobs.pop(shard, ()))
        rows_in += sum(frame.height for frames in arrived.values() for frame in frames)
        for operator in program.at_level(level):
            frames = {
                name: combine(operator, name, parts)
                for (target, name), parts in arrived.items()
                if target == operator.id
            }
            delta = _run_operator(operator, state, frames)
            for consumer in program.consumers(operator.id):
                loaded = _state_chunk(epoch, state, operator, consumer)
                for part in _restricted(operator, delta, loaded):
                    _pass_on(consumer, part, arrived, outbox)
                if loaded is not None:
                    progress.note(consumer.feed.id, shard, loaded)
        written += state.commit()
    yield from outbox.messages()
    spent = time.perf_counter() - began
    yield REPORT, progress.report(level, rows_in, written, spent).encode()


def through_steps(operator: Operator, delta: pl.DataFrame) -> pl.DataFrame:
    """A producer's delta through the stateless steps of an operator's feed."""
    for step in operator.narrowed[1]:
        if delta.height == 0:
            return delta
        if isinstance(step, tuple):
            keep = [name for name in (KEY, WEIGHT) if name in delta.columns]
            delta = project(delta, step, keep=keep)
        else:
            delta = filter_rows(delta, step)
    return delta


def _run_operator(operator: Operator, state: ShardState, frames: Frames) -> pl.DataFrame | None:
    if isinstance(operator.node, Aggregate):
        return run_aggregate(operator, state, frames)
    if ROWS in frames:
        changes = net_changes(frames[ROWS])
        state.stage(operator.rows_table, changes.keys, changes.rows)
    return None


def _pass_on(
    consumer: Operator,
    delta: pl.DataFrame,
    arrived: dict[tuple[str, str], list[pl.DataFrame]],
    outbox: Outbox,
) -> None:
    """Feed a consumer: in memory within the zone, else by the outbox."""
    delta = through_steps(consumer, delta)
    if delta.height == 0:
        return
    if consumer.feed.local:
        for name, frame in pack(consumer, delta, 1).items():
            arrived.setdefault((consumer.id, name), []).append(frame)
    else:
        outbox.add(consumer, delta)


def _restricted(
    operator: Operator, delta: pl.DataFrame | None, chunk: Chunk | None
) -> Iterator[pl.DataFrame]:
    """What a consumer sees of its producer's delta: all, or what is loaded of it."""
    if chunk is not None:
        yield state_rows(operator, chunk)
        if delta is not None:
            yield chunk.passed(delta)
    elif delta is not None:
        yield delta


def _source_chunks(
    store: Store, epoch: OpenEpoch, node: int, source: Source, consumers: Sequence[Operator]
) -> dict[str, Chunk]:
    """The next rows to load for each consumer that still misses some; one scan per bound."""
    scanned: dict[str, Chunk] = {}
    chunks: dict[str, Chunk] = {}
    for operator in consumers:
        bound = epoch.loading.get(operator.feed.id, {}).get(str(node))
        if bound is None:
            continue
        if bound not in scanned:
            found = store.scan(
                node,
                source.number,
                start=Chunk.start(bound),
                limit=epoch.chunk,
                at=epoch.start,
            )
            scanned[bound] = Chunk(bound, found.keys, found.rows, found.more)
        chunks[operator.id] = scanned[bound]
    return chunks


def _state_chunk(
    epoch: OpenEpoch, state: ShardState, producer: Operator, consumer: Operator
) -> Chunk | None:
    bound = epoch.loading.get(consumer.feed.id, {}).get(str(state.shard))
    if bound is None:
        return None
    found = state.scan(producer.rows_table, start=Chunk.start(bound), limit=epoch.chunk)
    return Chunk(bound, found.keys, found.rows, found.more)


def _write_local(
    store: Store, epoch: OpenEpoch, program: Program, inbox: dict[str, list[pl.DataFrame]]
) -> int:
    """Write the views that are keyed like their base table. Shard s belongs to node s % nodes."""
    states: dict[int, ShardState] = {}
    for target, parts in inbox.items():
        changes = net_changes(pl.concat(parts))
        homes = (hash_keys(changes.keys) % store.shards).tolist()
        by_shard: dict[int, tuple[list[bytes], list[bytes | None]]] = {}
        for shard, key, row in zip(homes, changes.keys, changes.rows, strict=True):
            keys, rows = by_shard.setdefault(shard, ([], []))
            keys.append(key)
            rows.append(row)
        for shard, (keys, rows) in by_shard.items():
            if shard not in states:
                states[shard] = ShardState(store, shard, epoch.epoch, epoch.horizon)
            states[shard].stage(program.by_id[target].rows_table, keys, rows)
    return sum(states[shard].commit() for shard in sorted(states))
