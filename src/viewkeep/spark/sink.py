"""Rows from Spark put into base tables: a DataFrame all or nothing, a stream exactly once.

Law: tasks check and encode rows, and write nothing; the driver writes them by one call when all
tasks have succeeded, so one bad row, a lost task or a killed job leaves none. The rows of a batch
of a stream are written together with its number in the base table `streamed_batches`, and only if
that is still as it was, so a batch that Spark runs again changes nothing.

The rows travel to the driver, whose memory must hold them. Option `atomic` = `false` has tasks put
rows as they come instead: for loads of any size, which may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from viewkeep.access.incoming import conform
from viewkeep.access.writes import BaseTable
from viewkeep.catalog import Catalog
from viewkeep.deferred import pa, pl
from viewkeep.engine.programs import PlanVersion, newest_plan
from viewkeep.errors import Conflict, InvalidRow, UnknownName
from viewkeep.stores import borrow_store
from viewkeep.stores.contract import Store, TableWrite
from viewkeep.types import BIGINT, STRING, Column, Schema

WRITE_ROWS = 10_000  # rows of one `write` call where it is not atomic
BATCHES = "streamed_batches"
_SCHEMA = Schema((Column("query", STRING), Column("batch", BIGINT)), ("query",))


@dataclass
class CheckedRows(WriterCommitMessage):
    """What a task has for the table: rows that are encoded, or the number of those it has put."""

    rows: int
    writes: Sequence[tuple[list[bytes], list[bytes], tuple[int, ...] | None]] = ()


class TableWriter(DataSourceArrowWriter):
    """Puts the rows of a DataFrame. Columns that it lacks keep their values."""

    def __init__(self, url: str, table: str, atomic: bool):
        self._url, self._table, self._atomic = url, table, atomic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        store = borrow_store(self._url)
        table = target(newest_plan(store), self._table)
        if self._atomic:
            return checked(table, iterator)
        rows = 0
        for frame in _frames(iterator):
            for part in frame.iter_slices(WRITE_ROWS):
                store.tables.write(table.put_frame(conform(table.schema, part, table=table.name)))
                rows += part.height
        return CheckedRows(rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has succeeded: write what they have checked, by one call."""
        store = borrow_store(self._url)
        writes = _writes(target(newest_plan(store), self._table), messages)
        if writes:
            store.tables.write(writes)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed; nothing was written."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Puts the rows of each batch of a stream exactly once. `query` names the stream."""

    def __init__(self, url: str, table: str, query: str):
        self._url, self._table, self._query = url, table, query

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return checked(target(newest_plan(borrow_store(self._url)), self._table), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write the batch's rows and its number, unless they are there."""
        store = borrow_store(self._url)
        writes = _writes(target(newest_plan(store), self._table), messages)
        if not writes:
            return  # else a stream from a view of the same database would never come to rest
        batches = target(_with_batches(store), BATCHES)
        key = batches.encode_key(self._query)
        while True:
            (before,) = store.tables.get(batches.number, [key])
            if before is not None and batches.as_dict(before)["batch"] >= batchId:
                return
            (mark,) = batches.puts({"query": self._query, "batch": batchId})
            try:
                store.tables.write([replaced(mark, expect=[before]), *writes])
                return
            except Conflict:  # another run of this batch was faster
                if store.tables.get(batches.number, [key]) == [before]:
                    raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task has failed; nothing was written, and Spark runs the batch again."""


def checked(table: BaseTable, batches: Iterator[pa.RecordBatch]) -> CheckedRows:
    """The rows of a task, encoded; InvalidRow for the first that the table does not take."""
    writes, rows = [], 0
    for frame in _frames(batches):
        for write in table.put_frame(
            conform(table.schema, frame, table=table.name), first_row=rows + 1
        ):
            writes.append((list(write.keys), list(write.rows or ()), write.columns))
        rows += frame.height
    return CheckedRows(rows, writes)


def target(plan: PlanVersion, name: str) -> BaseTable:
    """The base table of this name."""
    source = plan.tables.get(name)
    if source is not None:
        return BaseTable(source)
    if name in plan.views:
        raise InvalidRow(f"{name} is a view; write into its tables")
    known = sorted({*plan.tables, *plan.views})
    raise UnknownName(f"no table or view {name}; there are {', '.join(known) or 'none'}")


def _with_batches(store: Store) -> PlanVersion:
    if BATCHES not in newest_plan(store).tables:
        Catalog(store).create_table(BATCHES, _SCHEMA, if_not_exists=True)
    return newest_plan(store)


def _frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    for batch in batches:
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        yield frame


def _writes(table: BaseTable, messages: Sequence[WriterCommitMessage | None]) -> list[TableWrite]:
    """The operations of all tasks, in the order of the tasks."""
    found = []
    for message in messages:
        if message is None:
            raise InvalidRow(f"{table.name}: a task of the write has told nothing; write again")
        assert isinstance(message, CheckedRows)
        for keys, rows, columns in message.writes:
            found.append(table.put_encoded(keys, rows, columns))
    return found
