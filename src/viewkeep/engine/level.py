"""Runs one level of one epoch: the one place where Spark tasks, tests and repairs do the work.

`run_sources` is level 0, for a split of a log; `run_level` is any higher level, for some
shards. Both read state as of the epoch before and stamp what they write with the epoch, so running
them again, in any order of their messages, writes the same bytes and sends the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from viewkeep.deferred import np, pl
from viewkeep.delta import HOME, KEY, WEIGHT, chosen, without
from viewkeep.engine import amounts
from viewkeep.engine.amounts import amount
from viewkeep.engine.blame import Announce, Blame
from viewkeep.engine.cells.level import cell_boxes, cell_sources, purge_below, purging
from viewkeep.engine.cells.loading import load_cells, loads_due
from viewkeep.engine.cells.travel import CellBox, frames_of
from viewkeep.engine.changes import Tail, base_changes, base_rows, constant_rows
from viewkeep.engine.epochs import OpenEpoch
from viewkeep.engine.exchange import (
    REPORT,
    ROWS,
    SHARD,
    Outbox,
    port_name,
)
from viewkeep.engine.inbox import Inbox
from viewkeep.engine.load_chunks import Consumers, state_chunks, table_chunks
from viewkeep.engine.loading import LoadChunk, Progress
from viewkeep.engine.log_splits import is_first, writes_local
from viewkeep.engine.operators import Executor, Executors, executors
from viewkeep.engine.operators.arrange import encode_rows
from viewkeep.engine.programs import load_plan
from viewkeep.engine.spool import Mailbox, Message
from viewkeep.engine.state import ShardState
from viewkeep.engine.steps import run_steps
from viewkeep.engine.views import view_tables
from viewkeep.errors import PipelineError
from viewkeep.ops.arrange import changes_of, net_rows
from viewkeep.plan.program import Operator, OperatorFeed, producer_id
from viewkeep.stores.contract import LogSplit, Store


def run_sources(
    store: Store, epoch: OpenEpoch, split: LogSplit, announce: Announce | None = None
) -> Iterator[Message]:
    """Level 0 of a split of a log: operations become deltas for the operators that read them.

    Views that are keyed like their base table are written here if no other task has changes of
    the same rows (`writes_local`). Else all are sent to level 1.
    """
    began, worked = time.perf_counter(), time.process_time()
    is_local, is_leading = writes_local(store, epoch, split), is_first(store, epoch, split)
    program = load_plan(store, epoch.plan).program
    running = executors(program)
    blame = Blame(program, announce)
    outbox = Outbox(store.state.shards)
    inbox = Inbox(())
    progress = Progress()
    rows_in = 0

    def send(
        delta: pl.DataFrame, consumers: Sequence[tuple[Operator, OperatorFeed]]
    ) -> Iterator[Message]:
        for operator, feed, rows in blame.fan_out(delta, consumers, store.state.shards):
            with blame(operator.id):
                if feed.local:
                    kept = [rows[KEY], encode_rows(operator, rows), rows[WEIGHT]]
                    if is_local:
                        inbox.put(operator.id, ROWS, pl.DataFrame([*kept, rows[HOME]]))
                    else:
                        net = net_rows(pl.DataFrame([*kept, rows[HOME].alias(SHARD)]))
                        outbox.put(running[operator.id], ROWS, net)
                else:
                    outbox.add(running[operator.id], rows)
            if outbox.full:
                yield from outbox.messages()

    def route(number: int, box: CellBox) -> Iterator[Message]:
        for operator, _ in program.consumers(f"table:{number}"):
            with blame(operator.id):
                for name, frame in frames_of(box, store.state.shards).items():
                    outbox.put(running[operator.id], name, frame)
            if outbox.full:
                yield from outbox.messages()

    cells = cell_sources(program)
    for number, box in cell_boxes(store, epoch, split, cells):
        rows_in += len(box)
        yield from route(number, box)
    for table, operator, feed, part, bound in loads_due(store, epoch, split, program, cells):
        with blame(operator.id):
            read = load_cells(store, epoch, feed.id, part, table, bound)
        progress.note(feed.id, part, read.as_noted)
        yield from route(table.number, read.box)
    tails: list[Tail] = []
    loads: dict[int, list[tuple[LoadChunk, Consumers]]] = {}
    for source in program.sources:
        if source.number in cells:
            continue
        consumers = program.consumers(f"table:{source.number}")
        needed = program.needed(source)
        with blame(producer_id(source)):
            loads[source.number] = table_chunks(store, epoch, split, source, consumers)
        for chunk, loading in loads[source.number] if split.part is not None or is_leading else ():
            for _, feed in loading:
                progress.note(feed.id, split.part or 0, chunk)
            with blame(producer_id(source)):
                rows = base_rows(source, chunk, needed)
            yield from send(rows, loading)
            chunk.release()
        with_keys = bool(loads[source.number]) or any(feed.local for _, feed in consumers)
        tails.append(Tail(source, needed, with_keys))
    for tail, delta in base_changes(store, split, tails, blame):
        rows_in += delta.height
        parts = loads[tail.source.number]
        missing = {feed.id for _, loading in parts for _, feed in loading}
        consumers = program.consumers(f"table:{tail.source.number}")
        yield from send(delta, [pair for pair in consumers if pair[1].id not in missing])
        for chunk, loading in parts:
            yield from send(chunk.passed(delta), loading)
    for operator, feed, values in program.constants if is_leading else ():
        if feed.id in epoch.loading:
            yield from send(constant_rows(values), [(operator, feed)])
            progress.note(feed.id, 0, LoadChunk("", [], [], more=False))
    written = _write_local(store, epoch, running, inbox, blame)
    yield from outbox.messages()
    spent, worked = time.perf_counter() - began, time.process_time() - worked
    yield REPORT, progress.report(0, rows_in, written, spent, worked, blame.costs).encode()


def run_level(
    store: Store,
    epoch: OpenEpoch,
    level: int,
    shards: Sequence[int],
    messages: Iterable[Message],
    announce: Announce | None = None,
) -> Iterator[Message]:
    """A higher level for some shards. Runs for every shard, messages or none; passes reports on."""
    began, worked = time.perf_counter(), time.process_time()
    program = load_plan(store, epoch.plan).program
    running = executors(program)
    blame = Blame(program, announce)
    mailbox = Mailbox()
    for message in messages:
        if message[0] == REPORT:
            yield message
        else:
            mailbox.put(message)
    if strays := set(mailbox.shards).difference(shards):
        raise PipelineError(f"rows for shards {sorted(strays)} came to a task that lacks them")
    here = program.at_level(level)
    if level == 1:
        here = (*program.at_level(0), *here)  # whose rows come from logs that were cut
    targets = {operator.id for operator in here}
    busy = program.unasked | {p for feed in epoch.loading if (p := program.producer_of(feed))}
    busy |= {operator.id for operator in purging(store, epoch, program)}
    progress = Progress()
    rows_in = written = 0
    below, views = purge_below(store, epoch.cut), view_tables(store, program)
    for shard in shards:
        # What a shard sends does not depend on the others of its task: sums of DOUBLEs are rounded
        # with each part, and must have the same parts whoever runs the epoch.
        outbox = Outbox(store.state.shards)
        state = ShardState(store, shard, epoch.epoch, epoch.horizon, below, views)
        inbox = Inbox(targets)
        yield from inbox.receive(shard, mailbox.take(shard))
        rows_in += inbox.rows
        for operator in here:
            if operator.id not in inbox and operator.id not in busy:
                continue
            with blame(operator.id):
                chunks = state_chunks(epoch, state, program, operator)
                for loaded, chunk in chunks.items():
                    progress.note(loaded, shard, chunk)
                heard = program.is_heard(operator.id)
                for delta in _together(_run(running[operator.id], state, inbox, heard)):
                    blame.changed(operator.id, delta.height)
                    _hand_on(running, operator, delta, chunks, state, inbox, outbox, blame)
                    if outbox.full:
                        yield from outbox.messages()
            for consumer, feed in program.consumers(operator.id):
                if feed.id in chunks:
                    with blame(consumer.id):
                        loaded_rows = running[operator.id].loaded(chunks[feed.id])
                        for rows in running[operator.id].rows_for(state, loaded_rows):
                            _feed(running[consumer.id], feed, rows, inbox, outbox)
                            if outbox.full:
                                yield from outbox.messages()
        written += state.commit()
        yield from outbox.messages()
    spent, worked = time.perf_counter() - began, time.process_time() - worked
    yield REPORT, progress.report(level, rows_in, written, spent, worked, blame.costs).encode()


def _run(
    executor: Executor[Any, Any], state: ShardState, inbox: Inbox, heard: bool
) -> Iterator[pl.DataFrame]:
    """The changes of an operator's rows, part by part."""
    for given in executor.inputs(inbox):
        yield from executor.run_columns(state, given, heard)
        state.commit_if_much()


