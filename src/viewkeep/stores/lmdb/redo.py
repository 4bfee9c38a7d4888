"""Redo records: a write over several nodes is whole, though LMDB commits one node at a time.

Law: once the lowest node of a write has committed, the write happens on all its nodes, whatever
crashes; before that, on none.

The transaction of the lowest node also stores what the other nodes have yet to commit, as bytes:
rows, log segments, and the stretch of the log that they fill. A part is pending while its node's
log ends before that stretch does. Whoever locks a node next applies its pending parts first, so no
write and no cut ever comes between the parts of a write. The record stays until the next such
write replaces it, which first makes sure that nothing of it is pending. Writers look at the
stretches of the lower nodes' records, which are short, and read a part only if it is pending.

A writer that is killed in the commit of the lowest node, when it has written the last page, has
decided its write; but LMDB shows readers of that node the commit before until somebody begins to
write there, which makes up for it. So the writer first *marks* the other nodes' locks. Who finds
the mark begins to write on all lower nodes before it believes their records.

    info   "redo"               -> (node u32 · start u64 · stop u64)*
           "redo" · node u32    -> the part of that node
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from viewkeep.errors import Corrupt
from viewkeep.stores.lmdb import log, sums
from viewkeep.stores.lmdb.environment import Environment, Transaction, translated
from viewkeep.stores.lmdb.forks import Inherited
from viewkeep.stores.lmdb.last_commit import make_durable
from viewkeep.stores.lmdb.locks import WriteLock

_KEY = b"redo"
_STRETCH = struct.Struct("<IQQ")  # node, start, stop
_PART = struct.Struct("<III")  # numbers of puts, deletes and segments
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class NodeWrite:
    """What one write does on one node: its log grows from offset `start` to `stop`.

    Rows and segments are as they are stored, with their checksums.
    """

    start: int
    stop: int
    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    segments: Sequence[tuple[int, int, bytes]] = field(repr=False)  # offset, operations, bytes


def apply_part(node: Environment, txn: Transaction, part: NodeWrite) -> None:
    """Store a part's rows and append its segments."""
    store_rows(node, txn, part)
    for offset, count, segment in part.segments:
        log.append_value(node, txn, offset, count, segment)


def store_rows(node: Environment, txn: Transaction, part: NodeWrite) -> None:
    """Put and delete the rows of a part."""
    rows = node.dbs["rows"]
    with txn.cursor(db=rows) as cursor:
        cursor.putmulti(part.puts)
    for key in part.deletes:
        txn.delete(key, db=rows)


def save(
    nodes: Sequence[Environment], first: int, txn: Transaction, parts: Mapping[int, NodeWrite]
) -> None:
    """Store the parts of the other nodes with the lowest node's own."""
    node = nodes[first]
    for index in _stretches(node, txn):
        # Its part of the write before is committed; after this one nothing else has it.
        make_durable(nodes[index], nodes[index].last_transaction)
        if index not in parts:
            txn.delete(_part_key(index), db=node.dbs["info"])
    stretches = [_STRETCH.pack(index, part.start, part.stop) for index, part in parts.items()]
    sums.put(node, txn, "info", _KEY, b"".join(stretches))
    for index, part in parts.items():
        sums.put(node, txn, "info", _part_key(index), _encode(part))


class Unfinished(Exception):
    """A writer over several nodes died, and `complete` must be called with no lock held."""


def mark(nodes: Iterable[Environment]) -> None:
    """A write over these nodes and a lower one is about to be decided. Their locks are held."""
    for node in nodes:
        _lock(node).mark()


def unmark(nodes: Iterable[Environment]) -> None:
    """That write is committed on all of its nodes."""
    for node in nodes:
        _lock(node).unmark()


def is_marked(nodes: Iterable[Environment]) -> bool:
    """Whether a writer died that has marked one of these nodes. Their locks are held."""
    return any(_lock(node).is_marked for node in nodes)


def finish(nodes: Sequence[Environment], index: int, txn: Transaction) -> bool:
    """Apply what is pending for a node in its write transaction; whether anything was."""
    if index and is_marked([nodes[index]]):
        raise Unfinished
    return _apply_pending(nodes, index, txn)


