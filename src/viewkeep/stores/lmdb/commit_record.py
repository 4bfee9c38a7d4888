"""The commit record: where a commit writes down what it does, so that it waits for the disk once.

Law: a record is read back whole, as the transaction of its number wrote it, or not at all.

LMDB commits in two steps. It writes new pages and syncs the file; then it writes the *meta page*,
which leads to them, and syncs that. An environment with a record is opened with MDB_NOMETASYNC,
which leaves the second sync to the next commit. Until then a power loss takes back the last commit,
and only that: LMDB keeps the pages of the tree before it. So before a transaction commits, its
writer writes the record into the same file, and the one sync of the pages covers the record too.
Nobody sees a commit before that sync has ended. `last_commit` does again after a power loss what
the meta page does not lead to.

The record has two slots. Transaction n takes slot n modulo 2, as LMDB does with its two meta pages:
while n is written, n - 1 may be the one that a power loss takes back.

The slots lie in a value of LMDB's unnamed database that is put once, when the file is first opened.
It fills pages of its own, which LMDB neither moves nor writes again while the key is not put again.
So the slots are written in place, by the file's own descriptor.

    unnamed   "commit record" -> MARK · zeros to the end of the first 4096 bytes · slot · slot
    slot      transaction u64 · size u32 · checksum u32 of the slot's other bytes
              · (log offset u64 · length u32 · log segment)*, `size` bytes

All numbers are little-endian.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import lmdb

_KEY = b"commit record"
_MARK = b"viewkeep commits"
_BLOCK = 4096
SLOT = 8 * _BLOCK
_PAGE_HEAD = struct.Struct("=QHHI")  # of LMDB's large values: page, unused, flags, pages
_LARGE = 0x04
_META = 512  # bytes of a meta page that hold something, and are written together
_SIZE = _BLOCK - _PAGE_HEAD.size + 2 * SLOT
_HEAD = struct.Struct("<QI")
_SUM = struct.Struct("<I")
_SEGMENT = struct.Struct("<QI")
_BODY = _HEAD.size + _SUM.size


class CommitRecord:
    """The two slots in one environment's file. Only the holder of its write lock writes them."""

    def __init__(self, path: Path, env: Any):
        """Find the slots, or make them; lmdb.Error or OSError if the file takes none."""
        with env.begin() as txn:
            is_there = txn.get(_KEY) is not None
        if not is_there:
            with env.begin(write=True) as txn:
                txn.put(_KEY, _MARK.ljust(_SIZE, b"\0"), overwrite=False)
            env.sync(True)
        self._page = int(env.stat()["psize"])
        self._file = os.open(path / "data.mdb", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._at = _place(env, self._file, self._page)
        except BaseException:
            self.close()
            raise

    def write(self, transaction: int, segments: Sequence[tuple[int, bytes]]) -> bool:
        """Write a record, for its commit to sync; False if it does not fit or cannot be written."""
        pieces, size = list[bytes](), _BODY
        for offset, segment in segments:
            pieces += (_SEGMENT.pack(offset, len(segment)), segment)
            size += _SEGMENT.size + len(segment)
            if size > SLOT:
                return False
        body = b"".join(pieces)
        head = _HEAD.pack(transaction, len(body))
        slot = b"".join((head, _SUM.pack(crc32(body, crc32(head))), body))
        try:
            return os.pwrite(self._file, slot, self._slot(transaction)) == len(slot)
        except OSError:
            return False

    def erase(self, transaction: int) -> None:
        """Make a record unreadable; the caller syncs the file."""
        os.pwrite(self._file, bytes(_BODY), self._slot(transaction))

    def erase_all(self) -> None:
        """Make both records unreadable; the caller syncs the file."""
        for transaction in (0, 1):
            self.erase(transaction)

    def rewrite_meta(self) -> None:
        """Write LMDB's meta pages as they are, after a sync that failed.

        The system may take what it could not write for written, and so leave it out of later syncs.
        """
        for place in (0, self._page):
            os.pwrite(self._file, os.pread(self._file, _META, place), place)

    def read(self, transaction: int) -> list[tuple[int, bytes]] | None:
        """The log segments in the record of a transaction, if there is one."""
        place = self._slot(transaction)
        start = os.pread(self._file, _BODY, place)
        number, size = _HEAD.unpack_from(start)
        if number != transaction or size > SLOT - _BODY:
            return None
        body = os.pread(self._file, size, place + _BODY)
        head, (stored,) = start[: _HEAD.size], _SUM.unpack_from(start, _HEAD.size)
        if len(body) < size or crc32(body, crc32(head)) != stored:
            return None
        return _segments(body)

    def close(self) -> None:
        os.close(self._file)

    def _slot(self, transaction: int) -> int:
        return self._at + SLOT * (transaction % 2)


def forget_commits(path: Path, env: Any) -> None:
    """Erase the records of an environment, all of whose commits are on disk, if it has any."""
    try:
        record = CommitRecord(path, env)
    except lmdb.ReadonlyError:  # the environment has none
        return
    try:
        record.erase_all()
    finally:
        record.close()


def _segments(body: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(body):
        offset, size = _SEGMENT.unpack_from(body, at)
        at += _SEGMENT.size + size
        found.append((offset, body[at - size : at]))
    return found


def _place(env: Any, file: int, page_size: int) -> int:
    """Where in the file the slots begin.

    A large value follows on the head of its first page, which has the page's number.
    """
    with env.begin(buffers=True) as txn:
        value = txn.get(_KEY)
        size = len(value)
        head = ctypes.string_at(_address(value) - _PAGE_HEAD.size, _PAGE_HEAD.size)
    page, _, flags, _ = _PAGE_HEAD.unpack(head)
    start = page * page_size
    known = head + _MARK
    if flags != _LARGE or size != _SIZE or os.pread(file, len(known), start) != known:
        raise lmdb.Error("LMDB stores large values otherwise than expected")
    return int(start + _BLOCK)


def _address(view: memoryview) -> int:
    """Where in memory the bytes lie."""
    buffer = (ctypes.c_void_p * 16)()  # a Py_buffer begins with that, and has less than 16 words
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), buffer, 0)
    try:
        return int(buffer[0] or 0)
    finally:
        ctypes.pythonapi.PyBuffer_Release(buffer)
