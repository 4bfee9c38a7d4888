"""Meta records: the cells of one row of HBase, so that each change and each scan is one moment.

Law: a change that was reported done is seen by every later call. One whose answer was lost is made
again until it is known whether it was made: a change also notes its number in a cell of its writer.

    family m   a record under its key; an empty value stands for a record that was removed
    family w   for each writer the number of its last change

Some writer's number changes with every record, so one small read tells whether to look.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from viewkeep.errors import OutcomeUnknown
from viewkeep.stores.contract import Meta
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.wire import Cell, Column, Family, Mutation, Put

ROW = b"meta"
RECORDS, WRITERS = b"m", b"w"
LOOK = 0.02  # seconds between two looks of a wait: each is a call over the network
_IS_THERE = b"+"
_NUMBER = struct.Struct(">q")


class HbaseMeta(Meta):
    """The records of one database."""

    def __init__(self, connection: HbaseConnection, table: str):
        self._connection, self.table = connection, table
        self._lock = Lock()
        self._writer = uuid.uuid4().hex.encode()
        self._number = 0

    def create(self) -> bool:
        """Make the table; False if it is there."""
        families = [Family(name, versions=1) for name in (RECORDS, WRITERS)]
        return self._connection.create_table(self.table, families)

    def get(self, key: str) -> bytes | None:
        row = self._connection.get(self.table, ROW, [Column(RECORDS, key.encode())])
        return row.cells[0].value[1:] if row.cells and row.cells[0].value else None

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Several records, as they are at one moment."""
        row = self._connection.get(self.table, ROW, [Column(RECORDS, key.encode()) for key in keys])
        found = {cell.qualifier: cell.value[1:] for cell in row.cells if cell.value}
        return [found.get(key.encode()) for key in keys]

    def cas(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        if old is None and new is None:
            return self.get(key) is None
        name, is_doubtful = key.encode(), False
        expected = None if old is None else _IS_THERE + old
        with self._lock:
            self._number += 1
            # HBase stamps the record itself, and never before the one that it replaces.
            record = Cell(RECORDS, name, b"" if new is None else _IS_THERE + new)
            noted = Cell(WRITERS, self._writer, _NUMBER.pack(self._number), self._number)
            change = [Mutation(put=Put(ROW, [record, noted]))]
            while True:
                with suppress(OutcomeUnknown):
                    done = self._connection.check_and_mutate(
                        self.table, ROW, Column(RECORDS, name), expected, change
                    )
                    return done or (is_doubtful and self._is_done())
                is_doubtful = True
                if self._is_done():
                    return True

    def watch(self, key: str, seen: bytes | None, seconds: float) -> bytes | None:
        deadline = time.monotonic() + seconds
        while (record := self.get(key)) == seen and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
        return record

    def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        quoted = prefix.replace("'", "''")
        only = f"ColumnPrefixFilter('{quoted}')".encode() if prefix else None
        row = self._connection.get(self.table, ROW, [Column(RECORDS)], filter=only)
        return [(cell.qualifier.decode(), cell.value[1:]) for cell in row.cells if cell.value]

    def ticks(self) -> object:
        """Another value after each change of a record."""
        row = self._connection.get(self.table, ROW, [Column(WRITERS)])
        return tuple((cell.qualifier, cell.value) for cell in row.cells)

    def _is_done(self) -> bool:
        """Whether this writer's last change was made."""
        row = self._connection.get(self.table, ROW, [Column(WRITERS, self._writer)])
        return bool(row.cells) and _NUMBER.unpack(row.cells[0].value) == (self._number,)
