"""The log of an HBase database: the batches that its region servers append to the log table.

Law: what lies below a head is never written again, so a split reads the same whenever it is read.
A cut has of each region's changes the first so many: heads move in the order in which a serial peer
delivers, and smaller cuts follow the stamps (`log_table`). A change may be in two logs, whose
copies DELTA takes for one.
"""

from __future__ import annotations

import heapq
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from viewkeep.cells import CellOperation
from viewkeep.errors import EpochGone, OutcomeUnknown, StoreError
from viewkeep.stores.contract import Cut, Log, LogBatch, LogSplit
from viewkeep.stores.contract.waiting import Looks
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.log_table import (
    BYTES,
    ENDED,
    FAMILY,
    HEADS,
    PREFIXES,
    SUMMARY,
    Batch,
    Heads,
    RowChange,
    batch_key,
    births_of,
    kept_column,
    log_column,
    pack_ended,
    pack_number,
    read_batch,
    table_column,
)
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Family, Mutation, Put

Translate: TypeAlias = Callable[[RowChange, "frozenset[int] | None"], Iterable[CellOperation]]
Written: TypeAlias = tuple[str, bytes, int]  # a table of HBase, a row, a timestamp

IDLE = 600_000  # milliseconds without a write, by other logs' clocks, until an idle log ends
_PAGE = 256  # summaries of one call
_READ = 8 << 20  # bytes of batches of one call
_REGIONS = 4  # of the log table, to begin with


