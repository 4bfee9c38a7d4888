"""Epochs in one process: the levels of an epoch one after the other, whoever asks for them.

For epochs so small that a Spark stage for each level would cost more than their work, for tests,
and for looking at one epoch under a debugger. It calls exactly what Spark tasks call, so it writes
the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from viewkeep.engine.blame import Announce
from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch, Published
from viewkeep.engine.exchange import REPORT
from viewkeep.engine.failures import leave_out
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.log_splits import even_splits, levels_to_run
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import Report, reports_of
from viewkeep.engine.rows.epoch import run_rows
from viewkeep.engine.spool import Mailbox, Message
from viewkeep.errors import OperatorFailed
from viewkeep.stores.contract import Store


class Outgrown(Exception):
    """An epoch has more to hand from level to level than one process should hold."""


def run_epoch(
    store: Store,
    epoch: OpenEpoch,
    tasks: int = 1,
    most: int | None = None,
    announce: Announce | None = None,
) -> list[Report]:
    """Run every task of an open epoch, `tasks` a level from 1 on; publishing it is the caller's.

    `announce` is told each operator before it runs.

    Outgrown if more than `most` bytes lie between two levels; the epoch can then be run again, by
    this or in any other way.
    """
    program = load_plan(store, epoch.plan).program
    few = run_rows(store, epoch, program, announce)
    if few is not None:
        return few
    reports: list[Message] = []
    messages = Mailbox()
    shares = even_splits(store, program, epoch)
    for split in chain.from_iterable(shares):
        _hold(messages, reports, run_sources(store, epoch, split, announce), most)
    for level in range(1, levels_to_run(store, program, epoch, shares)):
        sent, messages = messages, Mailbox()
        for task in range(tasks):
            shards = range(task, store.state.shards, tasks)
            mine = ((shard, blob) for shard in shards for blob in sent.take(shard))
            _hold(messages, reports, run_level(store, epoch, level, shards, mine, announce), most)
    return reports_of([*reports, *((shard, b"") for shard in messages.shards)])


def _hold(
    mailbox: Mailbox, reports: list[Message], sent: Iterable[Message], most: int | None
) -> None:
    for message in sent:
        if message[0] == REPORT:
            reports.append(message)
            continue
        mailbox.put(message)
        if most is not None and mailbox.size > most:
            raise Outgrown(f"more than {most:,} bytes lie between two levels")


def advance(store: Store, term: int, limits: Limits | None = None) -> Published | None:
    """Open, run and publish the next epoch; None if there is nothing to do."""
    epochs = Epochs(store)
    epoch = epochs.open_next(term, limits or Limits())
    if epoch is None:
        return None
    return epochs.publish(term, epoch, run_epoch(store, epoch))


def catch_up(store: Store, limits: Limits | None = None, *, set_aside: bool = False) -> Published:
    """Run epochs until the views hold everything that was written.

    An operator that fails is an OperatorFailed error, which names it and its views. With
    `set_aside` those views are marked as failed instead, and the others go on.
    """
    epochs = Epochs(store)
    lease = epochs.acquire()
    try:
        while True:
            try:
                if advance(store, lease.term, limits) is None:
                    break
            except OperatorFailed as error:
                epoch = epochs.read().open
                if not set_aside or epoch is None:
                    raise
                leave_out(store, lease.term, epoch, {error.operator: error.reason})
    finally:
        epochs.release(lease)
    return epochs.read().published
