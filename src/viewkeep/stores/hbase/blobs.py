"""Blobs: each a row under its name, written once.

Law: that of the contract. A blob is put by one change of one row, so it is whole or not there. All
its cells have one timestamp, and a removal hides exactly those, so that a name may be used again.

    family b   qualifier "": id (16 bytes), size (i64)   ·   others (u32): pieces of the content
"""

from __future__ import annotations

import struct
import time
import uuid

from viewkeep.codec.keys import prefix_end
from viewkeep.errors import OutcomeUnknown
from viewkeep.stores.contract import Blobs, Missing
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Family, Mutation, Put

FAMILY, HEAD = b"b", b""
_PIECE = 1 << 20  # bytes: HBase refuses cells of 10 MiB
_PAGE = 1_000  # names of one call
_SIZE = struct.Struct(">q")
_PLACE = struct.Struct(">I")


class HbaseBlobs(Blobs):
    """The blobs of one database; `close` closes the connection."""

    def __init__(self, connection: HbaseConnection, table: str):
        self._connection, self.table = connection, table

    def create(self) -> None:
        """Make the table, if it is not there."""
        self._connection.create_table(self.table, [Family(FAMILY, versions=1)])

    def put(self, name: str, data: bytes) -> bool:
        id = uuid.uuid4().bytes
        pieces = enumerate(range(0, len(data), _PIECE))
        cells = [Cell(FAMILY, HEAD, id + _SIZE.pack(len(data)))]
        cells += [Cell(FAMILY, _PLACE.pack(n), data[at : at + _PIECE]) for n, at in pieces]
        row = name.encode()
        change = [Mutation(put=Put(row, cells, time.time_ns() // 1000))]
        while True:
            try:
                if self._connection.check_and_mutate(
                    self.table, row, Column(FAMILY, HEAD), None, change
                ):
                    return True
            except OutcomeUnknown:
                continue
            head = self._head(name)
            if head is not None:  # ours, if an answer was lost
                return head.value.startswith(id)

    def get(self, name: str) -> bytes:
        cells = self._connection.get(self.table, name.encode(), [Column(FAMILY)]).cells
        if not cells:
            raise Missing(f"there is no blob {name}")
        return b"".join(cell.value for cell in cells if cell.qualifier != HEAD)

    def names(self, folder: str) -> list[str]:
        prefix = _prefix(folder)
        found, start, stop = list[bytes](), prefix, prefix_end(prefix)
        more = True
        while more:
            rows = self._connection.scan(
                self.table, start, stop, [Column(FAMILY, HEAD)], limit=_PAGE
            )
            for row in rows:
                name, slash, _ = (row.key or b"")[len(prefix) :].partition(b"/")
                if found[-1:] != [name]:
                    found.append(name)
                start = prefix + name + (b"0" if slash else b"\0")  # "0" follows "/"
            more = len(rows) == _PAGE
        return sorted({name.decode() for name in found})

    def size(self, name: str) -> int:
        head = self._head(name)
        return 0 if head is None else int(_SIZE.unpack(head.value[-_SIZE.size :])[0])

    def remove(self, name: str) -> None:
        head = self._head(name)
        if head is not None:
            self._hide([(name.encode(), head.timestamp)])

    def remove_folder(self, name: str) -> None:
        prefix = _prefix(name)
        while rows := self._connection.scan(
            self.table, prefix, prefix_end(prefix), [Column(FAMILY, HEAD)], limit=_PAGE
        ):
            self._hide([(row.key or b"", row.cells[0].timestamp) for row in rows])

    def close(self) -> None:
        self._connection.close()

    def _head(self, name: str) -> Cell | None:
        cells = self._connection.get(self.table, name.encode(), [Column(FAMILY, HEAD)]).cells
        return cells[0] if cells else None

    def _hide(self, versions: list[tuple[bytes, int]]) -> None:
        kind = Deletion.FAMILY_VERSION
        self._connection.delete(
            self.table,
            [Delete(row, [Column(FAMILY, timestamp=at)], kind=kind) for row, at in versions],
        )


def _prefix(folder: str) -> bytes:
    return f"{folder}/".encode() if folder else b""