class HbaseLog(Log):
    """The log in one table.

    `translate` gives what a change says to tables of some numbers, or to all. `on_read` is called
    whenever those of a split have been read.
    """

    def __init__(
        self,
        connection: HbaseConnection,
        table: str,
        translate: Translate,
        on_read: Callable[[], None] = lambda: None,
    ):
        self._connection, self.table, self._translate = connection, table, translate
        self._on_read = on_read

    def create(self) -> None:
        """Make the table, if it is not there."""
        families = [Family(name, versions=1) for name in (FAMILY, SUMMARY, BYTES)]
        step = PREFIXES // _REGIONS
        splits = [bytes([1 + step * part]) for part in range(1, _REGIONS)]
        self._connection.create_table(self.table, families, splits)

    def heads(self) -> Heads:
        """How far all logs are, at one moment."""
        found = self._connection.get(self.table, HEADS, [Column(FAMILY)])
        return Heads.of(found.cells)

    def add_table(self, name: str) -> None:
        """Log a table of HBase from now on. Call it before the table is scanned."""
        self._put(HEADS, table_column(name), uuid.uuid4().bytes, time.time_ns())

    def listed(self, name: str) -> bytes | None:
        """What stands for a table that is logged, another thing after each `add_table`."""
        cells = self._connection.get(self.table, HEADS, [table_column(name)]).cells
        return cells[0].value if cells else None

    def drop_table(self, name: str, listed: bytes | None = None) -> None:
        """Log a table no longer; with `listed`, only if that still stands for it."""
        column = table_column(name)
        gone = Column(FAMILY, column.qualifier, time.time_ns())
        delete = Delete(HEADS, [gone], kind=Deletion.CELLS)
        if listed is None:
            self._connection.delete(self.table, [delete])
        else:
            self._connection.check_and_mutate(
                self.table, HEADS, column, listed, [Mutation(deletion=delete)]
            )

    def head(self) -> Cut:
        return self.heads().cut

    def kept(self) -> Cut:
        return self.heads().kept_cut

    def bounded_cut(self, start: Cut, stop: Cut, operations: int, size: int) -> Cut:
        positions = {log: start.position(log) for log in stop.positions}
        batches = heapq.merge(
            *(self._summaries(int(log), at, stop.position(log)) for log, at in positions.items()),
            key=lambda batch: (batch.stamp, batch.log),
        )
        taken = taken_size = 0
        watermark = start.watermark
        for batch in batches:
            is_first = not taken
            taken_size += batch.size
            if not is_first and (taken + batch.operations > operations or taken_size > size):
                break
            taken += batch.operations
            positions[str(batch.log)] = batch.stop
            watermark = max(watermark, batch.last_written * 1_000_000)
        if positions == stop.positions:
            return stop
        return replace(
            stop,
            positions=positions,
            watermark=min(watermark, stop.watermark),
            operations=start.operations + taken,
        )

    def first_after(self, cut: Cut) -> int | None:
        heads = self.heads()
        oldest: int | None = None
        for log in heads.cut.positions:
            at, head = cut.position(log), heads.logs[int(log)]
            if at >= head.position:
                continue
            for batch in self._summaries(int(log), at, head.position, page=1):
                written = batch.first_written * 1_000_000
                oldest = written if oldest is None else min(oldest, written)
                break
        return oldest

    def divide(self, split: LogSplit, operations: list[int]) -> list[LogSplit]:
        pieces, at = list[LogSplit](), split.start
        for count in operations[:-1]:
            end = min(at + count, split.stop)
            pieces.append(split._replace(start=at, stop=end, operations=end - at))
            at = end
        pieces.append(split._replace(start=at, operations=split.stop - at))
        return pieces

    def read(self, split: LogSplit, tables: frozenset[int] | None = None) -> Iterator[LogBatch]:
        raise StoreError("the log of HBase has operations on cells, not on rows")

    def cells(
        self, split: LogSplit, tables: frozenset[int] | None = None
    ) -> Iterator[CellOperation]:
        for change in self.changes(split):
            yield from self._translate(change, tables)
        self._on_read()

    def changes(self, split: LogSplit) -> Iterator[RowChange]:
        """The changes of a split, in order."""
        page, held = list[Batch](), 0
        for batch in self._summaries(int(split.log), split.start, split.stop):
            page.append(batch)
            held += batch.size
            if held >= _READ:
                yield from self._read(split, page)
                page, held = [], 0
        yield from self._read(split, page)

    def after_write(self, before: Cut, written: Collection[Written], seconds: float) -> Cut:
        """The cut of a write: where the log has it.

        `before` is a head from before the write; `written` are rows that it has put or deleted,
        each with a timestamp of its own. OutcomeUnknown if they have not come within `seconds`.
        """
        left, cut = set(written), before
        found = dict[str, int]()
        deadline, looks = time.monotonic() + seconds, Looks()
        while True:
            head = self.head()
            for split in self.splits(cut, head):
                if left and not split.is_empty:
                    self._find(split, left, found)
            cut = head
            if not left:
                births = births_of(map(int, found))
                return Cut(found, begun=head.begun, births=births)
            if (rest := deadline - time.monotonic()) <= 0:
                raise OutcomeUnknown(
                    f"the rows are written, but {self.table} lacks {len(left)} of them after "
                    f"{seconds:g} s; see whether the region servers append to it: "
                    "viewkeep hbase install --check"
                )
            looks.pause(rest)

    def truncate(self, before: Cut, budget: int = 10_000) -> bool:
        heads, more = self.heads(), False
        for name, at in before.positions.items():
            log = int(name)
            if log not in heads.logs:
                continue
            kept = heads.kept.get(log, 0)
            if kept < at and budget > 0:
                dropped, kept = self._drop(log, kept, at, budget)
                budget -= dropped
            more = more or kept < at
            head = heads.logs[log]
            if kept >= head.position and head.written + IDLE < before.watermark // 1_000_000:
                self._end(log, heads)
                heads = self.heads()
        return more

    def _drop(self, log: int, kept: int, stop: int, budget: int) -> tuple[int, int]:
        """Drop batches below a position; how many, and from where on the log is kept then.

        Whoever dies in between has dropped some of those that the next call looks for.
        """
        rows = self._connection.scan(
            self.table,
            batch_key(log, kept + 1),
            batch_key(log, stop + 1),
            [Column(SUMMARY, SUMMARY)],
            limit=budget,
        )
        batches = [Batch.of(row.key or b"", row.cells[0].value) for row in rows]
        self._connection.delete(
            self.table, [Delete(batch.key, timestamp=batch.stamp) for batch in batches]
        )
        kept = batches[-1].stop if len(batches) == budget else stop
        self._put(HEADS, kept_column(log), pack_number(kept), kept)
        return len(batches), kept

    def _end(self, log: int, heads: Heads) -> None:
        """End an idle log: if its server goes on, it finds its head gone and begins another."""
        head = heads.logs[log]
        operations, written = heads.ended
        ended = pack_ended(operations + head.position, max(written, head.written))
        now = time.time_ns()
        gone = [
            Column(FAMILY, column.qualifier, stamp)
            for column, stamp in ((log_column(log), head.stamp), (kept_column(log), head.position))
        ]
        self._connection.check_and_mutate(
            self.table,
            HEADS,
            log_column(log),
            head.bytes,
            [
                Mutation(deletion=Delete(HEADS, gone, kind=Deletion.CELLS)),
                Mutation(put=Put(HEADS, [Cell(FAMILY, ENDED, ended, now)])),
            ],
        )

    def _summaries(self, log: int, start: int, stop: int, page: int = _PAGE) -> Iterator[Batch]:
        """The batches that have positions from start to stop; EpochGone if some were truncated."""
        at = start
        while at < stop:
            # A batch's row is named after its end, so the first one past `at` has it.
            rows = self._connection.scan(
                self.table,
                batch_key(log, at + 1),
                batch_key(log + PREFIXES, 0),
                [Column(SUMMARY, SUMMARY)],
                limit=page,
            )
            for row in rows:
                assert row.key is not None
                batch = Batch.of(row.key, row.cells[0].value)
                if batch.start > at:
                    break
                if at >= stop:
                    return
                yield batch
                at = batch.stop
            else:
                if rows:
                    continue
            if at < stop:
                raise EpochGone(f"log {log} of {self.table} was truncated after position {at}")

    def _read(self, split: LogSplit, batches: list[Batch]) -> Iterator[RowChange]:
        if not batches:
            return
        rows = self._connection.scan(
            self.table,
            batches[0].key,
            batches[-1].key + b"\0",
            [Column(BYTES)],
            limit=len(batches),
        )
        found = {row.key: b"".join(cell.value for cell in row.cells) for row in rows}
        for batch in batches:
            data = found.get(batch.key)
            if data is None or len(data) != batch.size:
                raise EpochGone(f"log {batch.log} of {self.table} was truncated while it was read")
            for position, change in enumerate(read_batch(data), batch.start):
                if split.start <= position < split.stop:
                    yield change

    def _find(self, split: LogSplit, left: set[Written], found: dict[str, int]) -> None:
        """Take from `left` the rows that a split has, and note how far it has them."""
        for position, change in enumerate(self.changes(split), split.start):
            for cell in change.cells:
                written = (change.table, change.row, cell.timestamp)
                if written in left:
                    left.discard(written)
                    found[split.log] = position + 1

    def _put(self, row: bytes, column: Column, value: bytes, timestamp: int) -> None:
        assert column.qualifier is not None
        cell = Cell(column.family, column.qualifier, value, timestamp)
        self._connection.put(self.table, [Put(row, [cell])])
