"""The bytes of a changelog record: one commit's state writes, or one change of a whole shard.

Law: a record is the same whoever makes it: rows are in order of table and key, whatever order they
came in, and `identity` does not depend on the library that compressed them. A record that was
damaged or cut short raises Corrupt.

    magic "VKR1" · kind u8 · flags u8 (unused) · shard u16 · part u32
    epoch u64 · before u64 · horizon u64 · raw bytes u64 · stored bytes u64
    identity 16 bytes: blake2b of kind, shard, epoch, horizon and the raw body but for its hints
    stored body: the raw body, compressed with LZ4
    crc32 of all before it u32

    raw body of writes:  tables u32 · (table u32 · hint u32 · rows u32)*
                         then for each table: key lengths i32* · row lengths i32* (-1: deleted)
                         · keys · rows
    raw body of a drop:  table u32
    raw body of a revert: nothing; it takes back the epochs in (before, epoch]

`before` is the epoch of the record before this one's epoch: a replay that finds another one there
has lost records. The hint of a table is `StateWrite.are_new`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from viewkeep.codec.packed import Packed, starts_of
from viewkeep.deferred import np, pa
from viewkeep.errors import Corrupt
from viewkeep.stores.contract import StateWrite
from viewkeep.stores.lmdb.state import by_table

_MAGIC = b"VKR1"
_HEAD = struct.Struct("<4sBBHIQQQQQ16s")
_SUM = struct.Struct("<I")
_COUNT = struct.Struct("<I")
_TABLE = struct.Struct("<III")
_IDENTITY = slice(_HEAD.size - 16, _HEAD.size)
_COMPRESSION = "lz4_raw"


class RecordKind(enum.IntEnum):
    """What a record does."""

    WRITES = 1
    REVERT = 2
    DROP = 3


@dataclass(frozen=True)
class Record:
    """A record as it is replayed."""

    kind: RecordKind
    shard: int
    part: int
    epoch: int
    before: int
    horizon: int = 0
    writes: tuple[StateWrite, ...] = ()
    table: int = 0  # that a DROP drops

    def encode(self) -> bytes:
        """The bytes of the record."""
        head = struct.pack("<BHQQ", self.kind, self.shard, self.epoch, self.horizon)
        digest = blake2b(head, digest_size=16)
        raw = b""
        if self.kind is RecordKind.DROP:
            raw = _COUNT.pack(self.table)
            digest.update(raw)
        elif self.kind is RecordKind.WRITES:
            raw = _encode_writes(self.writes, digest)
        else:
            digest.update(struct.pack("<Q", self.before))
        stored = pa.compress(raw, _COMPRESSION, asbytes=True) if raw else b""
        made = (
            _HEAD.pack(
                _MAGIC,
                self.kind,
                0,
                self.shard,
                self.part,
                self.epoch,
                self.before,
                self.horizon,
                len(raw),
                len(stored),
                digest.digest(),
            )
            + stored
        )
        return made + _SUM.pack(crc32(made))


def decode(data: bytes, where: str) -> Record:
    """The record of these bytes; `where` names it in errors."""
    check(data, where)
    _, kind, _, shard, part, epoch, before, horizon, size, stored, _ = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + stored]
    raw = pa.decompress(body, size, _COMPRESSION, asbytes=True) if size else b""
    writes: tuple[StateWrite, ...] = ()
    table = 0
    if kind == RecordKind.WRITES:
        writes = _decode_writes(raw)
    elif kind == RecordKind.DROP:
        (table,) = _COUNT.unpack(raw)
    return Record(RecordKind(kind), shard, part, epoch, before, horizon, writes, table)


def check(data: bytes, where: str) -> None:
    """Raise Corrupt unless these are the whole bytes of a sound record."""
    if len(data) < _HEAD.size + _SUM.size or data[:4] != _MAGIC:
        raise Corrupt(f"{where} is damaged: it is no record of a changelog")
    stored = _HEAD.unpack_from(data)[-2]
    if len(data) != _HEAD.size + stored + _SUM.size:
        raise Corrupt(f"{where} is damaged: {len(data)} bytes are not the whole record")
    if crc32(data[: -_SUM.size]) != _SUM.unpack_from(data, len(data) - _SUM.size)[0]:
        raise Corrupt(f"{where} is damaged: its checksum does not match")


def same(one: bytes, other: bytes) -> bool:
    """Whether two records say the same, however they were compressed."""
    return one == other or one[_IDENTITY] == other[_IDENTITY]


def agree(one: Record, other: Record) -> bool:
    """Whether two records of one epoch give every row that both write the same value."""
    if one.kind is not RecordKind.WRITES or other.kind is not RecordKind.WRITES:
        return False
    rows: dict[tuple[int, bytes], bytes | None] = {}
    for write in one.writes:
        for key, row in zip(write.key_list, write.rows, strict=True):
            rows[write.table, key] = row
    return all(
        rows.get((write.table, key), row) == row
        for write in other.writes
        for key, row in zip(write.key_list, write.rows, strict=True)
    )


def _encode_writes(writes: Sequence[StateWrite], digest: blake2b) -> bytes:
    directory, parts = list[bytes](), list[bytes]()
    for table, keys, rows, are_new in by_table(writes):
        packed = keys if isinstance(keys, Packed) else Packed.from_list(keys)
        bodies = rows if isinstance(rows, Packed) else Packed.from_list(rows)
        count = len(packed)
        directory.append(_TABLE.pack(table, are_new, count))
        digest.update(struct.pack("<II", table, count))
        for piece in (
            packed.lengths.astype("<i4").tobytes(),
            bodies.lengths.astype("<i4").tobytes(),
            packed.compact().tobytes(),
            bodies.compact().tobytes(),
        ):
            digest.update(piece)
            parts.append(piece)
    return b"".join([_COUNT.pack(len(directory)), *directory, *parts])


def _decode_writes(raw: bytes) -> tuple[StateWrite, ...]:
    (tables,) = _COUNT.unpack_from(raw)
    at = _COUNT.size
    directory = []
    for _ in range(tables):
        directory.append(_TABLE.unpack_from(raw, at))
        at += _TABLE.size
    buffer = np.frombuffer(raw, np.uint8)
    writes = []
    for table, are_new, count in directory:
        keys = np.frombuffer(raw, "<i4", count, at).astype(np.int64)
        rows = np.frombuffer(raw, "<i4", count, at + 4 * count).astype(np.int64)
        at += 8 * count
        packed = Packed(buffer, at + starts_of(keys), keys)
        at += int(keys.sum())
        spans = np.maximum(rows, 0)
        bodies = Packed(buffer, at + starts_of(spans), rows)
        at += int(spans.sum())
        writes.append(StateWrite(table, packed, bodies, bool(are_new)))
    return tuple(writes)