def _apply_pending(nodes: Sequence[Environment], index: int, txn: Transaction) -> bool:
    node, has_applied = nodes[index], False
    # Of two parts that are pending, the later one was made on top of the earlier one.
    for (start, stop), lower in sorted(_recorded(nodes, index)):
        end = log.end(node, txn).offset
        if end >= stop:
            continue
        part = _read(nodes[lower], index)
        # A part that is applied now is replaced only by whoever holds this node's lock.
        if end != start or part is None or part.stop != stop:
            raise Corrupt(
                f"{node.path}: the log ends at {end}, but an unfinished write begins at "
                f"{start}; restore a backup"
            )
        apply_part(node, txn, part)
        has_applied = True
    return has_applied


def complete(nodes: Sequence[Environment]) -> None:
    """Finish every write that a crash has left half committed. Takes locks in ascending order."""
    for index, node in enumerate(nodes):
        is_unsure = index > 0 and is_marked([node])  # or its writer is at it now
        if is_unsure or _is_pending(nodes, index):
            with translated, ExitStack() as stack:
                for lower in nodes[:index] if is_unsure else ():
                    stack.enter_context(_lock(lower))
                    stack.callback(lower.begin(write=True).abort)
                    lower.env.sync(True)  # what was decided there survives, so it may go on here
                with node.writing() as txn:
                    _apply_pending(nodes, index, txn)
                if is_unsure:
                    unmark([node])  # nobody else can have set it: the lower locks are held


def any_pending(nodes: Sequence[Environment]) -> bool:
    """Whether some write is half committed, by a writer that died or is at it now."""
    return any(_is_pending(nodes, index) for index in range(1, len(nodes)))


def _lock(node: Environment) -> WriteLock:
    lock = node.lock
    if isinstance(lock, Inherited):
        lock.__enter__()
    return lock


def _is_pending(nodes: Sequence[Environment], index: int) -> bool:
    stops = [stop for (_, stop), _ in _recorded(nodes, index)]
    if not stops:
        return False
    with nodes[index].reading() as txn:
        return log.end(nodes[index], txn).offset < max(stops)


def _recorded(nodes: Sequence[Environment], index: int) -> list[tuple[tuple[int, int], int]]:
    """The stretches that the lower nodes have recorded for a node, each with who has it."""
    found = []
    for lower in range(index):
        with nodes[lower].reading() as txn:
            stretch = _stretches(nodes[lower], txn).get(index)
        if stretch is not None:
            found.append((stretch, lower))
    return found


def _stretches(node: Environment, txn: Transaction) -> dict[int, tuple[int, int]]:
    """The stretch of each other node's log that the record of this one fills."""
    record = sums.get(node, txn, "info", _KEY) or b""
    return {index: (start, stop) for index, start, stop in _STRETCH.iter_unpack(record)}


def _read(node: Environment, wanted: int) -> NodeWrite | None:
    """The part of one node in the record that another one holds."""
    with node.reading() as txn:
        stretch = _stretches(node, txn).get(wanted)
        record = sums.get(node, txn, "info", _part_key(wanted))
    return None if record is None or stretch is None else _decode(record, *stretch)


def _part_key(index: int) -> bytes:
    return _KEY + index.to_bytes(4, "big")


def _encode(part: NodeWrite) -> bytes:
    pieces = [_PART.pack(len(part.puts), len(part.deletes), len(part.segments))]

    def add(value: bytes) -> None:
        pieces.append(_LENGTH.pack(len(value)))
        pieces.append(value)

    for key, row in part.puts:
        add(key)
        add(row)
    for key in part.deletes:
        add(key)
    for offset, count, segment in part.segments:
        pieces.append(struct.pack("<QI", offset, count))
        add(segment)
    return b"".join(pieces)


def _decode(record: bytes, start: int, stop: int) -> NodeWrite:
    puts, deletes, segments = _PART.unpack_from(record)
    place = _PART.size

    def take() -> bytes:
        nonlocal place
        (length,) = _LENGTH.unpack_from(record, place)
        place += _LENGTH.size + length
        return record[place - length : place]

    put_rows = [(take(), take()) for _ in range(puts)]
    deleted = [take() for _ in range(deletes)]
    logged = []
    for _ in range(segments):
        offset, count = struct.unpack_from("<QI", record, place)
        place += 12
        logged.append((offset, count, take()))
    return NodeWrite(start, stop, put_rows, deleted, logged)
