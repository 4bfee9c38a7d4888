"""The log table: what region servers append, and the one row that says how far.

    row 00 "heads"    begun          i64: the number of the last log that has begun
                      log:N          the head of log N: position, stamp, written, size (i64 each),
                                     and the name of the region server
                      kept:N         i64: the position from which on log N is kept
                      ended          operations, written (i64 each) of the logs that are gone
                      table:NAME     a table of HBase that is logged
    row 00 "servers"  NAME           a region server that has begun to take part
    row u8 1+N%64, u32 N, u64 end    a batch of log N. `s`: stamp, first and last written,
                                     operations, size (i64 each). `b`: its bytes, in pieces

Law: one read of the row `heads` is one moment. Region servers write `begun` and `log:N`, readers
the rest, and only a reader that ends a log removes `log:N`, by compare-and-set.

Times are WAL write times, in milliseconds since 1970. A position counts changes: the cells of one
row that one WAL entry has. Of two batches, one of which was in the log before the other was
appended, that one has the smaller stamp, whatever the clocks say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from viewkeep.errors import Corrupt
from viewkeep.stores.contract import Cut
from viewkeep.stores.hbase.wire import Cell, Column

HEADS: Final = b"\0heads"
SERVERS: Final = b"\0servers"
FAMILY, SUMMARY, BYTES = b"h", b"s", b"b"
BEGUN: Final = b"begun"
ENDED: Final = b"ended"
PREFIXES: Final = 64
VERSION: Final = 1

_LOG, _KEPT, _TABLE = b"log:", b"kept:", b"table:"
_NUMBER = struct.Struct(">q")
_PAIR = struct.Struct(">qq")
_HEAD = struct.Struct(">qqqq")
_SUMMARY = struct.Struct(">qqqqq")
_KEY = struct.Struct(">BIQ")
_LENGTH = struct.Struct(">H")
_ENTRY = struct.Struct(">HqqI")
_CELL = struct.Struct(">BqH")
_VALUE = struct.Struct(">I")
_SAME_ROW = 0xFFFF
_NANOSECONDS = 1_000_000  # in a millisecond


class Head(NamedTuple):
    """How far a log is. `bytes` are those that a compare-and-set expects."""

    position: int
    stamp: int
    written: int
    size: int
    server: str
    bytes: bytes


@dataclass(frozen=True)
class Heads:
    """The row of heads, at one moment."""

    begun: int = 0
    logs: Mapping[int, Head] = field(default_factory=dict)
    kept: Mapping[int, int] = field(default_factory=dict)
    ended: tuple[int, int] = (0, 0)
    tables: frozenset[str] = frozenset()

    @staticmethod
    def of(cells: Iterable[Cell]) -> Heads:
        begun, ended = 0, (0, 0)
        logs, kept, tables = dict[int, Head](), dict[int, int](), set[str]()
        for cell in cells:
            name, value = cell.qualifier, cell.value
            if name.startswith(_LOG):
                position, stamp, written, size = _HEAD.unpack_from(value)
                server = value[_HEAD.size :].decode()
                logs[int(name[len(_LOG) :])] = Head(position, stamp, written, size, server, value)
            elif name.startswith(_KEPT):
                (kept[int(name[len(_KEPT) :])],) = _NUMBER.unpack(value)
            elif name.startswith(_TABLE):
                tables.add(name[len(_TABLE) :].decode())
            elif name == BEGUN:
                (begun,) = _NUMBER.unpack(value)
            elif name == ENDED:
                ended = _PAIR.unpack(value)
        return Heads(begun, logs, kept, ended, frozenset(tables))

    @property
    def cut(self) -> Cut:
        """All that was appended."""
        return Cut(
            {str(log): head.position for log, head in self.logs.items()},
            max([self.ended[1], *(head.written for head in self.logs.values())]) * _NANOSECONDS,
            self.ended[0] + sum(head.position for head in self.logs.values()),
            self.begun,
            births_of(self.logs),
        )

    @property
    def kept_cut(self) -> Cut:
        """What was truncated."""
        positions = {str(log): self.kept.get(log, 0) for log in self.logs}
        operations = self.ended[0] + sum(positions.values())
        return Cut(positions, 0, operations, self.begun, births_of(self.logs))


class Batch(NamedTuple):
    """What the summary of a batch says; it has the positions start <= position < stop."""

    log: int
    stop: int
    stamp: int
    first_written: int
    last_written: int
    operations: int
    size: int

    @property
    def start(self) -> int:
        return self.stop - self.operations

    @property
    def key(self) -> bytes:
        return batch_key(self.log, self.stop)

    @staticmethod
    def of(key: bytes, value: bytes) -> Batch:
        _, log, stop = _KEY.unpack(key)
        return Batch(log, stop, *_SUMMARY.unpack(value))


class WalCell(NamedTuple):
    """A cell of a WAL entry; `type` is HBase's: PUT or one of the deletions."""

    type: int
    timestamp: int
    family: bytes
    qualifier: bytes
    value: bytes


PUT, DELETE_VERSION, DELETE_FAMILY_VERSION, DELETE_CELLS, DELETE_FAMILY = 4, 8, 10, 12, 14


class RowChange(NamedTuple):
    """The cells of one row of one WAL entry, in order.

    `sequence` grows with each entry of a row's region and of the regions that come from it.
    """

    table: str
    region: str
    sequence: int
    written: int
    row: bytes
    cells: list[WalCell]


def read_batch(data: bytes) -> Iterator[RowChange]:
    """The changes of a batch (`Batch.java` writes it)."""
    if data[0] != VERSION:
        raise Corrupt(
            f"a batch of the log has version {data[0]}; this viewkeep reads {VERSION}. "
            "Install the jar of this version on the region servers"
        )
    (count,) = _LENGTH.unpack_from(data, 1)
    regions, at = list[tuple[str, str]](), 3
    for _ in range(count):
        name, at = _short(data, at)
        encoded, at = _short(data, at)
        regions.append((name.decode(), encoded.decode()))
    end = len(data)
    while at < end:
        number, sequence, written, left = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        table, region = regions[number]
        row, cells = b"", list[WalCell]()
        for _ in range(left):
            kind, timestamp, length = _CELL.unpack_from(data, at)
            at += _CELL.size
            if length != _SAME_ROW:
                if cells:
                    yield RowChange(table, region, sequence, written, row, cells)
                    cells = []
                row, at = data[at : at + length], at + length
            length = data[at]
            family, at = data[at + 1 : at + 1 + length], at + 1 + length
            qualifier, at = _short(data, at)
            (length,) = _VALUE.unpack_from(data, at)
            at += 4
            cells.append(WalCell(kind, timestamp, family, qualifier, data[at : at + length]))
            at += length
        if cells:
            yield RowChange(table, region, sequence, written, row, cells)


def batch_key(log: int, stop: int) -> bytes:
    """The row of the batch of a log that ends at a position."""
    return _KEY.pack(1 + log % PREFIXES, log, stop)


def log_column(log: int) -> Column:
    return Column(FAMILY, _LOG + b"%d" % log)


def kept_column(log: int) -> Column:
    return Column(FAMILY, _KEPT + b"%d" % log)


def table_column(table: str) -> Column:
    return Column(FAMILY, _TABLE + table.encode())


def pack_number(value: int) -> bytes:
    return _NUMBER.pack(value)


def pack_ended(operations: int, written: int) -> bytes:
    return _PAIR.pack(operations, written)


def births_of(logs: Iterable[int]) -> dict[str, int]:
    """The numbers of logs by their names, as cuts have them."""
    return {str(log): log for log in logs if log > 1}


def _short(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    return data[at : at + length], at + length
