"""Base tables: tables of HBase that anyone may write, as their mappings read them.

Law: HBase is atomic in one row, so a write of several rows is not whole, and conditions are looked
at before the write and not with it. Nothing here removes a table or a row that viewkeep was not
asked to remove: dropping a table of SQL leaves that of HBase.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from threading import Lock

from viewkeep.cells import CellOperation
from viewkeep.codec.patterns import KeyPattern
from viewkeep.errors import Conflict, DuplicateKey, InvalidRow, StoreError
from viewkeep.stores.contract import (
    ABSENT,
    CellChunk,
    Chunk,
    Cut,
    Kind,
    Meta,
    NamedTable,
    Tables,
    TableWrite,
)
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.log import HbaseLog
from viewkeep.stores.hbase.log_table import RowChange, WalCell
from viewkeep.stores.hbase.mapping import TableMapping
from viewkeep.stores.hbase.unreadable import UnreadableCounts
from viewkeep.stores.hbase.wire import (
    Cell,
    Column,
    Delete,
    Deletion,
    Family,
    Mutation,
    Put,
    Row,
)

_PAGE = 5_000  # rows of one call of a scan
_SECONDS = 30.0  # for a write of ours to come by the log
_ALL_VERSIONS = 2**31 - 1
_RAW = {b"_raw_": b"\xff"}  # scans that say so give deletions too, and what these hide
_ADOPTED = "hbase/adopted/"  # meta records: tables of HBase by the numbers of those over them
_LOGGED = 1  # the replication scope of a family whose cells the log has


class Mappings:
    """The tables of one database, by their numbers and by those of HBase.

    Law: a number means one table for good, and what was learned is not forgotten: whoever loads an
    older plan, which lacks some tables, takes none away from those that run a newer one.
    """

    def __init__(self) -> None:
        self._by_number: dict[int, TableMapping] = {}
        self._by_table: dict[str, list[TableMapping]] = {}
        self._lock = Lock()

    def learn(self, shapes: Iterable[NamedTable]) -> None:
        with self._lock:
            for shape in shapes:
                if shape.number not in self._by_number:
                    mapping = self._by_number[shape.number] = TableMapping(shape)
                    known = self._by_table.get(mapping.table, [])
                    self._by_table[mapping.table] = [*known, mapping]

    def __getitem__(self, number: int) -> TableMapping:
        try:
            return self._by_number[number]
        except KeyError:
            raise StoreError(f"there is no table with number {number}") from None

    def __iter__(self) -> Iterator[TableMapping]:
        return iter(list(self._by_number.values()))

    def of(self, table: str) -> Sequence[TableMapping]:
        """The tables of SQL over one of HBase."""
        return self._by_table.get(table, ())

    def translate(
        self, change: RowChange, tables: Container[int] | None = None
    ) -> Iterator[CellOperation]:
        """What a change in HBase's log says to each table over it, or to those of some numbers."""
        for mapping in self.of(change.table):
            if tables is None or mapping.number in tables:
                yield from mapping.operations(change.row, change.cells, change.sequence)


