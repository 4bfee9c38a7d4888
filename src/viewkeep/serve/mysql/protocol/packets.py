"""The bytes inside MySQL packets: integers, strings, and the packets that end a command.

Law: reading past the end of a packet, or a length that it cannot hold, raises Malformed; nothing is
allocated for a length that was only claimed.

    lenenc int      0..250 as itself | FC + 2 bytes | FD + 3 bytes | FE + 8 bytes
    lenenc string   lenenc int, then that many bytes          FB alone is NULL in a row
    OK              00 (FE at the end of rows), affected, last id (lenenc), status 2, warnings 2,
                    what was done in words (lenenc string), if anything
    ERR             FF, code 2, '#', SQLSTATE 5, message
    EOF             FE, warnings 2, status 2
"""

from __future__ import annotations

import struct

NULL = b"\xfb"

STATUS_IN_TRANSACTION = 0x0001
STATUS_AUTOCOMMIT = 0x0002
STATUS_MORE_RESULTS = 0x0008

_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")


class Malformed(Exception):
    """The bytes are not of the MySQL protocol; the connection ends."""


class Cursor:
    """Reads one packet from its beginning to its end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0):
        self._data, self._at = data, at

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise Malformed(f"a packet ends {end - len(self._data)} bytes early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def rest(self) -> bytes:
        return self.take(self.left)

    def lenenc(self) -> int:
        first = self.uint(1)
        if first <= 250:
            return first
        width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        if width is None:
            raise Malformed(f"no length starts with {first:#x}")
        return self.uint(width)

    def string(self) -> bytes:
        return self.take(self.lenenc())

    def uint(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def until_zero(self) -> bytes:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise Malformed("a string in a packet has no end")
        taken = self.take(end - self._at)
        self._at += 1
        return taken


def lenenc(number: int) -> bytes:
    """A length-encoded integer."""
    if number <= 250:
        return bytes((number,))
    if number <= 0xFFFF:
        return b"\xfc" + _U16.pack(number)
    if number <= 0xFFFFFF:
        return b"\xfd" + _U32.pack(number)[:3]
    return b"\xfe" + _U64.pack(number)


def string(data: bytes) -> bytes:
    """A length-encoded string."""
    return lenenc(len(data)) + data


def ok(
    status: int,
    affected: int = 0,
    last_id: int = 0,
    warnings: int = 0,
    info: str = "",
    *,
    end: bool = False,
) -> bytes:
    """An OK packet; with `end` the one that ends rows for clients that want no EOF."""
    return b"".join(
        (
            b"\xfe" if end else b"\x00",
            lenenc(affected),
            lenenc(last_id & 0xFFFFFFFFFFFFFFFF),
            _U16.pack(status),
            _U16.pack(min(warnings, 0xFFFF)),
            string(info.encode()) if info else b"",
        )
    )


def eof(status: int, warnings: int = 0) -> bytes:
    """An EOF packet."""
    return b"\xfe" + _U16.pack(min(warnings, 0xFFFF)) + _U16.pack(status)


def error(code: int, state: str, message: str) -> bytes:
    """An ERR packet."""
    return b"\xff" + _U16.pack(code) + b"#" + state.encode() + message.encode("utf-8", "replace")
