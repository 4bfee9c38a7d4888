"""Group commit: what threads of one process write to a node at once is one transaction.

Law: a call returns only after the commit of what it wrote; a call that fails leaves nothing of
itself, and does not disturb the others. Each call is a transaction within the transaction.

A commit waits for the disk once, whatever it holds (`last_commit`). While it waits, other threads
hand in what the next commit writes.
"""

from __future__ import annotations

from collections.abc import Callable

import lmdb

from viewkeep.errors import OutcomeUnknown
from viewkeep.stores.lmdb import log
from viewkeep.stores.lmdb.combining import QueuedCall
from viewkeep.stores.lmdb.environment import Environment, Transaction, translate, translated
from viewkeep.stores.lmdb.last_commit import RecordedCommit, make_durable

Prepare = Callable[[Transaction], bool]
Write = Callable[[log.Appending], int]


def commit_with_others(node: Environment, rows: int, prepare: Prepare, work: Write) -> int:
    """Do work in a write transaction of the node, maybe with that of other threads.

    `prepare` is what any of them would do first; True if that changes anything.
    """

    def together(calls: list[QueuedCall[log.Appending, int]]) -> None:
        _commit(node, prepare, calls)

    return node.calls.run(node.lock, rows, work, together)


def _commit(
    node: Environment, prepare: Prepare, calls: list[QueuedCall[log.Appending, int]]
) -> None:
    """Run calls in one transaction and give each its outcome."""
    ended = False
    recorded = RecordedCommit(node)
    try:
        with translated, recorded, node.begin(write=True) as txn:
            number = txn.id()
            make_durable(node, number - 1)
            has_prepared = prepare(txn)
            end = log.end(node, txn) if has_prepared else log.known_end(node, txn)
            appending = log.Appending(node, txn, end)
            if len(calls) == 1:
                calls[0].run(appending)
            else:
                for call in calls:
                    _run_within(appending, call)
            recorded.record(number, None if has_prepared else appending.segments)
        if appending.segments:
            node.log_end = (number, appending.end)
        ended = True
    except Exception as error:
        ended = True
        for call in calls:
            if call.error is None:
                call.error = _own(error) if len(calls) > 1 else error
    finally:
        if not ended:  # something like a KeyboardInterrupt, which is this thread's own
            for call in calls:
                call.error = call.error or OutcomeUnknown(
                    "the thread that was committing this write with its own was interrupted; read "
                    "the rows before you write again"
                )


def _run_within(appending: log.Appending, call: QueuedCall[log.Appending, int]) -> None:
    """Run a call in a transaction of its own within another."""
    try:
        with translated, appending.node.within(appending.txn) as part:
            inner = appending.within(part)
            call.run(inner)
    except Exception as error:
        call.error = error
    else:
        appending.adopt(inner)


def _own(error: Exception) -> Exception:
    """The same error for another thread, which must not share its traceback."""
    cause = error.__cause__
    made = translate(cause) if isinstance(cause, lmdb.Error) else type(error)(*error.args)
    made.__cause__ = error
    return made