class HbaseTables(Tables):
    """The tables that are mapped."""

    parts = 1  # the log does not tell in which part of a table its rows are

    def __init__(
        self,
        connection: HbaseConnection,
        namespace: str,
        log: HbaseLog,
        mappings: Mappings,
        unreadable: UnreadableCounts,
        meta: Meta,
    ):
        self._connection, self._namespace, self._meta = connection, namespace, meta
        self._dropped: set[int] = set()
        self._log, self._mappings, self._unreadable = log, mappings, unreadable
        self._lock, self._newest = Lock(), 0

    def adopt(self, shape: NamedTable) -> None:
        """Make the table of HBase if it is not there, and have its families logged."""
        mapping = TableMapping(located(shape, self._namespace))
        self._note(shape.number, mapping.table)
        self._log.add_table(mapping.table)
        wanted = [name.decode() for name in mapping.families]
        families = [Family(name.encode(), versions=1, scope=_LOGGED) for name in wanted]
        if self._connection.create_table(mapping.table, families):
            return
        known = {f.name: f for f in self._connection.describe(mapping.table).families or ()}
        for name in mapping.families:
            family = known.get(name)
            if family is None:
                have = ", ".join(sorted(one.decode() for one in known))
                raise StoreError(
                    f"table {mapping.table} of HBase has no family {name.decode()}; it has {have}"
                )
            if family.scope != _LOGGED:
                family.scope = _LOGGED
                self._connection.change_family(mapping.table, family)

    def write(self, writes: Sequence[TableWrite]) -> Cut:
        before, written = self._log.head(), set[tuple[str, bytes, int]]()
        for write in writes:
            at, mapping = self._moment(), self._mappings[write.table]
            rows = write.rows if write.rows is not None else [None] * len(write.keys)
            there = self._checked(mapping, write)
            whole: list[Put] = []
            gone: list[Delete] = []
            for key, row, old in zip(write.keys, rows, there, strict=True):
                if write.existing_only and old is None:
                    continue
                row_key, puts, deletes = self._change(mapping, write, key, row, at)
                written.add((mapping.table, row_key, at))
                if puts and deletes:
                    self._connection.mutate(
                        mapping.table,
                        row_key,
                        [
                            Mutation(put=Put(row_key, puts)),
                            Mutation(deletion=Delete(row_key, deletes, kind=Deletion.CELLS)),
                        ],
                    )
                elif puts:
                    whole.append(Put(row_key, puts))
                else:
                    gone.append(Delete(row_key, deletes, kind=Deletion.CELLS))
            self._connection.put(mapping.table, whole)
            self._connection.delete(mapping.table, gone)
        return self._log.after_write(before, written, _SECONDS)

    def get(self, table: int, keys: Sequence[bytes], at: Cut | None = None) -> list[bytes | None]:
        _refuse_past(at)
        mapping = self._mappings[table]
        wanted = [mapping.row_key(mapping.key_codec.decode_one(key)) for key in keys]
        rows = self._connection.get_many(mapping.table, wanted, _columns(mapping))
        made = [mapping.row_of(row.key, row.cells) if row.key else None for row in rows]
        return [None if one is None else one[1] for one in made]

    def scan(
        self,
        part: int,
        table: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int,
        at: Cut | None = None,
        reverse: bool = False,
        only: KeyPattern | None = None,
    ) -> Chunk:
        # The order of row keys is seldom that of their columns, so all of them are looked at.
        _refuse_past(at)
        mapping = self._mappings[table]
        found = (
            pair
            for row in self._rows(mapping)
            if (pair := mapping.row_of(row.key or b"", row.cells)) is not None
            and pair[0] >= start
            and (stop is None or pair[0] < stop)
            and (only is None or only.matches(pair[0]))
        )
        pairs = (heapq.nlargest if reverse else heapq.nsmallest)(limit + 1, found)
        shown = pairs[:limit]
        return Chunk([key for key, _ in shown], [row for _, row in shown], len(pairs) > limit)

    def scan_cells(self, part: int, table: int, *, start: bytes, limit: int) -> CellChunk:
        mapping = self._mappings[table]
        rows = self._connection.scan(
            mapping.table,
            start,
            None,
            _columns(mapping, families=True),
            limit=limit,
            versions=_ALL_VERSIONS,
            attributes=_RAW,
        )
        operations: list[CellOperation] = []
        for row in rows:
            cells = [
                WalCell(cell.type or 0, cell.timestamp, cell.family, cell.qualifier, cell.value)
                for cell in reversed(row.cells)  # newest first, so the first of a tie is taken last
            ]
            operations += mapping.operations(row.key or b"", cells, 0)
        self._unreadable.tell()
        last = rows[-1].key if rows else None
        return CellChunk(operations, last, len(rows) == limit)

    def drop(self, table: int, budget: int = 10_000) -> bool:
        """Log the table of HBase no longer, unless another one of SQL is over it.

        The rows are their owners'.
        """
        self._unreadable.forget(table)
        record = f"{_ADOPTED}{table}"
        if (raw := self._meta.get(record)) is not None:
            name = raw.decode()
            # What is adopted after this look is listed anew, and then nothing is taken away.
            listed = self._log.listed(name)
            adopted = dict(self._meta.scan(_ADOPTED))
            known = {mapping.number for mapping in self._mappings.of(name)} - {table}
            others = [other for other, of in adopted.items() if of == raw and other != record]
            if listed is not None and not others and known <= self._dropped:
                self._log.drop_table(name, listed)
            self._meta.cas(record, raw, None)
        self._dropped.add(table)
        return False

    def _note(self, number: int, name: str) -> None:
        """Note which table of HBase one of SQL is over; a number that was not used may be again."""
        record = f"{_ADOPTED}{number}"
        while (raw := self._meta.get(record)) != name.encode():
            self._meta.cas(record, raw, name.encode())

    def check_counts(self, part: int) -> None:
        return  # HBase checks its files

    def _rows(self, mapping: TableMapping) -> Iterator[Row]:
        start, more = b"", True
        while more:
            rows = self._connection.scan(mapping.table, start, None, _columns(mapping), limit=_PAGE)
            yield from rows
            more = len(rows) == _PAGE
            if more:
                start = (rows[-1].key or b"") + b"\0"

    def _checked(self, mapping: TableMapping, write: TableWrite) -> list[bytes | None]:
        """The rows that are there, where the write asks; refused if they are not as expected."""
        if write.expect is None and not write.existing_only:
            return [None] * len(write.keys)
        there = self.get(write.table, write.keys)
        if write.expect == ABSENT:
            if any(row is not None for row in there) or len(set(write.keys)) < len(write.keys):
                raise DuplicateKey(f"a row of {mapping.table} is there already")
        elif write.expect is not None and list(write.expect) != there:
            raise Conflict(f"a row of {mapping.table} is not as expected")
        return there

    def _change(
        self, mapping: TableMapping, write: TableWrite, key: bytes, row: bytes | None, at: int
    ) -> tuple[bytes, list[Cell], list[Column]]:
        """The row key, the cells to put and the columns to delete."""
        if write.kind == Kind.DELETE or row is None:
            row_key = mapping.row_key(mapping.key_codec.decode_one(key))
            return row_key, [], [Column(f, q, at) for f, q in mapping.columns]
        row_key, cells = mapping.cells_of(row)
        chosen = {
            column: value
            for column, value in cells.items()
            if write.columns is None or mapping.columns[column][0] in write.columns
        }
        puts = [Cell(f, q, value, at) for (f, q), value in chosen.items() if value is not None]
        gone = [Column(f, q, at) for (f, q), value in chosen.items() if value is None]
        if not puts and write.columns is None:
            raise InvalidRow("a row of HBase needs a column that is not NULL besides its key")
        return row_key, puts, gone

    def _moment(self) -> int:
        """The timestamp of a write: in one process, later writes have larger ones."""
        with self._lock:
            self._newest = max(self._newest + 1, time.time_ns() // 1_000_000)
            return self._newest


def located(shape: NamedTable, namespace: str) -> NamedTable:
    """A table without a place of its own lies in the database's namespace."""
    options = {name: value for name, value in shape.options if name != "using"}
    options.setdefault("table", f"{namespace}:{shape.name}")
    return NamedTable(shape.name, shape.number, shape.schema, tuple(sorted(options.items())))


def _columns(mapping: TableMapping, families: bool = False) -> list[Column]:
    """What is read of a row; deletions of a family are found with the family alone."""
    if families:
        return [Column(name) for name in mapping.families]
    return [Column(family, qualifier) for family, qualifier in mapping.columns]


def _refuse_past(at: object) -> None:
    if at is not None:
        raise StoreError("HBase has no before-images, so base tables have no past")
