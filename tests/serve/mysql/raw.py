"""A client of the MySQL protocol that says exactly what a test wants, and no more."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from viewkeep.serve.mysql.protocol.packets import Cursor

# Long password, long flag, protocol 4.1, transactions, secure connection, plugin auth.
CAPABILITIES = 0x1 | 0x4 | 0x200 | 0x2000 | 0x8000 | 0x80000
DEPRECATE_EOF = 0x1000000


class RawClient:
    """Packets over a socket."""

    def __init__(self, port: int, capabilities: int = CAPABILITIES, greet: bool = True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.no_eof = bool(capabilities & DEPRECATE_EOF)
        self._buffer = b""
        self.sequence = 0
        if greet:
            self.greeting = self.receive()
            head = struct.pack("<IIB23x", capabilities, 1 << 24, 45)
            self.send(head + b"raw\0" + b"\0" + b"mysql_native_password\0")
            assert self.receive()[0] == 0

    def send(self, payload: bytes, sequence: int | None = None) -> None:
        number = self.sequence if sequence is None else sequence
        self.socket.sendall(len(payload).to_bytes(3, "little") + bytes((number,)) + payload)
        self.sequence = (number + 1) & 0xFF

    def command(self, kind: int, payload: bytes = b"") -> None:
        self.send(bytes((kind,)) + payload, 0)

    def receive(self) -> bytes:
        head = self._take(4)
        assert head[3] == self.sequence, "the server's packets are in order"
        self.sequence = (head[3] + 1) & 0xFF
        return self._take(int.from_bytes(head[:3], "little"))

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            part = self.socket.recv(1 << 16)
            if not part:
                raise ConnectionError("the server has closed the connection")
            self._buffer += part
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def query(self, text: str) -> bytes:
        """The first packet of the answer to a query."""
        self.command(3, text.encode())
        return self.receive()

    # -- prepared statements -------------------------------------------------------------------

    def prepare(self, text: str) -> tuple[int, int, list[str]]:
        """A statement's number, its parameters, and the names of its columns."""
        self.command(0x16, text.encode())
        head = self.receive()
        if head[0] == 0xFF:
            raise RuntimeError(head[9:].decode(), int.from_bytes(head[1:3], "little"))
        _, number, columns, parameters = struct.unpack_from("<BIHH", head)
        for _ in range(parameters):
            self.receive()
        if parameters and not self.no_eof:
            assert self.receive()[0] == 0xFE
        names = [_name(self.receive()) for _ in range(columns)]
        if columns and not self.no_eof:
            assert self.receive()[0] == 0xFE
        return number, parameters, names

    def execute(self, number: int, *values: Any, types: bool = True) -> list[tuple[Any, ...]]:
        """Rows of a prepared statement, as bytes of its binary rows decoded by their types."""
        nulls = sum(1 << place for place, value in enumerate(values) if value is None)
        body = struct.pack("<IBI", number, 0, 1)
        if values:
            body += nulls.to_bytes((len(values) + 7) // 8, "little") + bytes((types,))
            if types:
                body += b"".join(struct.pack("<H", _kind(value)) for value in values)
            body += b"".join(_bytes(value) for value in values if value is not None)
        self.command(0x17, body)
        return self.rows()

    def rows(self) -> list[tuple[Any, ...]]:
        head = self.receive()
        if head[0] == 0xFF:
            raise RuntimeError(head[9:].decode(), int.from_bytes(head[1:3], "little"))
        if head[0] == 0:
            return []
        types = [_type(self.receive()) for _ in range(head[0])]
        if not self.no_eof:
            assert self.receive()[0] == 0xFE
        found = []
        while (row := self.receive())[0] != 0xFE:
            found.append(_row(row, types))
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _definition(packet: bytes) -> tuple[str, int]:
    cursor = Cursor(packet)
    parts = [cursor.string() for _ in range(6)]
    cursor.take(7)
    return parts[4].decode(), cursor.uint(1)


def _name(packet: bytes) -> str:
    return _definition(packet)[0]


def _type(packet: bytes) -> int:
    return _definition(packet)[1]


def _kind(value: object) -> int:
    return {int: 8, float: 5, str: 253, bytes: 252, type(None): 6, tuple: 12}[type(value)]


def _bytes(value: Any) -> bytes:
    if isinstance(value, int):
        return struct.pack("<q", value)
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, tuple):  # a time: year, month, day, hour, minute, second, microsecond
        return struct.pack("<BHBBBBBI", 11, *value)
    data = value.encode() if isinstance(value, str) else value
    return bytes((len(data),)) + data


def _row(packet: bytes, types: list[int]) -> tuple[Any, ...]:
    cursor = Cursor(packet, 1)
    nulls = int.from_bytes(cursor.take((len(types) + 9) // 8), "little")
    row: list[Any] = []
    for place, kind in enumerate(types):
        if nulls >> (place + 2) & 1:
            row.append(None)
        elif kind in (1, 3, 8):
            width = {1: 1, 3: 4, 8: 8}[kind]
            row.append(int.from_bytes(cursor.take(width), "little", signed=True))
        elif kind == 5:
            row.append(struct.unpack("<d", cursor.take(8))[0])
        elif kind in (10, 12):
            row.append(struct.unpack("<HBBBBBI", cursor.take(cursor.uint(1)).ljust(11, b"\0")))
        else:
            row.append(cursor.string())
    assert not cursor.left
    return tuple(row)
