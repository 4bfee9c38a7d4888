"""A log table in memory, and region servers that append to it as `Appender.java` does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from viewkeep.stores.hbase.log_table import BEGUN, FAMILY, HEADS, Heads, RowChange, batch_key
from viewkeep.stores.hbase.wire import Cell, Row


class MemoryTable:
    """As much of `HbaseConnection` as the log needs, for one table."""

    def __init__(self) -> None:
        self.rows: dict[bytes, dict[tuple[bytes, bytes], tuple[int, bytes]]] = {}
        self.scans = 0

    def create_table(self, table: str, families: Any, splits: Any = ()) -> bool:
        return True

    def get(self, table: str, row: bytes, columns: Any = None) -> Row:
        return self._row(row, columns)

    def scan(self, table: str, start: bytes, stop: bytes, columns: Any, *, limit: int) -> list[Row]:
        self.scans += 1
        keys = [key for key in sorted(self.rows) if start <= key < stop and self.rows[key]]
        found = [self._row(key, columns) for key in keys]
        return [row for row in found if row.cells][:limit]

    def put(self, table: str, puts: Any) -> None:
        for put in puts:
            for cell in put.cells:
                self.set(put.row, cell.family, cell.qualifier, cell.value, cell.timestamp)

    def delete(self, table: str, deletes: Any) -> None:
        for delete in deletes:
            wanted = delete.columns
            for name, (at, _) in list(self.rows.get(delete.row, {}).items()):
                if wanted is None:
                    through = delete.timestamp
                else:
                    stamps = [c.timestamp for c in wanted if (c.family, c.qualifier) == name]
                    through = max(stamps, default=-1)
                if at <= through:
                    del self.rows[delete.row][name]

    def check_and_mutate(
        self, table: str, row: bytes, column: Any, old: bytes | None, mutations: Any
    ) -> bool:
        known = self.rows.get(row, {}).get((column.family, column.qualifier))
        if (known[1] if known else None) != old:
            return False
        for mutation in mutations:
            if mutation.put is not None:
                self.put(table, [mutation.put])
            if mutation.deletion is not None:
                self.delete(table, [mutation.deletion])
        return True

    def set(self, row: bytes, family: bytes, qualifier: bytes, value: bytes, at: int) -> None:
        cells = self.rows.setdefault(row, {})
        if (family, qualifier) not in cells or cells[family, qualifier][0] <= at:
            cells[family, qualifier] = (at, value)

    def _row(self, key: bytes, columns: Any) -> Row:
        found = Row()
        found.key = key
        found.cells = [
            Cell(family, qualifier, value, at)
            for (family, qualifier), (at, value) in sorted(self.rows.get(key, {}).items())
            if columns is None
            or any(c.family == family and c.qualifier in (None, qualifier) for c in columns)
        ]
        return found


class Lost(Exception):
    """An appender did not get an answer."""


@dataclass
class Appender:
    """One region server's. `fail` says where the next call ends without an answer."""

    table: MemoryTable
    name: str
    per_batch: int = 3
    clock: int = 0
    log: int = 0
    head: bytes = b""
    position: int = 0
    size: int = 0
    begun: list[int] = field(default_factory=list)

    def append(self, changes: Sequence[RowChange], fail: str = "") -> None:
        heads = self._heads()
        ours = [change for change in changes if change.table in heads.tables]
        if not ours:
            return
        if not self.log:
            self._begin(heads)
        log, self.log = self.log, 0  # left unless all goes well
        stamp = max((head.stamp for head in heads.logs.values()), default=0) + 1
        end, size = self.position, self.size
        for at in range(0, len(ours), self.per_batch):
            some = ours[at : at + self.per_batch]
            data = pack_batch(some)
            end, size = end + len(some), size + len(data)
            times = [change.written for change in some]
            summary = struct.pack(">qqqqq", stamp, min(times), max(times), len(some), len(data))
            self.table.set(batch_key(log, end), b"s", b"s", summary, stamp)
            self.table.set(batch_key(log, end), b"b", b"\0", data, stamp)
            if fail == "rows":
                raise Lost
        self.clock = max([self.clock, *(change.written for change in ours)])
        head = struct.pack(">qqqq", end, stamp, self.clock, size) + self.name.encode()
        if self._value(b"log:%d" % log) != self.head:
            raise Lost
        self.table.set(HEADS, FAMILY, b"log:%d" % log, head, stamp)
        if fail == "answer":
            raise Lost
        self.log, self.head, self.position, self.size = log, head, end, size

    def _begin(self, heads: Heads) -> None:
        number = heads.begun + 1
        self.table.set(HEADS, FAMILY, BEGUN, struct.pack(">q", number), number)
        stamp = max((head.stamp for head in heads.logs.values()), default=0)
        self.clock = max((head.written for head in heads.logs.values()), default=0)
        head = struct.pack(">qqqq", 0, stamp, self.clock, 0) + self.name.encode()
        self.table.set(HEADS, FAMILY, b"log:%d" % number, head, stamp)
        self.log, self.head, self.position, self.size = number, head, 0, 0
        self.begun.append(number)

    def _heads(self) -> Heads:
        return Heads.of(self.table.get("", HEADS).cells)

    def _value(self, qualifier: bytes) -> bytes | None:
        found = self.table.rows.get(HEADS, {}).get((FAMILY, qualifier))
        return found[1] if found else None


def pack_batch(changes: Sequence[RowChange]) -> bytes:
    """The bytes of a batch, by its drawing: each change an entry of its own."""
    regions = list(dict.fromkeys((change.table, change.region) for change in changes))
    out = struct.pack(">BH", 1, len(regions))
    for names in regions:
        for name in names:
            out += struct.pack(">H", len(name)) + name.encode()
    for change in changes:
        number = regions.index((change.table, change.region))
        out += struct.pack(">HqqI", number, change.sequence, change.written, len(change.cells))
        for place, cell in enumerate(change.cells):
            out += struct.pack(">Bq", cell.type, cell.timestamp)
            out += b"\xff\xff" if place else struct.pack(">H", len(change.row)) + change.row
            out += bytes([len(cell.family)]) + cell.family
            out += struct.pack(">H", len(cell.qualifier)) + cell.qualifier
            out += struct.pack(">I", len(cell.value)) + cell.value
    return out
