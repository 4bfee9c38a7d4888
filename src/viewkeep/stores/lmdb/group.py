"""Group commit: what threads of one process write to a node at once is one transaction.

Law: a call returns only after the commit of what it wrote; a call that fails leaves nothing of
itself, and does not disturb the others. Each call is a transaction within the transaction.

A commit waits for the disk twice, whatever it holds: LMDB syncs the pages, then the page that leads
to them. While it waits, other threads hand in what the next commit writes.
"""

from __future__ import annotations

from collections.abc import Callable

import lmdb

from viewkeep.errors import OutcomeUnknown
from viewkeep.stores.lmdb.combining import QueuedCall
from viewkeep.stores.lmdb.environment import Environment, Transaction, translate, translated

Prepare = Callable[[Transaction], object]
Write = Callable[[Transaction], int]


def commit_with_others(node: Environment, rows: int, prepare: Prepare, work: Write) -> int:
    """Do work in a write transaction of the node, maybe with that of other threads.

    `prepare` is what any of them would do first.
    """

    def together(calls: list[QueuedCall[Transaction, int]]) -> None:
        _commit(node, prepare, calls)

    return node.calls.run(node.lock, rows, work, together)


def _commit(node: Environment, prepare: Prepare, calls: list[QueuedCall[Transaction, int]]) -> None:
    """Run calls in one transaction and give each its outcome."""
    ended = False
    try:
        with translated, node.begin(write=True) as txn:
            prepare(txn)
            if len(calls) == 1:
                calls[0].run(txn)
            else:
                for call in calls:
                    _run_within(node, txn, call)
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


def _run_within(node: Environment, txn: Transaction, call: QueuedCall[Transaction, int]) -> None:
    """Run a call in a transaction of its own within another."""
    try:
        with translated, node.within(txn) as part:
            call.run(part)
    except Exception as error:
        call.error = error


def _own(error: Exception) -> Exception:
    """The same error for another thread, which must not share its traceback."""
    cause = error.__cause__
    made = translate(cause) if isinstance(cause, lmdb.Error) else type(error)(*error.args)
    made.__cause__ = error
    return made
