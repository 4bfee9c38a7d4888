"""Writing base rows: one call's operations over all nodes, checked whole, then logged and stored.

Law: base row and log record of an operation are one transaction; all operations of one call share
one moment; nothing is stored unless every row and every expectation holds on every node.

The nodes' write transactions are taken in ascending order, so two calls never wait for each other
in a circle, and a reader that holds all of them sees no call half done. A call over several nodes
leaves a redo record with the lowest one, so that a crash between two commits loses nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from zlib import crc32

import lmdb

from viewkeep import claims
from viewkeep.codec.key_order import hash_keys
from viewkeep.codec.keys import MAX_KEY
from viewkeep.deferred import np
from viewkeep.errors import Conflict, DuplicateKey, InvalidRow, OutcomeUnknown, StoreError
from viewkeep.stores.contract import ABSENT, Kind, TableWrite
from viewkeep.stores.lmdb import log, redo, segments, sums
from viewkeep.stores.lmdb.environment import Environment, Transaction, translate, translated
from viewkeep.stores.lmdb.group import commit_with_others

MAX_ROW = 64 << 20


@dataclass
class _Staged:
    """What one call will do on one node: rows to store, and operations to log."""

    txn: Transaction
    # Rows as the next operation meets them.
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    changed: set[bytes] = field(default_factory=set)
    operations: list[segments.Operations] = field(default_factory=list)


def write(nodes: Sequence[Environment], writes: Sequence[TableWrite]) -> dict[int, int]:
    """Apply and log these operations; the log end of each node touched."""
    for table_write in writes:
        _check(table_write)
    if len(writes) == 1 and len(writes[0].keys) == 1:
        return _write_on_one(nodes, crc32(writes[0].keys[0]) % len(nodes), writes)
    parts = _by_node(writes, len(nodes))
    if len(parts) == 1:
        ((index, part),) = parts.items()
        return _write_on_one(nodes, index, part)
    while (ends := _write_parts(nodes, parts)) is None:
        redo.complete(nodes)
    return ends


def _write_parts(
    nodes: Sequence[Environment], parts: Mapping[int, Sequence[TableWrite]]
) -> dict[int, int] | None:
    """Write on all nodes or none; None, with nothing done, if an earlier write is unfinished."""
    with translated, ExitStack() as stack:
        staged: dict[int, _Staged] = {}
        for index in sorted(parts):
            stack.enter_context(nodes[index].lock)
            transaction = nodes[index].begin(write=True)
            stack.callback(transaction.abort)  # does nothing after a commit
            nodes[index].leave_unrecorded(transaction.id())
            staged[index] = _Staged(transaction)
        if redo.is_marked(nodes[index] for index in staged if index) or redo.any_pending(nodes):
            return None
        for index, stage in staged.items():
            _load(nodes[index], stage, parts[index])
            for part in parts[index]:
                _stage(stage, part)
        ends = {index: log.end(nodes[index], stage.txn) for index, stage in staged.items()}
        moment = max([time.time_ns(), *(end.moment + 1 for end in ends.values())])
        prepared = {index: _prepare(stage, ends[index], moment) for index, stage in staged.items()}
        for index, prepared_part in prepared.items():
            redo.apply_part(nodes[index], staged[index].txn, prepared_part)
        _commit(nodes, staged, prepared)
        return {index: prepared_part.stop for index, prepared_part in prepared.items()}


def _commit(
    nodes: Sequence[Environment],
    staged: Mapping[int, _Staged],
    prepared: Mapping[int, redo.NodeWrite],
) -> None:
    """Commit node after node; the lowest one's commit decides for all."""
    if not staged:
        return
    first, *others = staged
    changed = {index: prepared[index] for index in others if prepared[index].segments}
    if changed:
        redo.save(nodes, first, staged[first].txn, changed)
    claims.begin()
    marked = [nodes[index] for index in changed]
    redo.mark(marked)
    commit(staged[first].txn)
    _sync(nodes[first])
    for index in changed:
        try:
            commit(staged[index].txn)
        except lmdb.Error as error:
            raise OutcomeUnknown(
                f"the write is stored, but not yet on node {index} ({translate(error)}); it will "
                "be completed by the next write or epoch that succeeds there: do not repeat it"
            ) from error
        _sync(nodes[index])
    redo.unmark(marked)


def commit(txn: Transaction) -> None:
    """One node's commit: where fault tests cut a write."""
    txn.commit()


