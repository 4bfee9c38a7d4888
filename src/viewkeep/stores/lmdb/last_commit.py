"""The last commit of a node: recorded before it is made, and made again if a power loss took it.

Law: a commit that others can see survives power loss, or its writer still holds the node's lock; a
commit that failed leaves no record. Whoever opens a node finds its last commit there. Once a cut
was taken, a write that it does not cover is not made without a writer.

A record holds the log segments that its transaction appends. They have all that a write does: the
rows that it stores are those in its operations. A commit that does anything else to a node, or has
more than a record takes, has none; its writer syncs the file once more before it gives back the
lock (`Environment.sync`).
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeep.errors import Corrupt, OutcomeUnknown, StoreError
from viewkeep.stores.lmdb import log, sums
from viewkeep.stores.lmdb.environment import Environment, Transaction, translated
from viewkeep.stores.lmdb.ranges import PREFIX


class RecordedCommit:
    """A context around a node's write transaction; `record` comes last in that."""

    def __init__(self, node: Environment):
        self._node, self._number = node, 0
        self._is_changed = self._is_recorded = False

    def record(self, number: int, appended: Sequence[tuple[int, bytes]] | None) -> None:
        """Write down what transaction `number` appends to the log; None if it does more."""
        node = self._node
        if not node.is_deferred:
            return
        self._is_changed = appended is None or bool(appended)
        if appended and node.record is not None:
            self._number = number
            self._is_recorded = node.record.write(number, appended)
        if self._is_changed and not self._is_recorded:
            node.leave_unrecorded(number)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is not None and self._is_recorded:
                self._settle()
            elif kind is None and self._is_recorded:
                self._node.durable = self._number
            elif kind is None and self._is_changed:
                self._node.sync()
        except (OSError, StoreError) as failure:
            if error is not None and not isinstance(error, Exception):
                return  # an interrupt goes on as such
            raise OutcomeUnknown(
                f"whether the write is stored is not known ({failure}); read the rows before you "
                "write again"
            ) from (error or failure)

    def _settle(self) -> None:
        """Keep the record only if there was a commit."""
        node = self._node
        assert node.record is not None
        if node.last_transaction < self._number:
            node.record.erase(self._number)
        node.record.rewrite_meta()
        node.sync()


def recover(node: Environment) -> None:
    """Make again the commits that a power loss took: one, and one more that nobody was told of."""
    while node.record is not None and node.record.read(node.last_transaction + 1) is not None:
        with translated, node.lock:
            with node.begin(write=True) as txn:
                # Another process may have done so, or be the writer of that record.
                if (appended := node.record.read(txn.id())) is None:
                    return
                _apply(node, txn, appended)
            node.sync()


def forget_unmade(node: Environment, txn: Transaction) -> None:
    """What a writer recorded that died, or failed, before its commit is never made from here on.

    For those that tell others what is there: the log must not grow later by a write that they did
    not see.
    """
    if node.record is not None and node.record.read(txn.id()) is not None:
        node.leave_unrecorded(txn.id())
        node.sync()


def make_durable(node: Environment, number: int) -> None:
    """See to it that transaction `number`, the last one, survives power loss.

    Its writer may have died before its second sync. Needs no lock.
    """
    if node.is_deferred and node.durable != number:
        if node.record is None or node.record.read(number) is None:
            with translated:
                node.env.sync(True)
        node.durable = number


def _apply(node: Environment, txn: Transaction, appended: Sequence[tuple[int, bytes]]) -> None:
    """Append log segments and store the rows that they tell of."""
    start, end = appended[0][0], log.end(node, txn).offset
    if start != end:
        raise Corrupt(
            f"{node.path}: the log ends at {end}, but its last commit begins at {start}; "
            "restore a backup"
        )
    for offset, value in appended:
        log.append_value(node, txn, offset, 0, value)
    stop = log.end(node, txn).offset
    table_of, batch = log.parse(node, *log.gather(node, txn, start, stop))
    operations = zip(table_of.tolist(), batch.keys.to_list(), batch.rows.to_list(), strict=True)
    for table, key, row in operations:
        full = table.to_bytes(PREFIX, "big") + (key or b"")
        if row is None:
            txn.delete(full, db=node.dbs["rows"])
        else:
            sums.put(node, txn, "rows", full, row)