def _together(deltas: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same changes in fewer parts: a part of few rows costs those who get it what many cost."""
    held, held_amount = list[pl.DataFrame](), 0
    for delta in deltas:
        if delta.height:
            held.append(delta)
            held_amount += amount(delta)
        if held_amount >= amounts.TOGETHER:
            yield _joined(held)
            held, held_amount = [], 0
    if held:
        yield _joined(held)


def _joined(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Changes of one operator as one frame; what only some parts have is of no use to others."""
    if len(parts) == 1:
        return parts[0]
    common = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    return pl.concat([part[common] for part in parts])


def _hand_on(
    running: Executors,
    operator: Operator,
    delta: pl.DataFrame,
    chunks: dict[str, LoadChunk],
    state: ShardState,
    inbox: Inbox,
    outbox: Outbox,
    blame: Blame,
) -> None:
    """Give an operator's changes to those who read its table and those who are fed by it."""
    program = running.program
    for reader, place in program.readers(operator.id):
        with blame(reader.id):
            rows = run_steps(reader.ports[place].narrowed[1], delta)
        if reader.level == operator.level:
            inbox.put(reader.id, port_name(place), rows)
        else:
            outbox.forward(running[reader.id], place, rows, state.shard)
    for consumer, feed in program.consumers(operator.id):
        chunk = chunks.get(feed.id)
        with blame(consumer.id):
            _feed(
                running[consumer.id], feed, chunk.passed(delta) if chunk else delta, inbox, outbox
            )


def _feed(
    consumer: Executor[Any, Any],
    feed: OperatorFeed,
    delta: pl.DataFrame,
    inbox: Inbox,
    outbox: Outbox,
) -> None:
    """Feed a consumer: in memory within the zone, else by the outbox."""
    delta = run_steps(feed.narrowed[1], delta)
    if delta.height == 0:
        return
    if feed.local:
        for name, frame in consumer.pack(delta, 1).items():
            inbox.put(consumer.operator.id, name, without(frame, SHARD))
    else:
        outbox.add(consumer, delta)


def _write_local(
    store: Store, epoch: OpenEpoch, running: Executors, inbox: Inbox, blame: Blame
) -> int:
    """Write the views that are keyed like their base table, if stores say `aligned`."""
    states: dict[int, ShardState] = {}
    views = view_tables(store, running.program)
    for target in inbox.targets:
        operator = running.program.by_id[target]
        for frames in inbox.parts(running[target]):
            delta = frames[ROWS]
            homes = delta[HOME].to_numpy()
            present = np.unique(homes).tolist()
            for shard in present:
                part = chosen(delta, homes == shard) if len(present) > 1 else delta
                if shard not in states:
                    states[shard] = ShardState(
                        store, shard, epoch.epoch, epoch.horizon, views=views
                    )
                with blame(target):
                    states[shard].stage(operator.rows_table, *changes_of(part))
                states[shard].commit_if_much()
    return sum(states[shard].commit() for shard in sorted(states))