def _sync(node: Environment) -> None:
    try:
        node.sync()
    except StoreError as error:
        raise OutcomeUnknown(
            f"whether the write survives a power loss is not known ({error}); read the rows before "
            "you write again"
        ) from error


def _write_on_one(
    nodes: Sequence[Environment], index: int, writes: Sequence[TableWrite]
) -> dict[int, int]:
    """Write to one node, in one commit with what other threads write there meanwhile."""
    node = nodes[index]
    rows = sum(len(table_write.keys) for table_write in writes)

    def finish(txn: Transaction) -> bool:
        return redo.finish(nodes, index, txn)

    def work(appending: log.Appending) -> int:
        if rows == 1:
            (table_write,) = (table_write for table_write in writes if table_write.keys)
            return _write_one(appending, table_write)
        return _write_many(appending, writes)

    while True:
        try:
            return {index: commit_with_others(node, rows, finish, work)}
        except redo.Unfinished:
            redo.complete(nodes)


def _write_many(appending: log.Appending, writes: Sequence[TableWrite]) -> int:
    """Apply and log many operations of one node; the end of its log."""
    node, end = appending.node, appending.end
    staged = _Staged(appending.txn)
    _load(node, staged, writes)
    for table_write in writes:
        _stage(staged, table_write)
    moment = max(time.time_ns(), end.moment + 1)
    prepared = _prepare(staged, end, moment)
    redo.store_rows(node, appending.txn, prepared)
    for _, count, segment in prepared.segments:
        appending.append(count, moment, segment)
    claims.begin()
    return prepared.stop


def _write_one(appending: log.Appending, table_write: TableWrite) -> int:
    """The common case of one row, without the bookkeeping of batches."""
    node, txn, end = appending.node, appending.txn, appending.end
    key = table_write.keys[0]
    full = table_write.table.to_bytes(4, "big") + key
    before = sums.get(node, txn, "rows", full)
    _expect(table_write, 0, before)
    if before is None and (table_write.existing_only or table_write.kind == Kind.DELETE):
        return end.offset
    after: bytes | None = None
    if table_write.rows is None:
        txn.delete(full, db=node.dbs["rows"])
    else:
        after = table_write.rows[0]
        if table_write.columns is not None:
            old = table_write.codec.blank if before is None else before
            (after,) = table_write.codec.merge([old], [after], table_write.columns)
            _check_row(after)
        sums.put(node, txn, "rows", full, after)
    moment = max(time.time_ns(), end.moment + 1)
    segment = segments.pack_one(
        table_write.table,
        table_write.kind,
        key,
        after,
        before,
        moment,
        end.log_bytes,
        end.offset,
    )
    stop = appending.append(1, moment, segment)
    claims.begin()
    return stop


def _check(table_write: TableWrite) -> None:
    """Refuse operations that no store can take, before any lock is held."""
    keys, rows = table_write.keys, table_write.rows
    if (rows is None) != (table_write.kind == Kind.DELETE):
        raise InvalidRow("a PUT needs rows, and a DELETE has none")
    if rows is not None and len(rows) != len(keys):
        raise InvalidRow(f"{len(keys)} keys but {len(rows)} rows")
    expect = table_write.expect
    if expect is not None and expect != ABSENT and len(expect) != len(keys):
        raise InvalidRow(f"{len(keys)} keys but {len(expect)} expected rows")
    if keys and max(map(len, keys)) > MAX_KEY:
        raise InvalidRow(f"a key is longer than {MAX_KEY} bytes; pass it through codec.bounded")
    if rows and max(map(len, rows)) > MAX_ROW:
        _check_row(max(rows, key=len))


def _check_row(row: bytes) -> None:
    if len(row) > MAX_ROW:
        raise InvalidRow(f"a row of {len(row)} bytes is larger than {MAX_ROW >> 20} MiB")


def _by_node(writes: Sequence[TableWrite], nodes: int) -> dict[int, list[TableWrite]]:
    """The part of each write that belongs to each node."""
    parts: dict[int, list[TableWrite]] = {}
    for table_write in writes:
        if not table_write.keys:
            continue
        node_of = hash_keys(table_write.keys) % np.uint32(nodes)
        for index in np.unique(node_of).tolist():
            chosen = np.flatnonzero(node_of == index).tolist()
            part = table_write if len(chosen) == len(node_of) else _take(table_write, chosen)
            parts.setdefault(index, []).append(part)
    return parts


def _take(table_write: TableWrite, chosen: Sequence[int]) -> TableWrite:
    rows, expect = table_write.rows, table_write.expect
    return TableWrite(
        table_write.table,
        table_write.codec,
        table_write.kind,
        [table_write.keys[i] for i in chosen],
        None if rows is None else [rows[i] for i in chosen],
        table_write.columns,
        table_write.existing_only,
        expect if expect is None or expect == ABSENT else [expect[i] for i in chosen],
    )


def _full_keys(part: TableWrite) -> list[bytes]:
    prefix = part.table.to_bytes(4, "big")
    return [prefix + key for key in part.keys]


def _load(node: Environment, stage: _Staged, parts: Sequence[TableWrite]) -> None:
    """Read the current rows of all keys, in key order, which LMDB answers fastest."""
    wanted = {key for part in parts for key in _full_keys(part)}
    with stage.txn.cursor(db=node.dbs["rows"]) as cursor:
        stage.rows.update(sums.present(node, cursor, sorted(wanted)))


def _stage(stage: _Staged, part: TableWrite) -> None:
    """Work out the rows after and before each operation of one write on one node."""
    made = segments.Operations(part.table, [], [], [], [])
    if part.columns is None:
        _apply(stage, part, made)
    else:
        for run in _distinct_runs(part):
            _apply(stage, _merged(stage, run), made)
    if made.keys:
        stage.operations.append(made)


def _apply(stage: _Staged, part: TableWrite, made: segments.Operations) -> None:
    """Operations on whole rows: each meets what the one before it left."""
    rows: Sequence[bytes | None] = part.rows or [None] * len(part.keys)
    kind, must_exist = int(part.kind), part.existing_only or part.kind == Kind.DELETE
    for index, (full, key, row) in enumerate(zip(_full_keys(part), part.keys, rows, strict=True)):
        before = stage.rows.get(full)
        if part.expect is not None:
            _expect(part, index, before)
        if must_exist and before is None:
            continue
        stage.rows[full] = row
        stage.changed.add(full)
        made.kinds.append(kind)
        made.keys.append(key)
        made.rows.append(row)
        made.befores.append(before)


def _distinct_runs(part: TableWrite) -> Iterator[TableWrite]:
    """A write cut wherever a key comes again."""
    start, seen = 0, set[bytes]()
    for index, key in enumerate(part.keys):
        if key in seen:
            yield _take(part, range(start, index))
            start, seen = index, set()
        seen.add(key)
    yield _take(part, range(start, len(part.keys))) if start else part


def _merged(stage: _Staged, part: TableWrite) -> TableWrite:
    """A partial put of distinct keys as a put of whole rows, of those too that may not exist."""
    assert part.rows is not None
    assert part.columns is not None
    blank = part.codec.blank
    olds = [blank if (old := stage.rows.get(full)) is None else old for full in _full_keys(part)]
    rows = part.codec.merge(olds, part.rows, part.columns)
    _check_row(max(rows, key=len))
    return replace(part, rows=rows, columns=None)


def _expect(part: TableWrite, index: int, before: bytes | None) -> None:
    if part.expect is None:
        return
    if part.expect == ABSENT:
        if before is not None:
            raise DuplicateKey(f"a row with this key exists: {part.keys[index][:40]!r}")
    elif part.expect[index] != before:
        raise Conflict(f"a row is not as the writer expected it: {part.keys[index][:40]!r}")


def _prepare(stage: _Staged, end: log.Position, moment: int) -> redo.NodeWrite:
    """The staged rows and log segments as bytes, which follow on this end of the node's log."""
    changed = sorted(stage.changed)
    stored = [(key, row) for key in changed if (row := stage.rows[key]) is not None]
    keys, rows = [key for key, _ in stored], [row for _, row in stored]
    offset, log_bytes = end.offset, end.log_bytes
    logged = []
    for operations in stage.operations:
        for count, segment in segments.pack(operations, moment, log_bytes, offset):
            logged.append((offset, count, segment))
            offset += count
            log_bytes += len(segment)
    return redo.NodeWrite(
        start=end.offset,
        stop=offset,
        puts=list(zip(keys, sums.sealed_all(keys, rows), strict=True)),
        deletes=[key for key in changed if stage.rows[key] is None],
        segments=logged,
    )
